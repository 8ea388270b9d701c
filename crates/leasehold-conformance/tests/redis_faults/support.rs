//! What the tests share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Acquire, AcquireRequest, Backend, Error, ErrorCode, Grant, Key, LockId, Redis, Ttl};
use leasehold_conformance::history::{Event, History, Summary, What, check};
use test_servers::Proxy;

/// How long something may take that is certain to happen: a test that waits longer has found a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(25);

pub(crate) async fn connect(url: &str) -> Arc<dyn Backend> {
    Arc::new(Redis::connect(url).await.unwrap())
}

/// The URL of the server behind `proxy`.
pub(crate) fn through(proxy: &Proxy) -> String {
    format!("redis://127.0.0.1:{}", proxy.port())
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(crate) fn request(name: &str) -> AcquireRequest {
    AcquireRequest::new(key(name), LockId::random().unwrap(), Ttl::default())
}

#[track_caller]
pub(crate) fn granted(answer: Result<Acquire, Error>) -> Grant {
    match answer.unwrap() {
        Acquire::Granted(grant) => grant,
        Acquire::Held(contention) => panic!("held: {contention}"),
    }
}

/// An error that says what to do, when to try again, and what it does not know.
#[track_caller]
pub(crate) fn assert_unavailable(error: &Error, message: &str, outcome_unknown: bool) {
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error:?}");
    assert!(error.to_string().contains(message), "{error:?}");
    assert!(error.is_retryable() && error.hint().is_some() && error.operation().is_some(), "{error:?}");
    assert_eq!(error.outcome_unknown(), outcome_unknown, "{error:?}");
}

/// Fails with all the promises that the events show to be broken.
#[track_caller]
pub(crate) fn assert_sound(events: &[Event]) -> Summary {
    check(events).unwrap_or_else(|broken| {
        let shown: Vec<String> = broken.iter().take(10).map(|violation| format!("  {violation}")).collect();
        panic!("{} violations:\n{}", broken.len(), shown.join("\n"))
    })
}

/// A server that forgets its locks ends them all, as an operator would by force: whoever held one may not be alone any
/// more. The checker forgives that to locks asked for before [`over`](Amnesia::over), and nothing else: fences must rise all
/// the same, and locks asked for later exclude each other.
pub(crate) struct Amnesia {
    history: History,
    keys: Vec<Key>,
}

impl Amnesia {
    pub(crate) fn begins(history: &History, keys: impl IntoIterator<Item = Key>) -> Self {
        let keys: Vec<Key> = keys.into_iter().collect();
        keys.iter().for_each(|key| history.record(key.as_str(), "amnesia", What::ForceSent));
        Self { history: history.clone(), keys }
    }

    /// The server has forgotten all that it will forget.
    pub(crate) fn over(self) {
        self.keys.iter().for_each(|key| self.history.record(key.as_str(), "amnesia", What::ForceAnswered));
    }
}

/// Waits for what must happen sooner or later.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < PATIENCE, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Fails instead of hanging.
pub(crate) async fn in_time<T>(what: &str, run: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, run).await.unwrap_or_else(|_| panic!("hangs: {what}"))
}
