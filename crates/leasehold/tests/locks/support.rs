//! What the tests share: a store whose time and faults they control.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::backend::{
    Acquire, AcquireRequest, Backend, Capabilities, Extend, ForceRelease, ListPage, LookupBy, Record, Release,
    Subscription, Topic,
};
use leasehold::memory::Memory;
use leasehold::testing::{FaultLayer, Faults, ManualClock};
use leasehold::{Error, Fence, Key, ListRequest, LockId, Locks, LocksBuilder, Ttl};
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

/// A store whose extends wait on their way, until a test lets them go. Clones are the same store.
#[derive(Clone, Debug)]
pub(crate) struct HoldsUpExtends {
    store: Memory,
    sent: Arc<AtomicUsize>,
    arrived: Arc<AtomicUsize>,
    let_go: watch::Sender<bool>,
}

impl HoldsUpExtends {
    pub(crate) fn new(store: Memory) -> Self {
        Self { store, sent: Arc::default(), arrived: Arc::default(), let_go: watch::Sender::new(false) }
    }

    /// How many extends were ever on their way.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    /// How many of them the store got.
    pub(crate) fn arrived(&self) -> usize {
        self.arrived.load(Ordering::SeqCst)
    }

    /// Whether extends go through.
    pub(crate) fn let_go(&self, yes: bool) {
        self.let_go.send_replace(yes);
    }
}

#[async_trait]
impl Altered for HoldsUpExtends {
    fn store(&self) -> &Memory {
        &self.store
    }

    async fn altered_extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        self.sent.fetch_add(1, Ordering::SeqCst);
        self.let_go.subscribe().wait_for(|yes| *yes).await.unwrap();
        self.arrived.fetch_add(1, Ordering::SeqCst);
        self.store.extend(id, ttl).await
    }
}

/// A memory store with another acquire, extend or release.
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
}

macro_rules! backend {
    ($store:ident) => {
        #[async_trait]
        impl Backend for $store {
            async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
                self.altered_acquire(request).await
            }

            async fn release(&self, id: &LockId) -> Result<Release, Error> {
                self.altered_release(id).await
            }

            async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
                self.altered_extend(id, ttl).await
            }

            async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
                self.store().is_locked(key).await
            }

            async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
                self.store().lookup(by).await
            }

            async fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
                self.store().list(request).await
            }

            async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error> {
                self.store().subscribe(topic).await
            }

            async fn force_release(&self, key: &Key) -> Result<ForceRelease, Error> {
                self.store().force_release(key).await
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
