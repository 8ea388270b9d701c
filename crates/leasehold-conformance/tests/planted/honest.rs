//! Stores that are unusual, but keep every promise.

use async_trait::async_trait;
use leasehold::backend::{
    Acquire, AcquireAll, AcquireRequest, Capabilities, Extend, LookupBy, Record, Release, Subscription, Topic,
};
use leasehold::{Error, ErrorCode, Key, LockId, Ttl};
use tokio::task::yield_now;

use super::{Bug, Store};

#[derive(Debug)]
pub(crate) struct Plain;

impl Bug for Plain {}

/// Takes several polls for each answer, as a network does, so that futures can be dropped before
/// and after the write.
#[derive(Debug)]
pub(crate) struct Slow;

#[async_trait]
impl Bug for Slow {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        yield_now().await;
        let answer = store.acquire(request).await;
        yield_now().await;
        answer
    }

    async fn release(&self, store: &Store, id: &LockId) -> Result<Release, Error> {
        yield_now().await;
        let answer = store.release(id).await;
        yield_now().await;
        answer
    }

    async fn extend(&self, store: &Store, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        yield_now().await;
        let answer = store.extend(id, ttl).await;
        yield_now().await;
        answer
    }

    async fn is_locked(&self, store: &Store, key: &Key) -> Result<bool, Error> {
        yield_now().await;
        let answer = store.is_locked(key).await;
        yield_now().await;
        answer
    }

    async fn lookup(&self, store: &Store, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        yield_now().await;
        let answer = store.lookup(by).await;
        yield_now().await;
        answer
    }
}

/// Cannot push, and says so.
#[derive(Debug)]
pub(crate) struct CannotPush;

#[async_trait]
impl Bug for CannotPush {
    async fn subscribe(&self, _: &Store, _: Topic<'_>) -> Result<Subscription, Error> {
        Ok(Subscription::silent())
    }

    fn capabilities(&self, store: &Store) -> Capabilities {
        store.capabilities().with_wake_ups(false)
    }
}

/// Has neither lines nor modes nor several locks at once, and says so.
#[derive(Debug)]
pub(crate) struct NoLines;

fn cannot() -> Error {
    Error::new(ErrorCode::InvalidArgument, "this store has exclusive locks only")
}

#[async_trait]
impl Bug for NoLines {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        if request.is_plain() { store.acquire(request).await } else { Err(cannot()) }
    }

    async fn acquire_all(&self, _: &Store, _: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        Err(cannot())
    }

    fn capabilities(&self, store: &Store) -> Capabilities {
        store.capabilities().with_lines(false)
    }
}
