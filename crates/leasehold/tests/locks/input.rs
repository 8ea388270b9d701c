//! Wrong input gets a typed error, and nothing is sent.

use std::time::Duration;

use leasehold::memory::Memory;
use leasehold::testing::{Fault, FaultLayer};
use leasehold::{ErrorCode, Locks, Operation};
use serde_json::json;

use crate::support::World;

#[tokio::test]
async fn wrong_options_are_refused_before_anything_is_sent() {
    let world = World::new();
    let locks = world.locks();
    let long = "x".repeat(513);
    let requests = [
        locks.lock(""),
        locks.lock("a\0b"),
        locks.lock(long.as_str()),
        locks.lock("k").ttl(Duration::ZERO),
        locks.lock("k").ttl(Duration::MAX),
        locks.lock("k").ttl(Duration::from_nanos(1)),
        locks.lock("k").holder(""),
        locks.lock("k").holder("two\nlines"),
        locks.lock("k").metadata(json!("not an object")),
        locks.lock("k").metadata(json!({ "k": "x".repeat(5000) })),
        locks.lock("k").max_hold(Duration::ZERO),
        locks.lock("k").ttl(Duration::ZERO).ttl(Duration::from_secs(1)),
    ];
    for request in requests {
        let shown = format!("{request:?}");
        let error = request.acquire().await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{shown}");
        assert!(!error.is_retryable() && !error.outcome_unknown());
    }
    assert_eq!(world.faults.calls(Operation::Acquire), 0);
}

#[tokio::test]
async fn extreme_but_legal_options_work() {
    let world = World::new();
    let locks = world.locks();
    let ten_years = Duration::from_secs(10 * 365 * 24 * 3600);
    let key = "é".repeat(256);
    let request = locks.lock(key.as_str()).ttl(ten_years).max_hold(Duration::MAX).wait(Duration::MAX);
    let guard = request.acquire().await.unwrap();
    assert_eq!(guard.remaining(), ten_years);
    guard.release().await.unwrap();
    let brief = locks.lock("k").ttl(Duration::from_millis(1)).heartbeat(false).acquire().await.unwrap();
    world.clock.advance(Duration::from_millis(1));
    brief.lost().await;
}

#[tokio::test]
async fn connect_knows_memory_and_explains_what_it_does_not_know() {
    for url in ["memory:", "memory://"] {
        let locks = Locks::connect(url).await.unwrap();
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    }
    for url in ["", "memory", "memory:x", "nosuch://user:secret@host", "://", "secret"] {
        let error = Locks::connect(url).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{url}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }
}

#[test]
fn errors_never_show_their_source_in_their_text() {
    let source = std::io::Error::other("password=secret key=payment:42");
    let error = leasehold::Error::new(ErrorCode::ServiceUnavailable, "the store is away")
        .with_source(source)
        .during(Operation::Acquire)
        .with_hint("start it");
    assert_eq!(error.to_string(), "acquire: the store is away");
    assert!(std::error::Error::source(&error).is_some(), "but it is kept for those who want it");
    assert_eq!((error.hint(), error.operation()), (Some("start it"), Some(Operation::Acquire)));
}

#[test]
fn only_the_stores_troubles_are_worth_a_retry() {
    let retryable = |code| leasehold::Error::new(code, "x").is_retryable();
    for code in [ErrorCode::ServiceUnavailable, ErrorCode::RateLimited, ErrorCode::NetworkTimeout] {
        assert!(retryable(code), "{code:?}");
    }
    for code in [
        ErrorCode::AuthFailed,
        ErrorCode::InvalidArgument,
        ErrorCode::AcquisitionTimeout,
        ErrorCode::Aborted,
        ErrorCode::LockLost,
        ErrorCode::Internal,
    ] {
        assert!(!retryable(code), "{code:?}");
    }
}

#[tokio::test]
async fn endless_timeouts_are_endless_and_not_a_panic() {
    let (store, faults) = FaultLayer::new(Memory::new());
    let locks = Locks::builder(store).call_timeout(Duration::MAX).release_timeout(Duration::MAX).build();
    faults.next(Operation::Acquire, Fault::DelayAfter(Duration::from_millis(5)));
    let guard = locks.lock("k").acquire().await.unwrap();
    assert_eq!(guard.ensure(Duration::MAX).await.unwrap_err().code(), ErrorCode::InvalidArgument);
    drop(guard);
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    locks.shutdown().await.unwrap();
}
