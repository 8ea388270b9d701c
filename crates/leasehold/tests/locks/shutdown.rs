//! Giving everything back.

use std::time::Duration;

use leasehold::{ErrorCode, Fault, Locks, Loss, Memory, Operation};

use crate::support::{World, eventually, key};

#[tokio::test]
async fn release_all_gives_back_every_lock_of_the_handle_and_no_other() {
    let world = World::new();
    let locks = world.locks();
    let other = world.rival().lock("other").acquire().await.unwrap();
    let mut guards = Vec::new();
    for n in 0..20 {
        guards.push(locks.lock(format!("k{n}")).acquire().await.unwrap());
    }
    assert_eq!(locks.release_all().await.unwrap(), 20);
    for guard in guards {
        assert_eq!(guard.lost().await, Loss::Released);
        assert!(!world.is_locked(guard.key().as_str()).await);
        guard.release().await.unwrap();
    }
    assert_eq!(world.faults.calls(Operation::Release), 20, "a guard whose lock was given back sends nothing");
    assert!(world.rival().owns(other.lock_id()).await.unwrap());
    assert_eq!(locks.release_all().await.unwrap(), 0);
    assert!(locks.lock("k0").try_acquire().await.unwrap().is_some(), "the handle can still be used");
}

#[tokio::test]
async fn release_all_reports_the_first_failure_and_still_tries_the_rest() {
    let world = World::new();
    let locks = world.locks();
    let _a = locks.lock("a").acquire().await.unwrap();
    let _b = locks.lock("b").acquire().await.unwrap();
    world.faults.next(Operation::Release, Fault::FailBefore(ErrorCode::AuthFailed));
    assert_eq!(locks.release_all().await.unwrap_err().code(), ErrorCode::AuthFailed);
    assert_ne!(world.is_locked("a").await, world.is_locked("b").await);
}

#[tokio::test]
async fn shutdown_aborts_waiters_refuses_new_requests_and_finishes_the_background() {
    let world = World::new();
    let locks = world.locks();
    let held = world.rival().lock("held").acquire().await.unwrap();
    let waiter = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("held").wait_forever().acquire().await }
    });
    eventually("the waiter sleeps", async || world.faults.calls(Operation::Acquire) == 2).await;
    let _kept = locks.lock("kept").acquire().await.unwrap();
    world.faults.always(Operation::Release, Fault::DelayBefore(Duration::from_millis(30)));
    drop(locks.lock("dropped").acquire().await.unwrap());

    assert_eq!(locks.shutdown().await.unwrap(), 1);
    assert!(!world.is_locked("kept").await && !world.is_locked("dropped").await, "without waiting any longer");
    assert_eq!(waiter.await.unwrap().unwrap_err().code(), ErrorCode::Aborted);
    for result in [locks.lock("k").try_acquire().await.map(|_| ()), locks.lock("k").acquire().await.map(|_| ())] {
        assert_eq!(result.unwrap_err().code(), ErrorCode::Aborted);
    }
    drop(held);
}

#[tokio::test]
async fn the_keeper_finishes_what_was_dropped_after_the_last_handle_is_gone() {
    let store = Memory::new();
    let locks = Locks::new(store.clone());
    let guard = locks.lock("k").acquire().await.unwrap();
    drop(locks);
    assert!(Locks::new(store.clone()).is_locked(&key("k")).await.unwrap(), "a guard keeps its lock without the handle");
    drop(guard);
    eventually("released", async || store.is_empty()).await;
}
