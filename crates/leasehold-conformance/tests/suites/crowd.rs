//! A store in whose handle others ask at the same time.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use async_trait::async_trait;
use leasehold::backend::{
    Acquire, AcquireAll, AcquireRequest, Backend, Capabilities, Extend, Inspected, ListPage, ListRequest, LookupBy,
    Record, Release, Subscription, Topic,
};
use leasehold::{Error, Fence, Key, LockId, Timestamp, Ttl};

/// Sends every acquire and every release while others of the same handle are on their way, so that
/// a store which sends together what comes together does so with all of them: the first four of six
/// are on their way when the last two come.
#[derive(Debug)]
pub(crate) struct Crowd<B> {
    store: B,
    keys: Vec<Key>,
}

/// How many others there are.
const OTHERS: usize = 5;

impl<B: Backend> Crowd<B> {
    pub(crate) fn new(store: B) -> Result<Self, Error> {
        let own = LockId::random()?.hash_id();
        let keys = (0..OTHERS).map(|number| Key::new(&format!("crowd-{own}:{number}"))).collect::<Result<_, _>>()?;
        Ok(Self { store, keys })
    }

    /// Releases with others on their way.
    async fn release_last(&self, others: &[LockId], last: &LockId) -> Result<Release, Error> {
        let calls = others.iter().chain([last]).map(|id| self.store.release(id));
        last_of(calls.collect()).await
    }
}

/// Carries out all calls side by side, and gives the answer to the last one.
async fn last_of<T>(mut calls: Vec<Pin<Box<dyn Future<Output = T> + Send + '_>>>) -> T {
    let mut answers: Vec<Option<T>> = calls.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (call, answer) in calls.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(value) = call.as_mut().poll(cx)
            {
                *answer = Some(value);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.pop().flatten().expect("there is a last call, and it was answered")
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Backend for Crowd<B> {
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        let other = |key: &Key| Ok::<_, Error>(AcquireRequest::new(key.clone(), LockId::random()?, Ttl::default()));
        let others = self.keys.iter().map(other).collect::<Result<Vec<_>, _>>()?;
        let calls = others.iter().chain([request]).map(|request| self.store.acquire(request));
        let answer = last_of(calls.collect()).await;
        let ids: Vec<_> = others.iter().map(|other| other.lock_id).collect();
        self.release_last(&ids, &LockId::random()?).await?;
        answer
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        self.store.acquire_all(requests).await
    }

    async fn release(&self, id: &LockId) -> Result<Release, Error> {
        let others = (0..OTHERS).map(|_| LockId::random()).collect::<Result<Vec<_>, _>>()?;
        self.release_last(&others, id).await
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
