use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures_core::Stream;

use crate::backend::{
    Absence, Acquire, AcquireAll, AcquireRequest, Backend, Capabilities, Event, Extend, Inspected, ListPage, LookupBy,
    Record, Release, Subscription, Topic,
};
use crate::sync::lock;
use crate::{Error, ErrorCode, Fence, Key, ListRequest, LockId, Operation, Timestamp, Ttl};

/// One thing that goes wrong in a call to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The call fails and never reaches the store.
    FailBefore(ErrorCode),
    /// The call never reaches the store, but nobody can know: an error whose outcome is unknown.
    LoseBefore(ErrorCode),
    /// The call is carried out, but its answer is lost: an error whose outcome is unknown.
    FailAfter(ErrorCode),
    /// The call reaches the store only after this time.
    DelayBefore(Duration),
    /// The answer arrives only after this time.
    DelayAfter(Duration),
    /// The call never reaches the store and is never answered.
    HangBefore,
    /// The call is carried out and never answered.
    HangAfter,
    /// An extend or release is answered with "no such lock" without asking the store: a scripted
    /// loss. Other operations ignore it.
    Refuse,
}

/// A store in which things go wrong as a test says. Without a script it passes everything on.
///
/// ```
/// use leasehold::memory::Memory;
/// use leasehold::testing::{Fault, FaultLayer};
/// use leasehold::{ErrorCode, Locks, Operation};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let (store, faults) = FaultLayer::new(Memory::new());
/// let locks = Locks::new(store);
///
/// faults.next(Operation::Acquire, Fault::FailAfter(ErrorCode::NetworkTimeout));
/// let error = locks.lock("job").try_acquire().await.unwrap_err();
/// assert!(error.outcome_unknown());
///
/// // The lock that was granted without our knowing is given back in the background.
/// let guard = locks.lock("job").acquire().await?;
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FaultLayer {
    store: Arc<dyn Backend>,
    faults: Faults,
}

/// The script of a [`FaultLayer`], and what came of it. Clones are the same script.
#[derive(Clone, Default)]
pub struct Faults(Arc<Script>);

#[derive(Default)]
struct Script {
    operations: Mutex<HashMap<Operation, Scripted>>,
    drop_wake_ups: AtomicBool,
}

type Hook = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Scripted {
    next: VecDeque<Fault>,
    always: Option<Fault>,
    on_call: Option<Hook>,
    calls: usize,
    answers: usize,
    tries: usize,
    at_once: usize,
    most_at_once: usize,
}

impl Faults {
    /// The next call of `operation` that has no fault yet gets this one.
    pub fn next(&self, operation: Operation, fault: Fault) {
        self.with(operation, |scripted| scripted.next.push_back(fault));
    }

    /// Every call of `operation` gets this fault, once those set by [`next`](Faults::next) are used
    /// up.
    pub fn always(&self, operation: Operation, fault: Fault) {
        self.with(operation, |scripted| scripted.always = Some(fault));
    }

    /// Calls of `operation` go well again.
    pub fn clear(&self, operation: Operation) {
        self.with(operation, |scripted| {
            scripted.always = None;
            scripted.next.clear();
        });
    }

    /// Whether events are swallowed instead of delivered.
    pub fn drop_wake_ups(&self, on: bool) {
        self.0.drop_wake_ups.store(on, Ordering::Release);
    }

    /// Runs `hook` inside every call of `operation`, just before it reaches the store. It may move
    /// a clock, block, or panic as a driver with a bug would.
    pub fn on_call(&self, operation: Operation, hook: impl Fn() + Send + Sync + 'static) {
        self.with(operation, |scripted| scripted.on_call = Some(Arc::new(hook)));
    }

    /// How many calls of `operation` the store has answered.
    pub fn answers(&self, operation: Operation) -> usize {
        self.with(operation, |scripted| scripted.answers)
    }

    /// How many calls of `operation` reached the store.
    pub fn calls(&self, operation: Operation) -> usize {
        self.with(operation, |scripted| scripted.calls)
    }

    /// How many calls of `operation` were begun, also those that never reached the store.
    pub fn tries(&self, operation: Operation) -> usize {
        self.with(operation, |scripted| scripted.tries)
    }

    /// The most calls of `operation` that were under way at the same time.
    pub fn most_at_once(&self, operation: Operation) -> usize {
        self.with(operation, |scripted| scripted.most_at_once)
    }

    fn with<T>(&self, operation: Operation, act: impl FnOnce(&mut Scripted) -> T) -> T {
        act(lock(&self.0.operations).entry(operation).or_default())
    }

    /// Carries out one call with whatever fault is due. `refused` is the answer to a scripted loss.
    async fn play<T>(
        &self,
        operation: Operation,
        refused: Option<T>,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let _under_way = UnderWay::new(self, operation);
        let fault = self.with(operation, |scripted| scripted.next.pop_front().or(scripted.always));
        match fault {
            Some(Fault::FailBefore(code)) => return Err(Error::new(code, "a scripted failure").during(operation)),
            Some(Fault::LoseBefore(code)) => {
                return Err(Error::new(code, "a scripted failure").during(operation).with_outcome_unknown());
            }
            Some(Fault::DelayBefore(time)) => tokio::time::sleep(time).await,
            Some(Fault::HangBefore) => std::future::pending().await,
            Some(Fault::Refuse) => {
                if let Some(answer) = refused {
                    return Ok(answer);
                }
            }
            _ => {}
        }
        let hook = self.with(operation, |scripted| {
            scripted.calls += 1;
            scripted.on_call.clone()
        });
        if let Some(hook) = hook {
            hook();
        }
        let answer = call.await;
        self.with(operation, |scripted| scripted.answers += 1);
        match fault {
            Some(Fault::FailAfter(code)) => {
                return Err(Error::new(code, "a scripted failure").during(operation).with_outcome_unknown());
            }
            Some(Fault::DelayAfter(time)) => tokio::time::sleep(time).await,
            Some(Fault::HangAfter) => std::future::pending().await,
            _ => {}
        }
        answer
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faults")
    }
}

/// Counts a call for as long as it is under way.
struct UnderWay<'a>(&'a Faults, Operation);

impl<'a> UnderWay<'a> {
    fn new(faults: &'a Faults, operation: Operation) -> Self {
        faults.with(operation, |scripted| {
            scripted.tries += 1;
            scripted.at_once += 1;
            scripted.most_at_once = scripted.most_at_once.max(scripted.at_once);
        });
        Self(faults, operation)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.with(self.1, |scripted| scripted.at_once -= 1);
    }
}

impl FaultLayer {
    /// A store around `store`, and the script to break it with.
    pub fn new(store: impl Backend) -> (Self, Faults) {
        let faults = Faults::default();
        (Self { store: Arc::new(store), faults: faults.clone() }, faults)
    }
}

#[async_trait]
impl Backend for FaultLayer {
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        self.faults.play(Operation::Acquire, None, self.store.acquire(request)).await
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        self.faults.play(Operation::Acquire, None, self.store.acquire_all(requests)).await
    }

    async fn release(&self, id: &LockId) -> Result<Release, Error> {
        let refused = Some(Release::Absent(Absence::NotFound));
        self.faults.play(Operation::Release, refused, self.store.release(id)).await
    }

    async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        let refused = Some(Extend::Absent(Absence::NotFound));
        self.faults.play(Operation::Extend, refused, self.store.extend(id, ttl)).await
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        self.faults.play(Operation::IsLocked, None, self.store.is_locked(key)).await
    }

    async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        self.faults.play(Operation::Lookup, None, self.store.lookup(by)).await
    }

    async fn inspect(&self, key: &Key) -> Result<Inspected, Error> {
        self.faults.play(Operation::Lookup, None, self.store.inspect(key)).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
        self.faults.play(Operation::List, None, self.store.list(request)).await
    }

    async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error> {
        let events = self.faults.play(Operation::Subscribe, None, self.store.subscribe(topic)).await?;
        Ok(Subscription::new(Deaf { events, faults: self.faults.clone() }))
    }

    async fn force_release(&self, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error> {
        self.faults.play(Operation::ForceRelease, None, self.store.force_release(key, only)).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.store.now().await
    }

    fn capabilities(&self) -> Capabilities {
        let found = self.store.capabilities();
        let loses = self.faults.0.drop_wake_ups.load(Ordering::Acquire);
        found.with_lossy_wake_ups(found.lossy_wake_ups || loses)
    }
}

/// Passes events on, or swallows them.
struct Deaf {
    events: Subscription,
    faults: Faults,
}

impl Stream for Deaf {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            let event = std::task::ready!(Pin::new(&mut self.events).poll_next(cx));
            if event.is_none() || !self.faults.0.drop_wake_ups.load(Ordering::Acquire) {
                return Poll::Ready(event);
            }
        }
    }
}
