//! The contract between the lock and a store.

mod capabilities;
mod forward;
mod many;
mod mode;
mod pace;
mod request;
mod response;
mod subscription;

use std::fmt;

use async_trait::async_trait;

pub(crate) use many::all;
pub use many::{MOST_AT_ONCE, MOST_KEYS};

pub use capabilities::{Capabilities, TimeAuthority};
pub use mode::{Line, Mode};
pub use request::{AcquireRequest, ListRequest, LookupBy, Steal, Topic};
pub use response::{
    Absence, Acquire, AcquireAll, Contention, Extend, Grant, Inspected, ListPage, Record, Release, Waiter,
};
pub use subscription::{Event, Publisher, Subscription};

pub use crate::storage_key::StorageKeys;
use crate::{Error, Fence, Key, LockId, Operation, Timestamp, Ttl};

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
    /// Takes the lock if nobody is in the way of the request, or if it may [steal](Steal) it.
    ///
    /// - A live grant with the same lock id: the same grant again, unchanged.
    /// - A lock id that holds, or waits for, the lock of another key:
    ///   [`InvalidArgument`](crate::ErrorCode::InvalidArgument).
    /// - Live grants of others that its [mode](Mode) does not go with, or too many that it goes
    ///   with, and that may not be stolen; or somebody who stands before it in the line, unless it
    ///   ignores that: [`Acquire::Held`]. With [`Line::Join`] it has a place then, and the lease of
    ///   its place begins anew.
    /// - Otherwise: a new grant with a [fence](crate::Fence::next) higher than any granted before
    ///   for this key, and an expiry of the store's time plus the ttl. Its place in line is gone. A
    ///   stolen lock's id is dead from then on, and [`Event::Taken`] tells its holder. Of those
    ///   that may be stolen, the oldest are, and no more than must.
    ///
    /// An id whose lock was released may be granted anew, so a request that arrives after it was
    /// given up for lost and released leaves a lock until its ttl has passed.
    /// [`Locks`](crate::Locks) releases such an id more than once.
    ///
    /// # The line
    ///
    /// After each acquire, release and forced release, if the first in line could be let in now and
    /// has not been called since it asked last, it is called: its lease is cut to
    /// [`Line::CALL_LEASE`], and [`Topic::Turn`] tells it. Nobody else is told. While nobody holds
    /// the lock and the first in line has been called, a request that ignores the line is refused,
    /// too.
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error>;

    /// Takes all the locks or none, in one atomic step, and gives all the same fence, which is
    /// higher than any granted before for each of the keys.
    ///
    /// The requests are for different keys, have different lock ids, and neither join a line nor
    /// steal; there are at most [`MOST_KEYS`]. If all the ids hold their locks: the same grants
    /// again. If only some do, those locks are in nobody's way, and end if the rest is granted. If
    /// it is refused, nothing is changed, except that the first in line for the key that is in the
    /// way is called if it could be let in now.
    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        let _ = requests;
        Err(Error::invalid("this store cannot take several locks at once").during(Operation::Acquire))
    }

    /// Gives the lock back if `id` still holds it, and wakes those who wait for its key. Or gives
    /// up the place of `id` in a line, which is no lock: the answer is [`Absence::NotFound`].
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

    /// The live grant of a key or lock id, the oldest one if a key has several. Never writes.
    async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error>;

    /// All live grants of a key, and all who stand in line for it. Never writes.
    async fn inspect(&self, key: &Key) -> Result<Inspected, Error> {
        let holders = self.lookup(LookupBy::Key(key)).await?.into_iter().collect();
        Ok(Inspected::new(holders, Vec::new()))
    }

    /// One page of the live grants whose key starts with a prefix, in no particular order.
    /// Following the pages to the end shows every lock that was held all the while. Never writes.
    async fn list(&self, request: &ListRequest) -> Result<ListPage, Error>;

    /// Events of a [`Topic`] from the moment this call returns. A store that cannot push returns a
    /// subscription that never yields and says so in its [`Capabilities`]. Events are hints: they
    /// may be lost or come twice.
    async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error>;

    /// Ends the grants of `key`, whoever holds them, or only the one with the fence `only`; wakes
    /// those who wait and tells the holders. The answer has the grants that were ended.
    async fn force_release(&self, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error>;

    /// The time by which this store decides, so that people can be told how long a lock has been
    /// held. By default the one of this host. Never writes.
    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(Timestamp::now())
    }

    /// What this store can and cannot do.
    fn capabilities(&self) -> Capabilities;
}
