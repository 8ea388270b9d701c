mod event;
mod worker;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

pub use event::{EventResult, EventType, LockEvent, Reason};
use worker::{Raw, Worker};

use crate::backend::{
    Absence, Acquire, AcquireAll, AcquireRequest, Backend, Capabilities, Extend, Inspected, ListPage, LookupBy, Record,
    Release, Subscription, Topic,
};
use crate::{Error, Fence, Key, ListRequest, LockId, Timestamp, Ttl};

/// Reports every operation of a store to a callback, with keys and lock ids hashed.
///
/// The callback runs on a thread of its own and cannot hurt an operation: it is never waited for, a
/// panic in it is caught, and when it falls more than a thousand events behind, events are dropped
/// and [counted](TelemetryLayer::dropped). Hashing happens on that thread too; without this layer
/// nothing is ever hashed.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use leasehold::layers::{EventResult, EventType, TelemetryLayer};
/// use leasehold::memory::Memory;
/// use leasehold::Locks;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let seen = Arc::new(Mutex::new(Vec::new()));
/// let log = seen.clone();
/// let store = TelemetryLayer::new(Memory::new(), move |event| {
///     log.lock().unwrap().push(event.clone());
/// });
/// let locks = Locks::new(store.clone());
/// locks.lock("payment:42").acquire().await?.release().await?;
/// store.flush();
///
/// let seen = seen.lock().unwrap();
/// assert_eq!(seen[0].event_type, EventType::Acquire);
/// assert_eq!(seen[0].result, EventResult::Ok);
/// assert!(seen[0].key.is_none(), "raw identifiers only where `include_raw` allows them");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TelemetryLayer {
    store: Arc<dyn Backend>,
    worker: Arc<Worker>,
}

impl TelemetryLayer {
    /// A store around `store` that reports to `on_event`, without raw identifiers.
    pub fn new(store: impl Backend, on_event: impl Fn(&LockEvent) + Send + 'static) -> Self {
        Self::include_raw_if(store, |_| false, on_event)
    }

    /// Like [`new`](TelemetryLayer::new), with the raw key and lock id in every event if
    /// `include_raw`. They let the reader end locks.
    pub fn include_raw(store: impl Backend, include_raw: bool, on_event: impl Fn(&LockEvent) + Send + 'static) -> Self {
        Self::include_raw_if(store, move |_| include_raw, on_event)
    }

    /// Like [`new`](TelemetryLayer::new), with the raw key and lock id in those events that `allow`
    /// allows. It sees the event without them.
    pub fn include_raw_if(
        store: impl Backend,
        allow: impl Fn(&LockEvent) -> bool + Send + 'static,
        on_event: impl Fn(&LockEvent) + Send + 'static,
    ) -> Self {
        Self { store: Arc::new(store), worker: Arc::new(Worker::start(allow, on_event)) }
    }

    /// How many events were dropped because the callback was too slow.
    pub fn dropped(&self) -> u64 {
        self.worker.dropped()
    }

    /// Waits until the callback has returned for all the events so far. It blocks the thread: for
    /// tests and for the end of a program, and never from within the callback.
    pub fn flush(&self) {
        self.worker.flush();
    }

    fn report_release(&self, id: &LockId, answer: &Result<Release, Error>) {
        let (result, reason) = match answer {
            Ok(Release::Released) => (EventResult::Ok, None),
            Ok(Release::Absent(absence)) => (EventResult::Fail, Some(reason(*absence))),
            Err(_) => (EventResult::Fail, None),
        };
        self.report(EventType::Release, result, reason, None, Some(id));
    }

    fn report_extend(&self, id: &LockId, answer: &Result<Extend, Error>) {
        let (result, reason) = match answer {
            Ok(Extend::Extended { .. }) => (EventResult::Ok, None),
            Ok(Extend::Absent(absence)) => (EventResult::Fail, Some(reason(*absence))),
            Err(_) => (EventResult::Fail, None),
        };
        self.report(EventType::Extend, result, reason, None, Some(id));
    }

    fn report(
        &self,
        event_type: EventType,
        result: EventResult,
        reason: Option<Reason>,
        key: Option<&Key>,
        id: Option<&LockId>,
    ) {
        self.worker.report(Raw { event_type, result, reason, key: key.cloned(), lock_id: id.copied() });
    }
}

fn reason(absence: Absence) -> Reason {
    match absence {
        Absence::Expired => Reason::Expired,
        Absence::NotFound => Reason::NotFound,
    }
}

#[async_trait]
impl Backend for TelemetryLayer {
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        let answer = self.store.acquire(request).await;
        let (result, reason, id) = match &answer {
            Ok(Acquire::Granted(grant)) => (EventResult::Ok, None, Some(&grant.lock_id)),
            Ok(Acquire::Held(_)) => (EventResult::Fail, Some(Reason::Locked), None),
            Err(_) => (EventResult::Fail, None, None),
        };
        self.report(EventType::Acquire, result, reason, Some(&request.key), id);
        answer
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        let answer = self.store.acquire_all(requests).await;
        for (number, request) in requests.iter().enumerate() {
            let (result, reason, id) = match &answer {
                Ok(AcquireAll::Granted(_)) => (EventResult::Ok, None, Some(&request.lock_id)),
                Ok(AcquireAll::Held { which, .. }) if *which == number => {
                    (EventResult::Fail, Some(Reason::Locked), None)
                }
                Ok(AcquireAll::Held { .. }) | Err(_) => (EventResult::Fail, None, None),
            };
            self.report(EventType::Acquire, result, reason, Some(&request.key), id);
        }
        answer
    }

    async fn release(&self, id: &LockId) -> Result<Release, Error> {
        let answer = self.store.release(id).await;
        self.report_release(id, &answer);
        answer
    }

    async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        let answer = self.store.extend(id, ttl).await;
        self.report_extend(id, &answer);
        answer
    }

    async fn extend_many(&self, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
        let answers = self.store.extend_many(locks).await;
        locks.iter().zip(&answers).for_each(|((id, _), answer)| self.report_extend(id, answer));
        answers
    }

    async fn release_many(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        let answers = self.store.release_many(ids).await;
        ids.iter().zip(&answers).for_each(|(id, answer)| self.report_release(id, answer));
        answers
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        let answer = self.store.is_locked(key).await;
        self.report(EventType::IsLocked, EventResult::of(matches!(answer, Ok(true))), None, Some(key), None);
        answer
    }

    async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        let answer = self.store.lookup(by).await;
        let (key, id) = match by {
            LookupBy::Key(key) => (Some(key), None),
            LookupBy::Id(id) => (None, Some(id)),
        };
        self.report(EventType::Lookup, EventResult::of(matches!(answer, Ok(Some(_)))), None, key, id);
        answer
    }

    async fn inspect(&self, key: &Key) -> Result<Inspected, Error> {
        let answer = self.store.inspect(key).await;
        let found = matches!(&answer, Ok(found) if !found.holders.is_empty());
        self.report(EventType::Lookup, EventResult::of(found), None, Some(key), None);
        answer
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

impl fmt::Debug for TelemetryLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TelemetryLayer").field("store", &self.store).finish_non_exhaustive()
    }
}
