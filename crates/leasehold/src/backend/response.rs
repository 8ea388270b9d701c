use std::fmt;
use std::time::Duration;

use serde::Serialize;

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
}

/// Who has the lock instead of us.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Contention {
    /// Who holds it. Other programs that use the same store may leave no name.
    pub holder: Option<Holder>,
    /// The number of the holder's grant, unless another program left something else there.
    pub fence: Option<Fence>,
    /// Since when it is held, by the store's clock.
    pub acquired_at: Timestamp,
    /// When it ends unless extended, by the store's clock.
    pub expires_at: Timestamp,
    /// The time of this answer, by the store's clock.
    pub now: Timestamp,
}

impl Grant {
    /// A grant as a store makes it.
    pub fn new(lock_id: LockId, fence: Fence, acquired_at: Timestamp, expires_at: Timestamp) -> Self {
        Self { lock_id, fence, acquired_at, expires_at }
    }
}

impl Contention {
    /// The answer of a store at the time `now`.
    pub fn new(holder: Option<Holder>, acquired_at: Timestamp, expires_at: Timestamp, now: Timestamp) -> Self {
        Self { holder, fence: None, acquired_at, expires_at, now }
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
        match &self.holder {
            Some(holder) => write!(f, "held by {holder}")?,
            None => f.write_str("held by somebody who left no name")?,
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

/// The answer to a forced release.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ForceRelease {
    /// This lock was ended.
    Released(Record),
    /// Nobody held the lock.
    Absent,
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
        }
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

    /// The answer to somebody else who wants this lock at `now`.
    pub fn contention(&self, now: Timestamp) -> Contention {
        Contention::new(self.holder.clone(), self.acquired_at, self.expires_at, now).with_fence(Some(self.fence))
    }

    /// The grant this record stands for.
    pub fn grant(&self) -> Grant {
        Grant { lock_id: self.lock_id, fence: self.fence, acquired_at: self.acquired_at, expires_at: self.expires_at }
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
            .finish()
    }
}

/// One page of a listing.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ListPage {
    /// The locks on this page.
    pub records: Vec<Record>,
    /// Where the next page starts, if there is one: for
    /// [`ListRequest::with_cursor`](super::ListRequest::with_cursor).
    pub next: Option<String>,
}

impl ListPage {
    /// A page, and where the next one starts if there is one.
    pub fn new(records: Vec<Record>, next: Option<String>) -> Self {
        Self { records, next }
    }
}

/// What a store can and cannot do.
///
/// ```
/// use leasehold::backend::{Capabilities, TimeAuthority};
///
/// let found = Capabilities::new(TimeAuthority::Store).with_wake_ups(true);
/// assert!(found.wake_ups && !found.clock_floored_fences);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Whose clock decides.
    pub time_authority: TimeAuthority,
    /// Whether subscriptions yield events. Without, waiting polls.
    pub wake_ups: bool,
    /// Whether fences are floored by the clock, so that they never repeat even if the store loses
    /// writes.
    pub clock_floored_fences: bool,
    /// The longest that the store lets one call take before it answers with an error.
    /// [`Locks`](crate::Locks) gives up on a store that does not keep to this.
    pub call_timeout: Duration,
}

impl Capabilities {
    /// How long a call may take unless somebody says otherwise: every store's default.
    pub const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_secs(5);

    /// A store that cannot push events and whose fences know no clock.
    pub const fn new(time_authority: TimeAuthority) -> Self {
        Self { time_authority, wake_ups: false, clock_floored_fences: false, call_timeout: Self::DEFAULT_CALL_TIMEOUT }
    }

    /// Whether subscriptions yield events.
    #[must_use]
    pub const fn with_wake_ups(mut self, yes: bool) -> Self {
        self.wake_ups = yes;
        self
    }

    /// Whether fences are floored by the clock.
    #[must_use]
    pub const fn with_clock_floored_fences(mut self, yes: bool) -> Self {
        self.clock_floored_fences = yes;
        self
    }

    /// The longest that the store lets one call take.
    #[must_use]
    pub const fn with_call_timeout(mut self, time: Duration) -> Self {
        self.call_timeout = time;
        self
    }
}

/// Whose clock decides when a lock expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeAuthority {
    /// The store's own.
    Store,
    /// Each client's; clocks must be kept in step.
    Client,
}
