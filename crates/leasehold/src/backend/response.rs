use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::Mode;
use crate::{Fence, Holder, Key, LockId, Metadata, TIME_TOLERANCE, Timestamp};

/// The answer to an acquire. That somebody else holds the lock is an answer, not an error.
#[derive(Clone, Debug)]
#[must_use = "an ignored grant stays held until it expires"]
#[non_exhaustive]
pub enum Acquire {
    /// The lock is ours.
    Granted(Grant),
    /// Somebody else has it.
    Held(Contention),
}

/// A lock that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The id to extend and release it with.
    pub lock_id: LockId,
    /// The number of the grant.
    pub fence: Fence,
    /// Since when it is held, by the store's clock.
    pub acquired_at: Timestamp,
    /// When it ends unless extended, by the store's clock.
    pub expires_at: Timestamp,
    /// The number of the permit, from 0; only a [permit](Mode::Permit) has one. It is an exclusive
    /// lock of its own: nobody else has it, and its fences increase.
    pub slot: Option<u16>,
}

/// The answer to an [`acquire_all`](super::Backend::acquire_all).
#[derive(Clone, Debug)]
#[must_use = "ignored grants stay held until they expire"]
#[non_exhaustive]
pub enum AcquireAll {
    /// All locks are ours, in the order of the requests, and have the same fence.
    Granted(Vec<Grant>),
    /// None of them is: somebody else has one.
    Held {
        /// The number of the request in whose way somebody is.
        which: usize,
        /// Who that is.
        contention: Contention,
    },
}

/// Who has the lock instead of us.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Contention {
    /// Who holds it, for the longest time if several do; who is first in line if nobody does. Other
    /// programs that use the same store may leave no name.
    pub holder: Option<Holder>,
    /// The number of that holder's grant, unless another program left something else there.
    pub fence: Option<Fence>,
    /// Since when that one holds it or waits for it, by the store's clock.
    pub acquired_at: Timestamp,
    /// When this request may be let in unless leases are extended, by the store's clock: what is in
    /// its way ends then.
    pub expires_at: Timestamp,
    /// The time of this answer, by the store's clock.
    pub now: Timestamp,
    /// How that one holds it or wants it.
    pub mode: Mode,
    /// How many hold it. Zero if it is free, and kept for those who wait.
    pub holders: u32,
    /// How many are before us in the line, if we have a place there.
    pub place: Option<u32>,
}

impl Grant {
    /// A grant as a store makes it.
    pub fn new(lock_id: LockId, fence: Fence, acquired_at: Timestamp, expires_at: Timestamp) -> Self {
        Self { lock_id, fence, acquired_at, expires_at, slot: None }
    }

    /// The number of the permit.
    #[must_use]
    pub fn with_slot(mut self, slot: Option<u16>) -> Self {
        self.slot = slot;
        self
    }
}

impl Contention {
    /// The answer of a store at the time `now`: one holder has the lock for itself.
    pub fn new(holder: Option<Holder>, acquired_at: Timestamp, expires_at: Timestamp, now: Timestamp) -> Self {
        let (mode, holders) = (Mode::Exclusive, 1);
        Self { holder, fence: None, acquired_at, expires_at, now, mode, holders, place: None }
    }

    /// How the holder has it.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// How many hold it.
    #[must_use]
    pub fn with_holders(mut self, holders: u32) -> Self {
        self.holders = holders;
        self
    }

    /// How many are before us in the line.
    #[must_use]
    pub fn with_place(mut self, place: Option<u32>) -> Self {
        self.place = place;
        self
    }

    /// The number of the holder's grant.
    #[must_use]
    pub fn with_fence(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence;
        self
    }

    /// For how long the lock has been held.
    pub fn held_for(&self) -> Duration {
        self.now.since(self.acquired_at)
    }

    /// How long until the lock is free at the latest, unless its holder extends it: the rest of the
    /// lease and the tolerance.
    pub fn free_in(&self) -> Duration {
        (self.expires_at + TIME_TOLERANCE).since(self.now)
    }
}

impl fmt::Display for Contention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole_millis = |time: Duration| Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let name = self.holder.as_ref().map_or("somebody who left no name", Holder::as_str);
        if self.holders == 0 {
            return write!(f, "free, but kept for {name}, who is first in line");
        }
        write!(f, "held by {name}")?;
        if self.holders > 1 {
            write!(f, " and {} more", self.holders - 1)?;
        }
        write!(
            f,
            " for {:?}, free in {:?} unless extended",
            whole_millis(self.held_for()),
            whole_millis(self.free_in())
        )
    }
}

/// The answer to a release. At most one release of a lock is answered with `Released`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// The lock was ours and is free now.
    Released,
    /// The lock was not ours any more; nothing was changed.
    Absent(Absence),
}

/// The answer to an extend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Extend {
    /// The lock is still ours.
    Extended {
        /// When it ends now, by the store's clock.
        expires_at: Timestamp,
    },
    /// The lock was not ours any more; nothing was changed.
    Absent(Absence),
}

/// Why a lock is not there. A store that cannot tell cheaply says `NotFound`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Absence {
    /// Its record is there, but its time is over.
    Expired,
    /// There is no such record, or it belongs to another lock by now.
    NotFound,
}

/// A live lock as the store has it, with its raw key and lock id; `Debug` hides both.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Record {
    /// What is locked.
    pub key: Key,
    /// The id of the lock. Whoever has it can end the lock.
    pub lock_id: LockId,
    /// The number of the grant.
    pub fence: Fence,
    /// Since when it is held, by the store's clock.
    pub acquired_at: Timestamp,
    /// When it ends unless extended, by the store's clock.
    pub expires_at: Timestamp,
    /// Who holds it, if a name was left.
    pub holder: Option<Holder>,
    /// Notes stored with the lock.
    pub metadata: Metadata,
    /// How it is held, as it was asked for.
    pub mode: Mode,
    /// The number of the permit, if it is one.
    pub slot: Option<u16>,
}

impl Record {
    /// The record of a grant, without a holder's name and without notes.
    pub fn new(key: Key, grant: &Grant) -> Self {
        Self {
            key,
            lock_id: grant.lock_id,
            fence: grant.fence,
            acquired_at: grant.acquired_at,
            expires_at: grant.expires_at,
            holder: None,
            metadata: Metadata::default(),
            mode: Mode::Exclusive,
            slot: grant.slot,
        }
    }

    /// How it is held.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Who holds it, if a name was left.
    #[must_use]
    pub fn with_holder(mut self, holder: Option<Holder>) -> Self {
        self.holder = holder;
        self
    }

    /// Notes stored with the lock.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// The answer to somebody else who wants this lock at `now`, if nobody else has it too.
    pub fn contention(&self, now: Timestamp) -> Contention {
        Contention::new(self.holder.clone(), self.acquired_at, self.expires_at, now)
            .with_fence(Some(self.fence))
            .with_mode(self.mode)
    }

    /// The grant this record stands for.
    pub fn grant(&self) -> Grant {
        Grant::new(self.lock_id, self.fence, self.acquired_at, self.expires_at).with_slot(self.slot)
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("key", &self.key)
            .field("lock_id", &self.lock_id)
            .field("fence", &self.fence)
            .field("acquired_at", &self.acquired_at)
            .field("expires_at", &self.expires_at)
            .field("holder", &self.holder)
            .field("metadata", &self.metadata)
            .field("mode", &self.mode)
            .field("slot", &self.slot)
            .finish()
    }
}

/// Somebody who stands in line for a key; `Debug` hides the lock id.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Waiter {
    /// What is waited for.
    pub key: Key,
    /// The id that the lock will have. Whoever has it can give up the place.
    pub lock_id: LockId,
    /// How it is wanted.
    pub mode: Mode,
    /// Who waits, if a name was left.
    pub holder: Option<Holder>,
    /// Notes stored with the place.
    pub metadata: Metadata,
    /// Since when, by the store's clock.
    pub since: Timestamp,
    /// When the place is given up unless its owner asks again, by the store's clock.
    pub until: Timestamp,
}

impl Waiter {
    /// A place in line, without a name and without notes.
    pub fn new(key: Key, lock_id: LockId, mode: Mode, since: Timestamp, until: Timestamp) -> Self {
        Self { key, lock_id, mode, holder: None, metadata: Metadata::default(), since, until }
    }

    /// Who waits, if a name was left.
    #[must_use]
    pub fn with_holder(mut self, holder: Option<Holder>) -> Self {
        self.holder = holder;
        self
    }

    /// Notes stored with the place.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter")
            .field("key", &self.key)
            .field("lock_id", &self.lock_id)
            .field("mode", &self.mode)
            .field("holder", &self.holder)
            .field("since", &self.since)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

/// All that a store knows of a key.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Inspected {
    /// Who holds it, the oldest grant first.
    pub holders: Vec<Record>,
    /// Who stands in line for it, the first in line first. A store may leave out those behind the
    /// first thousand.
    pub waiters: Vec<Waiter>,
}

impl Inspected {
    /// Who holds it, and who waits.
    pub fn new(holders: Vec<Record>, waiters: Vec<Waiter>) -> Self {
        Self { holders, waiters }
    }
}

/// One page of a listing.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ListPage {
    /// The locks on this page. A key that several hold is there once for each.
    pub records: Vec<Record>,
    /// How many stand in line for a key of this page, if anybody does.
    pub waiting: HashMap<Key, u32>,
    /// Where the next page starts, if there is one: for
    /// [`ListRequest::with_cursor`](super::ListRequest::with_cursor).
    pub next: Option<String>,
}

impl ListPage {
    /// A page, and where the next one starts if there is one.
    pub fn new(records: Vec<Record>, next: Option<String>) -> Self {
        Self { records, waiting: HashMap::new(), next }
    }

    /// How many stand in line for which key.
    #[must_use]
    pub fn with_waiting(mut self, waiting: HashMap<Key, u32>) -> Self {
        self.waiting = waiting;
        self
    }
}
