//! A store in whose handle others ask at the same time.

use async_trait::async_trait;
use leasehold::backend::{
    Acquire, AcquireAll, AcquireRequest, Backend, Capabilities, Extend, Inspected, ListPage, ListRequest, LookupBy,
    Record, Release, Subscription, Topic,
};
use leasehold::{Error, Fence, Key, LockId, Timestamp, Ttl};

/// Sends every acquire and every release while others of the same handle are on their way, so that
/// a store which sends together what comes together does so with all of them: the first two of four
/// are on their way when the last comes.
#[derive(Debug)]
pub(crate) struct Crowd<B> {
    store: B,
    keys: [Key; 3],
}

impl<B: Backend> Crowd<B> {
    pub(crate) fn new(store: B) -> Result<Self, Error> {
        let own = LockId::random()?.hash_id();
        let key = |number: u8| Key::new(&format!("crowd-{own}:{number}"));
        Ok(Self { store, keys: [key(0)?, key(1)?, key(2)?] })
    }

    fn others(&self) -> Result<[AcquireRequest; 3], Error> {
        let [a, b, c] = &self.keys;
        let request = |key: &Key| Ok::<_, Error>(AcquireRequest::new(key.clone(), LockId::random()?, Ttl::default()));
        Ok([request(a)?, request(b)?, request(c)?])
    }

    /// Releases with others on their way.
    async fn release_last(&self, ids: [&LockId; 3], last: &LockId) -> Result<Release, Error> {
        let store = &self.store;
        let (.., last) =
            tokio::join!(store.release(ids[0]), store.release(ids[1]), store.release(ids[2]), store.release(last));
        last
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Backend for Crowd<B> {
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        let ([a, b, c], store) = (self.others()?, &self.store);
        let (.., answer) =
            tokio::join!(store.acquire(&a), store.acquire(&b), store.acquire(&c), store.acquire(request));
        self.release_last([&a.lock_id, &b.lock_id, &c.lock_id], &LockId::random()?).await?;
        answer
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        self.store.acquire_all(requests).await
    }

    async fn release(&self, id: &LockId) -> Result<Release, Error> {
        let others = [LockId::random()?, LockId::random()?, LockId::random()?];
        self.release_last([&others[0], &others[1], &others[2]], id).await
    }

    async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        self.store.extend(id, ttl).await
    }

    async fn extend_many(&self, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
        self.store.extend_many(locks).await
    }

    async fn release_many(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        self.store.release_many(ids).await
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        self.store.is_locked(key).await
    }

    async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        self.store.lookup(by).await
    }

    async fn inspect(&self, key: &Key) -> Result<Inspected, Error> {
        self.store.inspect(key).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
        self.store.list(request).await
    }

    async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error> {
        self.store.subscribe(topic).await
    }

    async fn force_release(&self, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error> {
        self.store.force_release(key, only).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.store.now().await
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}
