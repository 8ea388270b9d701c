//! The store inside this process.

mod driver;
mod entry;
mod readers;
mod store;
mod sweep;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::backend::{
    Acquire, AcquireAll, AcquireRequest, Backend, Capabilities, Extend, Inspected, ListPage, ListRequest, LookupBy,
    Record, Release, Subscription, TimeAuthority, Topic,
};
use crate::clock::Clock;
use crate::testing::ManualClock;
use crate::{Error, Fence, Key, LockId, Timestamp, Ttl};
pub(crate) use driver::Driver;
use store::Store;

/// Locks within one process: for tests, and for programs that run once.
///
/// The semantics are those of every other store: leases, fences, stealing, wake-ups. Clones share
/// the same locks. Keys are spread over shards with a lock of their own, so that operations on
/// different keys rarely meet. Nothing is kept of a released lock.
///
/// ```
/// use leasehold::memory::Memory;
/// use leasehold::Locks;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let store = Memory::new();
/// let web = Locks::new(store.clone());
/// let cron = Locks::new(store);
///
/// let guard = web.lock("report").acquire().await?;
/// assert!(cron.lock("report").try_acquire().await?.is_none());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Memory {
    store: Arc<Store>,
}

impl Memory {
    /// An empty store on the system's monotonic clock.
    pub fn new() -> Self {
        Self::on(Clock::system())
    }

    /// An empty store whose time is moved by a test.
    pub fn with_clock(clock: &ManualClock) -> Self {
        Self::on(Clock::Manual(clock.clone()))
    }

    fn on(clock: Clock) -> Self {
        let store = Store::new(clock);
        sweep::register(&store);
        Self { store }
    }

    /// Forgets records that have been dead for a while, and tells how many. A background thread
    /// does the same every few seconds, so only tests need this.
    pub fn sweep(&self) -> usize {
        self.store.sweep()
    }

    /// The number of records kept, live ones and dead ones that were not swept yet.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether nothing is kept at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("records", &self.len()).finish()
    }
}

#[async_trait]
impl Backend for Memory {
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        self.store.acquire(request)
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        self.store.acquire_all(requests)
    }

    async fn release(&self, id: &LockId) -> Result<Release, Error> {
        Ok(self.store.release(id))
    }

    async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        Ok(self.store.extend(id, ttl))
    }

    async fn extend_many(&self, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
        locks.iter().map(|(id, ttl)| Ok(self.store.extend(id, *ttl))).collect()
    }

    async fn release_many(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        ids.iter().map(|id| Ok(self.store.release(id))).collect()
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        Ok(self.store.is_locked(key))
    }

    async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        Ok(self.store.lookup(by))
    }

    async fn inspect(&self, key: &Key) -> Result<Inspected, Error> {
        Ok(self.store.inspect(key))
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
        Ok(self.store.list(request))
    }

    async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error> {
        Ok(self.store.subscribe(topic))
    }

    async fn force_release(&self, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error> {
        Ok(self.store.force_release(key, only))
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.store.now())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(TimeAuthority::Store).with_wake_ups(true).with_clock_floored_fences(true).with_lines(true)
    }
}
