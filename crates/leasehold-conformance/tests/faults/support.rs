//! What the tests of all stores share.

use std::time::{Duration, Instant};

use leasehold::{Acquire, AcquireRequest, Error, ErrorCode, Grant, Key, LockId, Ttl};
use leasehold_conformance::history::{Event, Summary, check};

/// How long something may take that is certain to happen: a test that waits longer has found a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(25);

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
