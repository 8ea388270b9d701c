//! A key as its document has it at one moment, and what is done to it.
//!
//! Here the two clocks are told apart. Whoever holds the key does so as long as either clock says
//! so, which is what the early one says, and what is granted or extended ends by the late one.
//! Places in the line go by the early one throughout: nothing is endangered if one of them is lost
//! a second too soon, or kept a second too long, which is as far as clocks may be apart.

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;

use super::clocks::Moment;
use super::known::{Foreign, Known};
use super::record::{self, lock, millis};
use super::transaction::{delete, update};
use crate::backend::{Absence, Acquire, AcquireRequest, Extend, Grant, Mode, Record, Release};
use crate::key_state::{Acquired, KeyState};
use crate::{Contention, Error, Fence, LockId, Timestamp, Ttl};

/// The most who may hold a key and wait for it, so that its document stays well below a megabyte.
const MOST_ENTRIES: usize = 1000;

/// What the document of a key says, and what it is to say.
#[derive(Debug)]
pub(super) struct KeyDocument {
    name: String,
    moment: Moment,
    before: Option<api::Document>,
    known: Known,
    /// What it was when it was read.
    was: KeyState,
    /// All that has changed is when an exclusive lock ends.
    extended_to: Option<Timestamp>,
    /// Nothing of the document is to be kept.
    ended: bool,
}

impl KeyDocument {
    /// # Errors
    ///
    /// `Internal` if it is not the document of a key.
    pub(super) fn read(name: &str, document: Option<&api::Document>, moment: Moment) -> Result<Self, Error> {
        let known = document.map(Known::of).transpose()?.unwrap_or_default().at(moment.early)?;
        let was = known.state.clone();
        let before = document.cloned();
        Ok(Self { name: name.to_owned(), moment, before, known, was, extended_to: None, ended: false })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Those who hold the key and could be shown, the oldest first.
    pub(super) fn holders(&self) -> impl Iterator<Item = &Record> {
        self.known.state.live(self.moment.early)
    }

    pub(super) fn state(&self) -> &KeyState {
        &self.known.state
    }

    pub(super) fn moment(&self) -> Moment {
        self.moment
    }

    /// The last fence that was granted, as far as the document tells.
    pub(super) fn last(&self) -> Option<Fence> {
        self.known.last
    }

    /// The lock of another program that cannot be shown.
    pub(super) fn foreign(&self) -> Option<&Foreign> {
        self.known.foreign.as_ref()
    }

    pub(super) fn is_held_by(&self, id: &LockId) -> bool {
        self.known.state.grant_of(id, self.moment.early).is_some()
            || self.known.foreign.as_ref().is_some_and(|foreign| foreign.stored.has_id(id))
    }

    pub(super) fn is_waited_for_by(&self, id: &LockId) -> bool {
        self.known.state.line.iter().any(|place| place.waiter.lock_id == *id)
    }

    /// Whether an id is in here that is dead.
    pub(super) fn is_dead(&self, id: &LockId) -> bool {
        !self.is_held_by(id) && self.known.state.grants.iter().any(|grant| grant.lock_id == *id)
    }

    /// Decides about a request. `counted` is the last fence that the counter tells of.
    pub(super) fn acquire(
        &mut self,
        request: &AcquireRequest,
        counted: impl FnOnce() -> Result<Option<Fence>, Error>,
    ) -> Result<Acquired, Error> {
        if let Some(Foreign { stored, error }) = &self.known.foreign {
            if stored.has_id(&request.lock_id) {
                return Err(error.clone());
            }
            // Nobody can stand in line for what is not known: it is asked for again.
            let answer = Acquire::Held(stored.contention(self.moment.early));
            return Ok(Acquired { answer, is_new: false, stolen: Vec::new() });
        }
        let Moment { early, server, .. } = self.moment;
        // A counter that was lost is no reason to count from the start.
        let last = self.known.last;
        let mut acquired = self.known.state.acquire(request, early, || Fence::next(counted()?.max(last), server))?;
        if acquired.is_new
            && let Some(grant) = self.settle(request.ttl)
        {
            acquired.answer = Acquire::Granted(grant);
        }
        self.known.state.call_next(early);
        self.check_size()?;
        Ok(acquired)
    }

    /// Who is in the way of a request that neither joins the line nor steals.
    pub(super) fn obstacle(&self, request: &AcquireRequest) -> Option<Contention> {
        let early = self.moment.early;
        let foreign = self.known.foreign.as_ref().map(|foreign| foreign.stored.contention(early));
        foreign.or_else(|| self.known.state.obstacle(request, early))
    }

    /// Calls the first in line if it can come, for somebody who was refused. Tells what has to be
    /// written for that.
    pub(super) fn call_next(&mut self) -> Option<api::Write> {
        self.known.state.call_next(self.moment.early)?;
        self.write()
    }

    /// Lets a request in that nobody is in the way of.
    pub(super) fn grant(&mut self, request: &AcquireRequest, fence: Fence) -> Result<Grant, Error> {
        let grant = self.known.state.grant(request, fence, self.moment.early);
        let grant = self.settle(request.ttl).unwrap_or(grant);
        self.known.state.call_next(self.moment.early);
        self.check_size()?;
        Ok(grant)
    }

    /// Has the grant that was just made end by the clock that is ahead.
    fn settle(&mut self, ttl: Ttl) -> Option<Grant> {
        let newest = self.known.state.grants.last_mut()?;
        newest.acquired_at = self.moment.late.whole_millis();
        newest.expires_at = self.moment.late.expiry(ttl);
        self.known.last = self.known.last.max(Some(newest.fence));
        Some(newest.grant())
    }

    fn check_size(&self) -> Result<(), Error> {
        let KeyState { grants, line, .. } = &self.known.state;
        let (count, was) = (grants.len() + line.len(), self.was.grants.len() + self.was.line.len());
        if count <= MOST_ENTRIES.max(was) {
            return Ok(());
        }
        let message =
            format!("more than {MOST_ENTRIES} hold this key or wait for it, which this store has no room for");
        Err(Error::invalid(message).with_hint("spread the work over several keys"))
    }

    /// Gives up a lock or a place.
    pub(super) fn release(&mut self, id: &LockId) -> Release {
        if self.known.foreign.as_ref().is_some_and(|foreign| foreign.stored.has_id(id)) {
            self.known.foreign = None;
            self.ended = true;
            return Release::Released;
        }
        let released = self.known.state.release(id, self.moment.early);
        self.known.state.call_next(self.moment.early);
        released
    }

    /// Has the document deleted if the key was kept for somebody who did not come, and nobody waits
    /// any more. Whoever gives up its place after that time would leave it for good.
    pub(super) fn tidy(&mut self) {
        self.ended |= self.known.is_left_over();
    }

    pub(super) fn extend(&mut self, id: &LockId, ttl: Ttl) -> Extend {
        let Moment { early, late, .. } = self.moment;
        let expires_at = late.expiry(ttl);
        if self.known.foreign.as_ref().is_some_and(|foreign| foreign.stored.has_id(id)) {
            self.extended_to = Some(expires_at);
            return Extend::Extended { expires_at };
        }
        let grant = self.known.state.grants.iter_mut().find(|grant| grant.lock_id == *id);
        match grant {
            None => Extend::Absent(Absence::NotFound),
            Some(grant) if !grant.expires_at.is_live(early) => Extend::Absent(Absence::Expired),
            Some(grant) => {
                grant.expires_at = expires_at;
                if grant.mode == Mode::Exclusive {
                    self.extended_to = Some(expires_at);
                }
                Extend::Extended { expires_at }
            }
        }
    }

    /// Ends the locks of all who hold the key, or the one with a fence.
    ///
    /// # Errors
    ///
    /// `Internal` if the lock of another program cannot be shown.
    pub(super) fn force_release(&mut self, only: Option<Fence>) -> Result<Vec<Record>, Error> {
        if let Some(foreign) = &self.known.foreign {
            return Err(foreign.error.clone());
        }
        let ended = self.known.state.force_release(only, self.moment.early);
        self.known.state.call_next(self.moment.early);
        Ok(ended)
    }

    /// What has to be written, if anything has changed. It is written only if the document is as it
    /// was read.
    pub(super) fn write(&self) -> Option<api::Write> {
        let before = self.before.as_ref();
        if self.ended {
            return before.map(delete);
        }
        if let Some(expires_at) = self.extended_to {
            let changed = record::one_field(&self.name, lock::EXPIRES_AT, millis(expires_at));
            return Some(update(changed, Some(&[lock::EXPIRES_AT]), before));
        }
        let KeyState { grants, line, .. } = &self.known.state;
        if *grants == self.was.grants && *line == self.was.line {
            return None;
        }
        let id = self.name.rsplit('/').next().unwrap_or(&self.name);
        match self.known.fields(id, self.moment.early) {
            Some(fields) => {
                let document = api::Document { name: self.name.clone(), fields, ..api::Document::default() };
                Some(update(document, None, before))
            }
            None => before.map(delete),
        }
    }
}
