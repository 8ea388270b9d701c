//! Going on without the lock, for callers with a deadline.

use std::time::Duration;

use leasehold::testing::Fault;
use leasehold::{ErrorCode, Operation};

use crate::support::{TTL, World};

#[tokio::test]
async fn a_free_lock_is_used_and_nothing_is_said() {
    let world = World::new();
    let done = world.locks().lock("k").best_effort().run(|lease| async move { lease.is_some() }).await.unwrap();
    assert!(done.value && done.unlocked.is_none());
    assert!(!world.is_locked("k").await);
}

#[tokio::test]
async fn a_held_lock_is_gone_without_and_the_outcome_says_so() {
    let world = World::new();
    let _held = world.rival().lock("k").acquire().await.unwrap();
    let request = world.locks().lock("k").wait(Duration::ZERO).best_effort();
    let done = request.run(|lease| async move { lease.is_none() }).await.unwrap();
    assert!(done.value);
    assert_eq!(done.unlocked.unwrap().code(), ErrorCode::AcquisitionTimeout);
}

#[tokio::test]
async fn a_failing_store_is_gone_without_and_the_outcome_says_so() {
    let world = World::new();
    world.faults.always(Operation::Acquire, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    let request = world.locks().lock("k").wait(Duration::ZERO).best_effort();
    let done = request.run(|_| async { 7 }).await.unwrap();
    assert_eq!((done.value, done.unlocked.unwrap().code()), (7, ErrorCode::ServiceUnavailable));
}

#[tokio::test]
async fn a_wrong_request_does_not_run() {
    let world = World::new();
    let error = world.locks().lock("").best_effort().run(|_| async { unreachable!() }).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    world.faults.always(Operation::Acquire, Fault::FailBefore(ErrorCode::AuthFailed));
    let error = world.locks().lock("k").best_effort().run(|_| async { unreachable!() }).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::AuthFailed);
}

#[tokio::test]
async fn work_that_loses_its_lock_goes_on_and_the_outcome_says_so() {
    let world = World::new();
    let clock = world.clock.clone();
    let request = world.locks().lock("k").heartbeat(false).best_effort();
    let done = request
        .run(|lease| async move {
            clock.advance(TTL);
            lease.unwrap().lost().await;
            7
        })
        .await
        .unwrap();
    assert_eq!((done.value, done.unlocked.unwrap().code()), (7, ErrorCode::LockLost));
}
