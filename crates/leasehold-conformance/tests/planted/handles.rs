//! Bugs of handles, planted from the outside: in a layer between the handle and the store that the
//! case watches, or in the clock that the handle is given. To the case they look like a handle that
//! broke the rule itself.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::backend::{Acquire, AcquireRequest, Backend, Release};
use leasehold::testing::ManualClock;
use leasehold::{Error, LockId, Locks, LocksBuilder, Timestamp, Ttl};
use leasehold_conformance::{Harness, ManualHarness};

use super::{Bug, Planted, Store};

/// A rule of handles that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleBug {
    /// A lock that was released is renewed once more.
    RenewAfterRelease,
    /// Tasks of one process go to the store at once instead of waiting in line.
    SkipQueue,
    /// A cancelled acquire is forgotten instead of undone.
    ForgetCancelled,
    /// The deadline counts from the store's answer instead of from the request.
    CountFromAnswer,
}

pub(crate) const BROKEN_HANDLES: [HandleBug; 4] =
    [HandleBug::RenewAfterRelease, HandleBug::SkipQueue, HandleBug::ForgetCancelled, HandleBug::CountFromAnswer];

/// A harness whose store is sound and whose handles are not.
pub(crate) struct BrokenHandles {
    harness: ManualHarness,
    bug: HandleBug,
    /// What the handles take for the time.
    clock: ManualClock,
    /// How many acquires are on their way.
    in_flight: Arc<AtomicUsize>,
}

impl BrokenHandles {
    pub(crate) fn new(harness: ManualHarness, bug: HandleBug) -> Self {
        Self { harness, bug, clock: ManualClock::new(), in_flight: Arc::default() }
    }
}

#[async_trait]
impl Harness for BrokenHandles {
    fn backend(&self) -> Arc<dyn Backend> {
        self.harness.backend()
    }

    fn peer(&self) -> Arc<dyn Backend> {
        self.harness.peer()
    }

    fn namespace(&self) -> &str {
        self.harness.namespace()
    }

    fn now(&self) -> Timestamp {
        self.harness.now()
    }

    async fn pass(&self, time: Duration) {
        let unseen = self.bug == HandleBug::CountFromAnswer && self.in_flight.load(Ordering::Acquire) > 0;
        if !unseen {
            self.clock.advance(time);
        }
        self.harness.pass(time).await;
    }

    fn clock_slack(&self) -> Duration {
        self.harness.clock_slack()
    }

    fn locks(&self, store: Arc<dyn Backend>) -> LocksBuilder {
        let bug: Arc<dyn Bug> = match self.bug {
            HandleBug::RenewAfterRelease => Arc::new(RenewAfterRelease),
            HandleBug::SkipQueue => Arc::new(AskTwice),
            HandleBug::ForgetCancelled => Arc::new(ForgetCancelled::default()),
            HandleBug::CountFromAnswer => Arc::new(CountAcquires(self.in_flight.clone())),
        };
        Locks::builder(Planted::new(store, bug)).clock(&self.clock)
    }
}

#[derive(Debug)]
struct RenewAfterRelease;

#[async_trait]
impl Bug for RenewAfterRelease {
    async fn release(&self, store: &Store, id: &LockId) -> Result<Release, Error> {
        let answer = store.release(id).await;
        let (store, id) = (store.clone(), *id);
        // A moment later, as a keeper that was not told would.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let _ = store.extend(&id, Ttl::default()).await;
        });
        answer
    }
}

/// Somebody who has no place in the line asks at the same time.
#[derive(Debug)]
struct AskTwice;

#[async_trait]
impl Bug for AskTwice {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let mut other = request.clone();
        other.lock_id = LockId::random()?;
        let (answer, other_answer) = tokio::join!(store.acquire(request), store.acquire(&other));
        if let Ok(Acquire::Granted(_)) = other_answer {
            store.release(&other.lock_id).await?;
        }
        answer
    }
}

/// An acquire that was given up ends in another task than it began in: nobody releases what it got.
#[derive(Debug, Default)]
struct ForgetCancelled {
    began_in: Mutex<HashMap<LockId, Option<tokio::task::Id>>>,
    forgotten: Mutex<HashSet<LockId>>,
}

#[async_trait]
impl Bug for ForgetCancelled {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let id = request.lock_id;
        self.began_in.lock().expect("nobody panicked").insert(id, tokio::task::try_id());
        let answer = store.acquire(request).await;
        if self.began_in.lock().expect("nobody panicked")[&id] != tokio::task::try_id() {
            self.forgotten.lock().expect("nobody panicked").insert(id);
        }
        answer
    }

    async fn release(&self, store: &Store, id: &LockId) -> Result<Release, Error> {
        if self.forgotten.lock().expect("nobody panicked").contains(id) {
            return Ok(Release::Released);
        }
        store.release(id).await
    }
}

/// Tells the clock of the handles when to stand still.
#[derive(Debug)]
struct CountAcquires(Arc<AtomicUsize>);

#[async_trait]
impl Bug for CountAcquires {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        self.0.fetch_add(1, Ordering::AcqRel);
        let answer = store.acquire(request).await;
        self.0.fetch_sub(1, Ordering::AcqRel);
        answer
    }
}
