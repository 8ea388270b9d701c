//! How the document of a key says who holds it, and who waits for it.
//!
//! An exclusive lock is its fields, as programs that know nothing else have them. If the key is
//! held in another way, or kept for the first in line, a placeholder is there instead, which to
//! those programs is a lock that somebody else holds. All else is beside it.

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;

use super::entries::{array, grant_entry, maps, place_entry, read_grant, read_place};
use super::record::{self, Fields, lock, text};
use crate::backend::{Grant, Mode, Record};
use crate::key_state::KeyState;
use crate::remote::placeholder::Placeholder;
use crate::remote::stored::Stored;
use crate::timestamp::TOLERANCE_MILLIS;
use crate::{Error, Fence, Key, Metadata, Timestamp};

/// What a document says.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) state: KeyState,
    /// The last fence that was granted, as far as the document tells.
    pub(super) last: Option<Fence>,
    pub(super) foreign: Option<Foreign>,
    placeholder: Option<(Placeholder, Timestamp)>,
}

/// A lock of another program, of which enough can be read to respect it, and not enough to show it.
#[derive(Debug)]
pub(super) struct Foreign {
    pub(super) stored: Stored,
    /// What is wrong with it.
    pub(super) error: Error,
}

impl Known {
    /// # Errors
    ///
    /// `Internal` if it is not the document of a key.
    pub(super) fn of(document: &api::Document) -> Result<Self, Error> {
        let fields = &document.fields;
        let stored = record::stored(document)?;
        let mut known = Self { last: stored.fence.parse().ok(), ..Self::default() };
        // Who stands in line is no reason to keep the holder from its lock, so what another version
        // of this program may have left there is passed over.
        let key = Key::new(&stored.key);
        if let Ok(key) = &key {
            known.state.line = maps(fields, lock::LINE).flatten().filter_map(|place| read_place(key, place)).collect();
        }
        known.placeholder = Placeholder::of(&stored.lock_id).map(|kind| (kind, stored.expires_at));
        match known.placeholder {
            None => match record::into_record(stored) {
                Ok(record) => known.state.grants = vec![record],
                Err(error) => known.foreign = Some(Foreign { stored: record::stored(document)?, error }),
            },
            Some((Placeholder::Called, _)) => {}
            Some((Placeholder::Shared | Placeholder::Permits, _)) => {
                let key = key.map_err(|error| record::not_a_lock().with_source(error))?;
                let grants: Option<Vec<_>> = maps(fields, lock::GRANTS).map(|grant| read_grant(&key, grant?)).collect();
                known.state.grants = grants.ok_or_else(record::not_a_lock)?;
            }
        }
        Ok(known)
    }

    /// Without those whose time in the line is over.
    ///
    /// # Errors
    ///
    /// `Internal` if somebody holds the key, and nobody can tell who.
    pub(super) fn at(mut self, now: Timestamp) -> Result<Self, Error> {
        self.state.line.retain(|place| place.waiter.is_live(now));
        self.foreign = self.foreign.filter(|foreign| foreign.stored.is_live(now));
        let held_by_others =
            matches!(self.placeholder, Some((kind, ends)) if kind != Placeholder::Called && ends.is_live(now));
        if held_by_others && self.state.live(now).next().is_none() {
            // Somebody else has written this, and nobody can tell who holds the key.
            return Err(record::not_a_lock());
        }
        Ok(self)
    }

    /// Whether it is only that the key was kept for somebody, of whom nothing is left.
    pub(super) fn is_left_over(&self) -> bool {
        matches!(self.placeholder, Some((Placeholder::Called, _))) && self.state.is_empty()
    }

    /// The fields of the document with this id as it is to be, unless nobody holds the key or waits
    /// for it. The dead are left out.
    pub(super) fn fields(&self, document: &str, now: Timestamp) -> Option<Fields> {
        let line = &self.state.line;
        let holders: Vec<_> = self.state.live(now).collect();
        let mut ids: Vec<_> = line.iter().map(|place| place.waiter.lock_id).collect();
        let mut fields = match (&holders[..], line.front()) {
            ([], None) => return None,
            ([], Some(first)) => {
                // Whoever takes it for a lock adds the tolerance, which places do not have.
                let ends = first.waiter.until.as_millis().saturating_sub(TOLERANCE_MILLIS);
                let kept = Grant {
                    lock_id: first.waiter.lock_id,
                    // There is one: somebody held the key before others stood in line for it.
                    fence: self.last?,
                    acquired_at: first.waiter.since,
                    expires_at: Timestamp::from_millis(ends),
                    slot: None,
                };
                let kept = Record::new(first.waiter.key.clone(), &kept).with_holder(first.waiter.holder.clone());
                record::fields(&kept, &Placeholder::Called.id(document))
            }
            ([only], _) if only.mode == Mode::Exclusive => record::fields(only, only.lock_id.expose()),
            ([oldest, others @ ..], _) => {
                let kind = if oldest.mode.has_slots() { Placeholder::Permits } else { Placeholder::Shared };
                let mut all = Record { metadata: Metadata::default(), ..(*oldest).clone() };
                for other in others {
                    all.expires_at = all.expires_at.max(other.expires_at);
                    // Who watches for grants asks for what was granted after some time.
                    all.acquired_at = all.acquired_at.max(other.acquired_at);
                }
                all.fence = self.last.unwrap_or(all.fence);
                ids.extend(holders.iter().map(|grant| grant.lock_id));
                let mut fields = record::fields(&all, &kind.id(document));
                let grants = holders.iter().map(|grant| grant_entry(grant)).collect();
                fields.insert(lock::GRANTS.to_owned(), array(grants));
                fields
            }
        };
        if !line.is_empty() {
            fields.insert(lock::LINE.to_owned(), array(line.iter().map(place_entry).collect()));
        }
        if !ids.is_empty() {
            fields.insert(lock::IDS.to_owned(), array(ids.iter().map(|id| text(id.expose())).collect()));
        }
        Some(fields)
    }
}
