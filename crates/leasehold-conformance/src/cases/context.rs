use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::backend::{Acquire, AcquireRequest, Backend, Event, Extend, LookupBy, Record, Release, Subscription};
use leasehold::testing::{FaultLayer, Faults};
use leasehold::{Contention, Fence, Grant, Holder, Key, LockId, Locks, Loss, TIME_TOLERANCE, Timestamp, Ttl};

use crate::Harness;

/// A ttl, in milliseconds, that never runs out during a case.
pub(super) const LONG: u64 = 60_000;
/// A ttl, in milliseconds, that is waited for.
pub(super) const SHORT: u64 = 300;
/// How long an event may take: it is a hint, so nobody is promised more than that it usually comes.
pub(super) const EVENT_TIMEOUT: Duration = Duration::from_secs(5);
/// On top of the time after which a lock is free, for clocks that are read at slightly different
/// moments.
const MARGIN: Duration = Duration::from_millis(300);

/// What a case works with: the store through two handles, and the words in which cases are written.
pub(super) struct Context {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) peer: Arc<dyn Backend>,
    harness: Arc<dyn Harness>,
    /// What its keys start with, after the namespace.
    prefix: String,
}

impl Context {
    pub(super) fn new(harness: Arc<dyn Harness>) -> Self {
        Self { backend: harness.backend(), peer: harness.peer(), harness, prefix: String::new() }
    }

    /// The same store with other keys, for another attempt.
    pub(super) fn attempt(&self, number: u32) -> Self {
        let (backend, peer, harness) = (self.backend.clone(), self.peer.clone(), self.harness.clone());
        Self { backend, peer, harness, prefix: format!("{number}:") }
    }

    pub(super) fn key(&self, name: &str) -> Key {
        self.harness.key(&format!("{}{name}", self.prefix))
    }

    pub(super) fn namespace(&self) -> &str {
        self.harness.namespace()
    }

    pub(super) async fn pass(&self, millis: u64) {
        self.harness.pass(Duration::from_millis(millis)).await;
    }

    /// Lets so much time pass that a lock granted or extended for `ttl` before is free.
    pub(super) async fn until_free(&self, ttl: u64) {
        self.harness.pass(Duration::from_millis(ttl) + TIME_TOLERANCE + MARGIN).await;
    }

    /// Lets so much time pass that a place in line with a lease of `lease` is gone.
    pub(super) async fn until_place_ends(&self, lease: u64) {
        self.harness.pass(Duration::from_millis(lease) + MARGIN).await;
    }

    /// A handle on the store, with a script of faults in between that also counts its calls.
    pub(super) fn locks(&self) -> (Locks, Faults) {
        let (store, faults) = FaultLayer::new(self.backend.clone());
        (self.harness.locks(Arc::new(store)).build(), faults)
    }

    /// Waits until `condition` holds.
    pub(super) async fn eventually(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let give_up = Instant::now() + EVENT_TIMEOUT;
        while !condition() {
            assert!(Instant::now() < give_up, "not within five seconds: {what}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until nobody holds `key`.
    pub(super) async fn until_unlocked(&self, key: &Key) {
        let give_up = Instant::now() + EVENT_TIMEOUT;
        while self.is_locked(key).await {
            assert!(Instant::now() < give_up, "still locked after five seconds");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// The earliest time the store's clock may show.
    pub(super) fn earliest(&self) -> Timestamp {
        let slack = u64::try_from(self.harness.clock_slack().as_micros()).expect("the slack is short");
        Timestamp::from_micros(self.harness.now().as_micros() - slack)
    }

    /// The latest time the store's clock may show.
    pub(super) fn latest(&self) -> Timestamp {
        self.harness.now() + self.harness.clock_slack()
    }

    /// Takes `key` under a new lock id.
    pub(super) async fn take(&self, key: &Key, millis: u64) -> Grant {
        granted(&self.backend, &request(key, millis)).await
    }

    pub(super) async fn record(&self, key: &Key) -> Option<Record> {
        self.backend.lookup(LookupBy::Key(key)).await.expect("lookup by key answers")
    }

    pub(super) async fn record_of(&self, id: &LockId) -> Option<Record> {
        self.backend.lookup(LookupBy::Id(id)).await.expect("lookup by id answers")
    }

    pub(super) async fn is_locked(&self, key: &Key) -> bool {
        self.backend.is_locked(key).await.expect("is_locked answers")
    }
}

pub(super) fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).expect("a valid ttl")
}

pub(super) fn new_id() -> LockId {
    LockId::random().expect("random bytes")
}

pub(super) fn holder(name: &str) -> Holder {
    Holder::new(name).expect("a valid holder")
}

/// A request for `key` under a new lock id.
pub(super) fn request(key: &Key, millis: u64) -> AcquireRequest {
    AcquireRequest::new(key.clone(), new_id(), ttl(millis))
}

pub(super) async fn acquire(store: &Arc<dyn Backend>, request: &AcquireRequest) -> Acquire {
    store.acquire(request).await.expect("acquire answers")
}

/// An acquire that must be granted.
pub(super) async fn granted(store: &Arc<dyn Backend>, request: &AcquireRequest) -> Grant {
    match acquire(store, request).await {
        Acquire::Granted(grant) => {
            assert_eq!(grant.lock_id, request.lock_id, "the grant carries the lock id of its request");
            grant
        }
        other => panic!("the lock should be free, but is {other:?}"),
    }
}

/// An acquire that must be refused.
pub(super) async fn refused(store: &Arc<dyn Backend>, request: &AcquireRequest) -> Contention {
    match acquire(store, request).await {
        Acquire::Held(contention) => contention,
        other => panic!("the lock is held, but was given away: {other:?}"),
    }
}

pub(super) async fn release(store: &Arc<dyn Backend>, id: &LockId) -> Release {
    store.release(id).await.expect("release answers")
}

/// A release that must succeed.
pub(super) async fn released(store: &Arc<dyn Backend>, id: &LockId) {
    assert_eq!(release(store, id).await, Release::Released, "the lock is held, so it is released");
}

/// A release that must find nothing to release.
pub(super) async fn not_released(store: &Arc<dyn Backend>, id: &LockId) {
    let answer = release(store, id).await;
    assert!(matches!(answer, Release::Absent(_)), "nothing to release, but the answer is {answer:?}");
}

/// An extend that must succeed; the new expiry.
pub(super) async fn extended(store: &Arc<dyn Backend>, id: &LockId, millis: u64) -> Timestamp {
    match store.extend(id, ttl(millis)).await.expect("extend answers") {
        Extend::Extended { expires_at } => expires_at,
        other => panic!("the lock is held, but extend found it {other:?}"),
    }
}

/// An extend that must find nothing to extend.
pub(super) async fn not_extended(store: &Arc<dyn Backend>, id: &LockId, millis: u64) {
    let answer = store.extend(id, ttl(millis)).await.expect("extend answers");
    assert!(matches!(answer, Extend::Absent(_)), "nothing to extend, but the answer is {answer:?}");
}

/// The next event, which must come.
pub(super) async fn event(subscription: &mut Subscription) -> Event {
    tokio::time::timeout(EVENT_TIMEOUT, subscription.next())
        .await
        .expect("an event comes within five seconds")
        .expect("the subscription is not closed")
}

/// Whether nothing happens for a moment. That something may have been missed is nothing.
pub(super) async fn silent(subscription: &mut Subscription) -> bool {
    let moment = tokio::time::timeout(Duration::from_millis(200), async {
        while let Some(Event::Missed) = subscription.next().await {}
    });
    moment.await.is_err()
}

/// Waits until `subscription` says that the lock of a key with this fence is dead, and how that
/// came about.
pub(super) async fn loss_of(subscription: &mut Subscription, lock: (&Key, Fence)) -> Loss {
    let loss = async {
        loop {
            match subscription.next().await {
                // Other cases may use the same server, and this topic is about every key.
                Some(Event::Taken { key, fence, how }) if (&key, fence) == lock => return how,
                Some(_) => {}
                None => panic!("the subscription was closed"),
            }
        }
    };
    tokio::time::timeout(EVENT_TIMEOUT, loss).await.expect("the holder is told within five seconds")
}
