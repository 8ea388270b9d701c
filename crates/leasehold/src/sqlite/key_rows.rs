//! What is kept of a key that several hold or wait for, read as a whole and written back as a
//! difference.

use std::collections::HashSet;

use rusqlite::params;

use super::error::translate;
use super::operations::{Operations, Present};
use super::placeholder;
use super::rows::{self, Held, KeyRow, Reserved, column, mode_columns};
use crate::backend::{Mode, Record};
use crate::key_state::{KeyState, Place};
use crate::remote::placeholder::Placeholder;
use crate::timestamp::TOLERANCE_MILLIS;
use crate::{Error, Fence, Holder, Key, LockId, Metadata, Timestamp};

/// A key that several hold or wait for. Of its line there are only those about whom something is
/// decided: the first two, because the first may leave, and the one who asks.
pub(super) struct KeyRows {
    pub(super) key: Key,
    row: Option<KeyRow>,
    before: KeyState,
    pub(super) state: KeyState,
}

impl KeyRows {
    pub(super) fn last_fence(&self) -> Option<Fence> {
        self.row.as_ref().map(|row| row.fence)
    }

    /// What the row of the key is to say. `None` if it is to stay as it is.
    fn held(&self, now: Timestamp) -> Option<Held> {
        let KeyState { grants, line, .. } = &self.state;
        let reserved = |kind, acquired_at, expires_at| Held::Otherwise(Reserved { kind, acquired_at, expires_at });
        let is_held = self.state.live(now).next().is_some();
        let held = match (grants.last(), line.front()) {
            // Nobody shall slip in before the one who was called. Others count the tolerance, too.
            (_, Some(place @ Place { waiter, .. })) if !is_held && place.is_called(now) => {
                let until = Timestamp::from_millis(waiter.until.as_millis().saturating_sub(TOLERANCE_MILLIS));
                if self.is_kept_until(until) {
                    return None;
                }
                reserved(Placeholder::Called, now.whole_millis(), until)
            }
            (None, _) => Held::Nobody,
            (Some(grant), _) if grant.mode == Mode::Exclusive => Held::Plain(grant.clone()),
            (Some(newest), _) => {
                // The newest: a program that takes what was held for too long takes all of them.
                let latest = grants.iter().map(|grant| grant.expires_at).max()?;
                reserved(placeholder::beside(newest.mode), newest.acquired_at, latest)
            }
        };
        let fence = grants.last().map(|grant| grant.fence);
        let is_so = |row: &KeyRow| row.held == held && fence.is_none_or(|fence| fence <= row.fence);
        if self.row.as_ref().is_some_and(is_so) { None } else { Some(held) }
    }

    /// Whether the row says already that the key is kept until then for the one who was called.
    fn is_kept_until(&self, until: Timestamp) -> bool {
        let found = self.row.as_ref().map(|row| &row.held);
        matches!(found, Some(Held::Otherwise(Reserved { kind: Placeholder::Called, expires_at, .. })) if *expires_at == until)
    }
}

impl Operations<'_> {
    /// What is kept of a key, and of `id` in its line.
    pub(super) fn load(&self, key: &Key, row: Option<KeyRow>, id: Option<&LockId>) -> Result<KeyRows, Error> {
        let grants = match row.as_ref().map(|row| &row.held) {
            Some(Held::Plain(record)) => vec![record.clone()],
            Some(Held::Otherwise(Reserved { kind, .. })) => self.grants_beside(*kind, key, i64::MIN, -1)?,
            None | Some(Held::Nobody) => Vec::new(),
        };
        let mut line = self.first_in_line(key, 2)?;
        if let Some(id) = id
            && line.iter().all(|place| place.waiter.lock_id != *id)
        {
            let own = params![id.expose(), key.as_str(), self.now_millis()];
            line.extend(self.first(include_str!("place_of.sql"), own, rows::place)?);
        }
        let state = KeyState { grants, line: line.into(), gone: Vec::new() };
        Ok(KeyRows { key: key.clone(), row, before: state.clone(), state })
    }

    /// The grants of a key that has a placeholder, the oldest `most` of those that expire after
    /// `dead_at`; a negative number is for all of them.
    pub(super) fn grants_beside(
        &self,
        kind: Placeholder,
        key: &Key,
        dead_at: i64,
        most: i64,
    ) -> Result<Vec<Record>, Error> {
        let values = params![key.as_str(), placeholder::id(kind, key.as_str()), dead_at, most];
        self.all(include_str!("grants_of.sql"), values, rows::grant)
    }

    /// The first in line whose place is still theirs.
    pub(super) fn first_in_line(&self, key: &Key, most: usize) -> Result<Vec<Place>, Error> {
        let wanted = params![key.as_str(), self.now_millis(), column(most as u64)];
        self.all(include_str!("first_in_line.sql"), wanted, rows::place)
    }

    /// Writes what has changed.
    pub(super) fn store(&mut self, rows: &KeyRows) -> Result<(), Error> {
        self.store_grants(rows)?;
        self.store_line(rows)?;
        let Some(held) = rows.held(self.now) else { return Ok(()) };
        let fence = rows.last_fence().max(rows.state.grants.last().map(|grant| grant.fence));
        match held {
            // A key that was never locked has no row.
            _ if fence.is_none() => Ok(()),
            Held::Nobody => self.execute(include_str!("force_release.sql"), [rows.key.as_str()]).map(drop),
            Held::Plain(record) => self.write_lock(&record).map_err(translate),
            Held::Otherwise(reserved) => self.write_placeholder(&rows.key, &reserved, fence),
        }
    }

    fn store_grants(&mut self, rows: &KeyRows) -> Result<(), Error> {
        let fences = |state: &KeyState| state.grants.iter().map(|grant| grant.fence).collect::<HashSet<_>>();
        let (before, after) = (fences(&rows.before), fences(&rows.state));
        let missing =
            |grant: &&Record, from: &HashSet<Fence>| grant.mode != Mode::Exclusive && !from.contains(&grant.fence);
        for gone in rows.before.grants.iter().filter(|grant| missing(grant, &after)) {
            self.execute("DELETE FROM grants WHERE lock_id = ?1", [gone.lock_id.expose()])?;
        }
        let new: Vec<_> = rows.state.grants.iter().filter(|grant| missing(grant, &before)).collect();
        if !new.is_empty() && rows.before.grants.iter().all(|grant| grant.mode == Mode::Exclusive) {
            // Those whose placeholder another program has ended must not come to life again.
            self.execute("DELETE FROM grants WHERE key = ?1", [rows.key.as_str()])?;
        }
        new.into_iter().try_for_each(|grant| self.add_grant(grant))
    }

    pub(super) fn add_grant(&mut self, record: &Record) -> Result<(), Error> {
        let present = self.present()?;
        self.present = Some(Present { grants: true, ..present });
        let (mode, permits) = mode_columns(record.mode);
        let values = params![
            record.key.as_str(),
            record.lock_id.expose(),
            column(record.fence.get()),
            column(record.acquired_at.as_millis()),
            column(record.expires_at.as_millis()),
            record.holder.as_ref().map(Holder::as_str),
            notes(&record.metadata),
            mode,
            permits,
            record.slot,
            placeholder::id(placeholder::beside(record.mode), record.key.as_str()),
        ];
        self.execute(include_str!("add_grant.sql"), values).map(drop)
    }

    pub(super) fn write_placeholder(&self, key: &Key, reserved: &Reserved, fence: Option<Fence>) -> Result<(), Error> {
        let values = params![
            key.as_str(),
            placeholder::id(reserved.kind, key.as_str()),
            column(fence.map_or(0, Fence::get)),
            column(reserved.acquired_at.as_millis()),
            column(reserved.expires_at.as_millis()),
            placeholder::holder(reserved.kind),
            None::<String>,
        ];
        self.execute(include_str!("grant.sql"), values).map(drop)
    }

    fn store_line(&mut self, rows: &KeyRows) -> Result<(), Error> {
        let has = |state: &KeyState, id: &LockId| state.line.iter().any(|place| place.waiter.lock_id == *id);
        for Place { waiter, .. } in &rows.before.line {
            if !has(&rows.state, &waiter.lock_id) {
                self.leave(&waiter.lock_id)?;
            }
        }
        for place in rows.state.line.iter().filter(|place| !rows.before.line.contains(place)) {
            let Place { waiter, called } = place;
            let (mode, permits) = mode_columns(waiter.mode);
            let (id, until) = (waiter.lock_id.expose(), column(waiter.until.as_millis()));
            let (holder, metadata) = (waiter.holder.as_ref().map(Holder::as_str), notes(&waiter.metadata));
            if has(&rows.before, &waiter.lock_id) {
                let values = params![id, until, holder, metadata, mode, permits, called];
                self.execute(include_str!("keep_place.sql"), values)?;
                continue;
            }
            let present = self.present()?;
            self.present = Some(Present { waiters: true, ..present });
            // A place that it has lost may still be there.
            self.leave(&waiter.lock_id)?;
            let since = column(waiter.since.as_millis());
            let values = params![rows.key.as_str(), id, since, until, holder, metadata, mode, permits, called];
            self.execute(include_str!("add_place.sql"), values)?;
        }
        Ok(())
    }

    /// Removes the place of an id, in whatever line it is.
    pub(super) fn leave(&self, id: &LockId) -> Result<(), Error> {
        self.execute("DELETE FROM line WHERE lock_id = ?1", [id.expose()]).map(drop)
    }

    /// The time that places end by.
    pub(super) fn now_millis(&self) -> i64 {
        column(self.now.as_millis())
    }
}

fn notes(metadata: &Metadata) -> Option<String> {
    (!metadata.is_empty()).then(|| metadata.to_json())
}
