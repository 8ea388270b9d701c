use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use metrics::{counter, histogram};

use crate::backend::{
    Acquire, AcquireAll, AcquireRequest, Backend, Capabilities, Extend, Inspected, ListPage, LookupBy, Record, Release,
    Subscription, Topic,
};
use crate::metric_names::{CONTENTION, OPERATION_SECONDS, OPERATIONS, describe_store};
use crate::{Error, Fence, Key, ListRequest, LockId, Operation, Timestamp, Ttl};

/// Counts and times every operation of a store through the `metrics` facade.
///
/// | name | kind | labels |
/// | --- | --- | --- |
/// | `leasehold_operations_total` | counter | `operation`, `outcome` |
/// | `leasehold_operation_seconds` | histogram | `operation` |
/// | `leasehold_contention_total` | counter | |
///
/// One request about many locks counts as an operation for each of them, and is timed once.
///
/// `operation` is [`Operation::as_str`]; `outcome` is `ok`, `absent` (release and extend), `held`
/// (acquire) or `error`. No label carries a key. Use
/// [`LocksBuilder::metrics`](crate::LocksBuilder::metrics) to get this layer together with the
/// waiting and holding times, which a store cannot see.
#[derive(Clone, Debug)]
pub struct MetricsLayer {
    store: Arc<dyn Backend>,
}

impl MetricsLayer {
    /// A store around `store`. Install the recorder first: it is told now what each metric means.
    pub fn new(store: impl Backend) -> Self {
        describe_store();
        Self { store: Arc::new(store) }
    }
}

async fn measured<T>(
    operation: Operation,
    outcome: impl FnOnce(&T) -> &'static str,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let answer = timed(operation, call).await;
    count(operation, outcome, &answer);
    answer
}

/// Like [`measured`], for the answers of one request about many locks.
async fn measured_many<T>(
    operation: Operation,
    outcome: impl Fn(&T) -> &'static str,
    call: impl Future<Output = Vec<Result<T, Error>>>,
) -> Vec<Result<T, Error>> {
    let answers = timed(operation, call).await;
    answers.iter().for_each(|answer| count(operation, &outcome, answer));
    answers
}

async fn timed<T>(operation: Operation, call: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let answer = call.await;
    histogram!(OPERATION_SECONDS, "operation" => operation.as_str()).record(started.elapsed());
    answer
}

fn count<T>(operation: Operation, outcome: impl FnOnce(&T) -> &'static str, answer: &Result<T, Error>) {
    let outcome = answer.as_ref().map_or("error", outcome);
    counter!(OPERATIONS, "operation" => operation.as_str(), "outcome" => outcome).increment(1);
}

fn release_outcome(answer: &Release) -> &'static str {
    match answer {
        Release::Released => "ok",
        Release::Absent(_) => "absent",
    }
}

fn extend_outcome(answer: &Extend) -> &'static str {
    match answer {
        Extend::Extended { .. } => "ok",
        Extend::Absent(_) => "absent",
    }
}

fn ok<T>(_: &T) -> &'static str {
    "ok"
}

#[async_trait]
impl Backend for MetricsLayer {
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        let outcome = |answer: &Acquire| match answer {
            Acquire::Granted(_) => "ok",
            Acquire::Held(_) => {
                counter!(CONTENTION).increment(1);
                "held"
            }
        };
        measured(Operation::Acquire, outcome, self.store.acquire(request)).await
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        let outcome = |answer: &AcquireAll| match answer {
            AcquireAll::Granted(_) => "ok",
            AcquireAll::Held { .. } => {
                counter!(CONTENTION).increment(1);
                "held"
            }
        };
        measured(Operation::Acquire, outcome, self.store.acquire_all(requests)).await
    }

    async fn release(&self, id: &LockId) -> Result<Release, Error> {
        measured(Operation::Release, release_outcome, self.store.release(id)).await
    }

    async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        measured(Operation::Extend, extend_outcome, self.store.extend(id, ttl)).await
    }

    async fn extend_many(&self, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
        measured_many(Operation::Extend, extend_outcome, self.store.extend_many(locks)).await
    }

    async fn release_many(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        measured_many(Operation::Release, release_outcome, self.store.release_many(ids)).await
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        measured(Operation::IsLocked, ok, self.store.is_locked(key)).await
    }

    async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        measured(Operation::Lookup, ok, self.store.lookup(by)).await
    }

    async fn inspect(&self, key: &Key) -> Result<Inspected, Error> {
        measured(Operation::Lookup, ok, self.store.inspect(key)).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
        measured(Operation::List, ok, self.store.list(request)).await
    }

    async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error> {
        measured(Operation::Subscribe, ok, self.store.subscribe(topic)).await
    }

    async fn force_release(&self, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error> {
        measured(Operation::ForceRelease, ok, self.store.force_release(key, only)).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.store.now().await
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}
