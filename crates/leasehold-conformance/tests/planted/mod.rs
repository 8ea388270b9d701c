//! A store that forwards to another one, with a bug in between.

mod bugs;
mod handles;
mod honest;
mod kinds;
mod line;

use std::sync::Arc;

use async_trait::async_trait;
use leasehold::backend::{
    Acquire, AcquireAll, AcquireRequest, Backend, Capabilities, Extend, Inspected, ListPage, LookupBy, Record, Release,
    Subscription, Topic,
};
use leasehold::{Error, Fence, Key, ListRequest, LockId, Ttl};

pub(crate) use bugs::{BUGS, Make};
pub(crate) use handles::{BROKEN_HANDLES, BrokenHandles, HandleBug};
pub(crate) use honest::{CannotPush, NoLines, Plain, Slow};
pub(crate) use kinds::KIND_BUGS;

type Store = Arc<dyn Backend>;

/// One broken rule: the operations that it spoils. What it does not mention works as ever.
#[async_trait]
pub(crate) trait Bug: std::fmt::Debug + Send + Sync + 'static {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        store.acquire(request).await
    }

    async fn acquire_all(&self, store: &Store, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        store.acquire_all(requests).await
    }

    async fn release(&self, store: &Store, id: &LockId) -> Result<Release, Error> {
        store.release(id).await
    }

    async fn extend(&self, store: &Store, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        store.extend(id, ttl).await
    }

    async fn is_locked(&self, store: &Store, key: &Key) -> Result<bool, Error> {
        store.is_locked(key).await
    }

    async fn lookup(&self, store: &Store, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        store.lookup(by).await
    }

    async fn subscribe(&self, store: &Store, topic: Topic<'_>) -> Result<Subscription, Error> {
        store.subscribe(topic).await
    }

    async fn force_release(&self, store: &Store, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error> {
        store.force_release(key, only).await
    }

    fn capabilities(&self, store: &Store) -> Capabilities {
        store.capabilities()
    }
}

#[derive(Debug)]
pub(crate) struct Planted {
    store: Store,
    bug: Arc<dyn Bug>,
}

impl Planted {
    pub(crate) fn new(store: Store, bug: Arc<dyn Bug>) -> Self {
        Self { store, bug }
    }
}

#[async_trait]
impl Backend for Planted {
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        self.bug.acquire(&self.store, request).await
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        self.bug.acquire_all(&self.store, requests).await
    }

    async fn release(&self, id: &LockId) -> Result<Release, Error> {
        self.bug.release(&self.store, id).await
    }

    async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        self.bug.extend(&self.store, id, ttl).await
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        self.bug.is_locked(&self.store, key).await
    }

    async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        self.bug.lookup(&self.store, by).await
    }

    async fn inspect(&self, key: &Key) -> Result<Inspected, Error> {
        self.store.inspect(key).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
        self.store.list(request).await
    }

    async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error> {
        self.bug.subscribe(&self.store, topic).await
    }

    async fn force_release(&self, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error> {
        self.bug.force_release(&self.store, key, only).await
    }

    fn capabilities(&self) -> Capabilities {
        self.bug.capabilities(&self.store)
    }
}
