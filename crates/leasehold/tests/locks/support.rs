//! What the tests share: a store whose time and faults they control.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::backend::{
    Acquire, AcquireAll, AcquireRequest, Backend, Capabilities, Extend, Inspected, ListPage, LookupBy, Record, Release,
    Subscription, Topic,
};
use leasehold::memory::Memory;
use leasehold::testing::{FaultLayer, Faults, ManualClock};
use leasehold::{Error, Fence, Guard, Key, ListRequest, LockId, Locks, LocksBuilder, Ttl};
use test_support::{eventually, key, soon};
use tokio::sync::watch;

pub(crate) const TTL: Duration = Duration::from_secs(30);

/// A store with a clock and faults, on which several handles can be opened, each standing for a
/// process.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) memory: Memory,
    pub(crate) store: FaultLayer,
    pub(crate) faults: Faults,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        let memory = Memory::with_clock(&clock);
        let (store, faults) = FaultLayer::new(memory.clone());
        Self { clock, memory, store, faults }
    }

    /// A handle whose calls go through the faults.
    pub(crate) fn locks(&self) -> Locks {
        self.builder().build()
    }

    pub(crate) fn builder(&self) -> LocksBuilder {
        Locks::builder(self.store.clone()).clock(&self.clock)
    }

    /// A handle of another process, which no fault hits.
    pub(crate) fn rival(&self) -> Locks {
        Locks::builder(self.memory.clone()).clock(&self.clock).build()
    }

    pub(crate) async fn is_locked(&self, name: &str) -> bool {
        self.rival().is_locked(&key(name)).await.unwrap()
    }

    /// Waits until the background has freed `name`.
    pub(crate) async fn freed(&self, name: &str) {
        let (rival, key) = (self.rival(), key(name));
        eventually("the lock is free", async || !rival.is_locked(&key).await.unwrap()).await;
    }
}

/// Polls `future` up to `times` times, letting others run in between, and drops it. Tells whether
/// it had finished.
pub(crate) async fn poll_then_drop<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
    let mut future = std::pin::pin!(future);
    for _ in 0..times {
        let ready = std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx))).await;
        if let std::task::Poll::Ready(value) = ready {
            return Some(value);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    None
}

/// A store that was restored from a backup: each fence is lower than the one before.
#[derive(Debug)]
pub(crate) struct FencesGoBack {
    pub(crate) store: Memory,
    pub(crate) next: AtomicU64,
}

#[async_trait]
impl Altered for FencesGoBack {
    fn store(&self) -> &Memory {
        &self.store
    }

    async fn altered_acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        Ok(match self.store.acquire(request).await? {
            Acquire::Granted(mut grant) => {
                grant.fence = Fence::new(self.next.fetch_sub(1, Ordering::SeqCst))?;
                Acquire::Granted(grant)
            }
            held => held,
        })
    }
}

/// A store whose first acquire lands only after a release, whether or not anybody still waits for
/// it. Clones are the same store.
#[derive(Clone, Debug)]
pub(crate) struct LandsLate {
    store: Memory,
    first: Arc<AtomicBool>,
    released: watch::Sender<bool>,
    landed: watch::Sender<bool>,
}

impl LandsLate {
    pub(crate) fn new(store: Memory) -> Self {
        let (released, landed) = (watch::Sender::new(false), watch::Sender::new(false));
        Self { store, first: Arc::new(true.into()), released, landed }
    }

    /// Waits until it has landed.
    pub(crate) async fn landed(&self) {
        soon("the late acquire", self.landed.subscribe().wait_for(|yes| *yes)).await.unwrap();
    }
}

#[async_trait]
impl Altered for LandsLate {
    fn store(&self) -> &Memory {
        &self.store
    }

    async fn altered_acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        if !self.first.swap(false, Ordering::SeqCst) {
            return self.store.acquire(request).await;
        }
        let (late, request) = (self.clone(), request.clone());
        let sent = tokio::spawn(async move {
            late.released.subscribe().wait_for(|yes| *yes).await.unwrap();
            let answer = late.store.acquire(&request).await;
            late.landed.send_replace(true);
            answer
        });
        sent.await.unwrap()
    }

    async fn altered_release(&self, id: &LockId) -> Result<Release, Error> {
        let answer = self.store.release(id).await;
        self.released.send_replace(true);
        answer
    }
}

/// Where calls wait until a test lets them go. Clones are the same gate.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    open: watch::Sender<bool>,
    reached: Arc<AtomicUsize>,
    passed: Arc<AtomicUsize>,
    /// All others go through.
    only: Arc<Mutex<Option<HashSet<LockId>>>>,
}

impl Gate {
    pub(crate) fn new(open: bool) -> Self {
        let (reached, passed, only) = <(Arc<_>, Arc<_>, Arc<_>)>::default();
        Self { open: watch::Sender::new(open), reached, passed, only }
    }

    /// Whether calls go through.
    pub(crate) fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }

    /// Stops calls for these locks, and no others.
    pub(crate) fn stop_only<'a>(&self, guards: impl IntoIterator<Item = &'a Guard>) {
        *self.only.lock().unwrap() = Some(guards.into_iter().map(|guard| *guard.lock_id()).collect());
    }

    /// How many calls came here.
    pub(crate) fn reached(&self) -> usize {
        self.reached.load(Ordering::SeqCst)
    }

    /// How many of them went through.
    pub(crate) fn passed(&self) -> usize {
        self.passed.load(Ordering::SeqCst)
    }

    async fn pass(&self, id: Option<&LockId>) {
        self.reached.fetch_add(1, Ordering::SeqCst);
        let stops = match (&*self.only.lock().unwrap(), id) {
            (Some(only), Some(id)) => only.contains(id),
            _ => true,
        };
        if stops {
            self.open.subscribe().wait_for(|open| *open).await.unwrap();
        }
        self.passed.fetch_add(1, Ordering::SeqCst);
    }
}

/// A store whose extends wait on their way, until a test lets them go. Clones are the same store.
#[derive(Clone, Debug)]
pub(crate) struct HoldsUpExtends {
    store: Memory,
    pub(crate) extends: Gate,
}

impl HoldsUpExtends {
    pub(crate) fn new(store: Memory) -> Self {
        Self { store, extends: Gate::new(false) }
    }
}

#[async_trait]
impl Altered for HoldsUpExtends {
    fn store(&self) -> &Memory {
        &self.store
    }

    async fn altered_extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        self.extends.pass(Some(id)).await;
        self.store.extend(id, ttl).await
    }
}

/// A store whose answers to extends and lookups can be held up. Clones are the same store.
#[derive(Clone, Debug)]
pub(crate) struct HoldsUpAnswers {
    store: Memory,
    pub(crate) extends: Gate,
    pub(crate) lookups: Gate,
}

impl HoldsUpAnswers {
    pub(crate) fn new(store: Memory) -> Self {
        Self { store, extends: Gate::new(true), lookups: Gate::new(true) }
    }
}

#[async_trait]
impl Altered for HoldsUpAnswers {
    fn store(&self) -> &Memory {
        &self.store
    }

    async fn altered_extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        let answer = self.store.extend(id, ttl).await;
        self.extends.pass(Some(id)).await;
        answer
    }

    async fn altered_lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        let answer = self.store.lookup(by).await;
        self.lookups.pass(None).await;
        answer
    }
}

/// A store whose driver answers for fewer releases than it is asked for, if it is asked for many.
#[derive(Clone, Debug)]
pub(crate) struct AnswersForSome(pub(crate) Memory);

#[async_trait]
impl Altered for AnswersForSome {
    fn store(&self) -> &Memory {
        &self.0
    }

    async fn altered_release_many(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        self.0.release_many(&ids[..ids.len().div_ceil(2)]).await
    }
}

/// A store whose driver panics when it has to extend or release one certain lock. Clones are the
/// same store.
#[derive(Clone, Debug)]
pub(crate) struct PanicsForOne {
    store: Memory,
    lock: Arc<Mutex<Option<LockId>>>,
}

impl PanicsForOne {
    pub(crate) fn new(store: Memory) -> Self {
        Self { store, lock: Arc::default() }
    }

    pub(crate) fn panic_for(&self, guard: &Guard) {
        *self.lock.lock().unwrap() = Some(*guard.lock_id());
    }

    fn check(&self, id: &LockId) {
        let broken = *self.lock.lock().unwrap() == Some(*id);
        assert!(!broken, "a bug in the driver");
    }
}

#[async_trait]
impl Altered for PanicsForOne {
    fn store(&self) -> &Memory {
        &self.store
    }

    async fn altered_extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        self.check(id);
        self.store.extend(id, ttl).await
    }

    async fn altered_release(&self, id: &LockId) -> Result<Release, Error> {
        self.check(id);
        self.store.release(id).await
    }
}

/// A memory store with another acquire, extend, lookup or release.
#[async_trait]
trait Altered: std::fmt::Debug + Send + Sync + 'static {
    fn store(&self) -> &Memory;

    async fn altered_acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        self.store().acquire(request).await
    }

    async fn altered_extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        self.store().extend(id, ttl).await
    }

    async fn altered_release(&self, id: &LockId) -> Result<Release, Error> {
        self.store().release(id).await
    }

    async fn altered_release_many(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        let mut answers = Vec::new();
        for id in ids {
            answers.push(self.altered_release(id).await);
        }
        answers
    }

    async fn altered_lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        self.store().lookup(by).await
    }
}

macro_rules! backend {
    ($store:ident) => {
        #[async_trait]
        impl Backend for $store {
            async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
                self.altered_acquire(request).await
            }

            async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
                self.store().acquire_all(requests).await
            }

            async fn release(&self, id: &LockId) -> Result<Release, Error> {
                self.altered_release(id).await
            }

            async fn release_many(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
                self.altered_release_many(ids).await
            }

            async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
                self.altered_extend(id, ttl).await
            }

            async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
                self.store().is_locked(key).await
            }

            async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
                self.altered_lookup(by).await
            }

            async fn inspect(&self, key: &Key) -> Result<Inspected, Error> {
                self.store().inspect(key).await
            }

            async fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
                self.store().list(request).await
            }

            async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error> {
                self.store().subscribe(topic).await
            }

            async fn force_release(&self, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error> {
                self.store().force_release(key, only).await
            }

            fn capabilities(&self) -> Capabilities {
                self.store().capabilities()
            }
        }
    };
}

backend!(FencesGoBack);
backend!(LandsLate);
backend!(HoldsUpExtends);
backend!(HoldsUpAnswers);
backend!(AnswersForSome);
backend!(PanicsForOne);
