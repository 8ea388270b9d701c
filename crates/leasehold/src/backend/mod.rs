//! The contract between the lock and a store.

mod forward;
mod many;
mod pace;
mod request;
mod response;
mod subscription;

use std::fmt;

use async_trait::async_trait;

pub use many::MOST_AT_ONCE;
pub(crate) use many::all;
pub use request::{AcquireRequest, ListRequest, LookupBy, Steal, Topic};
pub use response::{
    Absence, Acquire, Capabilities, Contention, Extend, ForceRelease, Grant, ListPage, Record, Release, TimeAuthority,
};
pub use subscription::{Event, Publisher, Subscription};

pub use crate::storage_key::StorageKeys;
use crate::{Error, Key, LockId, Timestamp, Ttl};

/// A store of locks: the least that a store must do so that [`Locks`](crate::Locks) can do the
/// rest.
///
/// Each call is one attempt: no waiting for the lock, no retrying, an answer or an error within the
/// store's own deadline. Acquire, release and extend are each one atomic step in the store. All
/// decisions about time use the store's clock and
/// [`Timestamp::is_live`](crate::Timestamp::is_live).
///
/// A store may be called from any tokio runtime, at any time, whatever the other runtimes that use
/// it are doing: one of them may stand still or be gone. So a connection, which only the runtime it
/// was made on can drive, belongs to that runtime. Heartbeats run on a runtime of their own.
///
/// Every future may be dropped at any point. If it is dropped after the request was sent, the write
/// may or may not happen, as after an error whose [`outcome_unknown`](Error::outcome_unknown) is
/// set.
///
/// The crate `leasehold-conformance` checks an implementation against all of this.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Takes the lock if nobody else holds it, or if the request may [steal](Steal) it.
    ///
    /// - A live record with the same lock id: the same grant again, unchanged.
    /// - A lock id that holds the lock of another key:
    ///   [`InvalidArgument`](crate::ErrorCode::InvalidArgument).
    /// - A live record of somebody else that may not be stolen: [`Acquire::Held`].
    /// - Otherwise: a new record with a [fence](crate::Fence::next) higher than any granted before
    ///   for this key, and an expiry of the store's time plus the ttl. A stolen lock's id is dead
    ///   from then on, and [`Event::Taken`] tells its holder.
    ///
    /// An id whose lock was released may be granted anew, so a request that arrives after it was
    /// given up for lost and released leaves a lock until its ttl has passed.
    /// [`Locks`](crate::Locks) releases such an id more than once.
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error>;

    /// Gives the lock back if `id` still holds it, and wakes those who wait for its key.
    async fn release(&self, id: &LockId) -> Result<Release, Error>;

    /// Sets the expiry to the store's time plus `ttl` if `id` still holds its lock. Never creates a
    /// lock.
    async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error>;

    /// Extends many locks: an answer for each, in the same order, as if each had been
    /// [extended](Backend::extend) by itself. It is not one atomic step, and what fails for one
    /// fails for no other. Nobody asks for more than [`MOST_AT_ONCE`], or for one id twice.
    ///
    /// A store that others reach over a network does this in one request: heartbeats depend on it.
    async fn extend_many(&self, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
        all(locks.iter().map(|(id, ttl)| self.extend(id, *ttl)).collect()).await
    }

    /// Releases many locks, as [`extend_many`](Backend::extend_many) extends them.
    async fn release_many(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        all(ids.iter().map(|id| self.release(id)).collect()).await
    }

    /// Whether somebody holds the lock. Never writes.
    async fn is_locked(&self, key: &Key) -> Result<bool, Error>;

    /// The live record of a key or lock id. Never writes.
    async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error>;

    /// One page of the live records whose key starts with a prefix, in no particular order.
    /// Following the pages to the end shows every lock that was held all the while. Never writes.
    async fn list(&self, request: &ListRequest) -> Result<ListPage, Error>;

    /// Events of a [`Topic`] from the moment this call returns. A store that cannot push returns a
    /// subscription that never yields and says so in its [`Capabilities`]. Events are hints: they
    /// may be lost or come twice.
    async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error>;

    /// Ends whatever lock is held on `key`, whoever holds it; wakes those who wait and tells the
    /// holder.
    async fn force_release(&self, key: &Key) -> Result<ForceRelease, Error>;

    /// The time by which this store decides, so that people can be told how long a lock has been
    /// held. By default the one of this host. Never writes.
    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(Timestamp::now())
    }

    /// What this store can and cannot do.
    fn capabilities(&self) -> Capabilities;
}
