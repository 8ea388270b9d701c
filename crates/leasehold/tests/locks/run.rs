//! Critical sections.

use std::time::Duration;

use leasehold::memory::Memory;
use leasehold::testing::{Fault, FaultLayer};
use leasehold::{CancellationToken, ErrorCode, LockState, Locks, Loss, Operation};
use test_support::{eventually, key};

use crate::support::{TTL, World};

#[tokio::test]
async fn run_returns_what_the_work_returns_and_releases_the_lock() {
    let world = World::new();
    let locks = world.locks();
    let work = |lease: leasehold::Lease| async move { (lease.state(), lease.fence()) };
    let (state, fence) = locks.lock("k").run(work).await.unwrap();
    assert_eq!(state, LockState::Held);
    assert!(!world.is_locked("k").await);
    let (_, later) = locks.lock("k").run(work).await.unwrap();
    assert!(later > fence);
}

#[tokio::test]
async fn run_excludes_others_while_it_works() {
    let world = World::new();
    let rival = world.rival();
    let seen = world.locks().lock("k").run(|_| async move { rival.lock("k").try_acquire().await }).await.unwrap();
    assert!(seen.unwrap().is_none());
}

#[tokio::test]
async fn a_lease_outside_run_is_lost_when_run_is_over() {
    let world = World::new();
    let lease = world.locks().lock("k").run(|lease| async move { lease }).await.unwrap();
    assert_eq!(lease.state(), LockState::Lost);
    assert_eq!(lease.extend(Duration::from_secs(1)).await.unwrap_err().code(), ErrorCode::LockLost);
}

#[tokio::test]
async fn cancelling_the_token_stops_the_work_and_releases_the_lock() {
    let world = World::new();
    let token = CancellationToken::new();
    let running = tokio::spawn({
        let (locks, token) = (world.locks(), token.clone());
        async move { locks.lock("k").cancel_on(&token).run(|_| std::future::pending::<()>()).await }
    });
    eventually("it runs", async || world.is_locked("k").await).await;
    token.cancel();
    assert_eq!(running.await.unwrap().unwrap_err().code(), ErrorCode::Aborted);
    assert!(!world.is_locked("k").await);
}

#[tokio::test]
async fn a_release_that_fails_does_not_take_the_result_away() {
    let world = World::new();
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let locks = world.builder().on_release_error(move |failure| sender.send(failure.error.code()).unwrap()).build();
    world.faults.always(Operation::Release, Fault::FailBefore(ErrorCode::AuthFailed));
    assert_eq!(locks.lock("k").run(|_| async { 7 }).await.unwrap(), 7);
    assert_eq!(heard.recv().await.unwrap(), ErrorCode::AuthFailed);
}

#[tokio::test]
async fn a_panic_in_the_work_releases_the_lock() {
    let world = World::new();
    let locks = world.locks();
    let running = tokio::spawn(async move { locks.lock("k").run(|_| async { panic!("the work failed") }).await });
    assert!(running.await.unwrap_err().is_panic());
    world.freed("k").await;
}

/// Runs work for ever under a short lease, and checks that it stops before a rival that waits can
/// begin.
async fn stops_before_a_rival_begins(locks: Locks, memory: &Memory) {
    let running = tokio::spawn(async move {
        locks.lock("k").ttl(Duration::from_millis(300)).run(|_| std::future::pending::<()>()).await
    });
    let rival = Locks::new(memory.clone());
    eventually("it runs", async || rival.is_locked(&key("k")).await.unwrap()).await;
    if rival.lock("k").wait(Duration::from_secs(3)).acquire().await.is_ok() {
        eventually("stopped long before", async || running.is_finished()).await;
        assert_eq!(running.await.unwrap().unwrap_err().code(), ErrorCode::LockLost);
    }
}

#[tokio::test]
async fn a_driver_that_panics_does_not_make_the_work_outlive_the_lease() {
    for operation in [Operation::Extend, Operation::Subscribe] {
        let memory = Memory::new();
        let (store, faults) = FaultLayer::new(memory.clone());
        faults.on_call(operation, || panic!("a bug in the driver"));
        stops_before_a_rival_begins(Locks::new(store), &memory).await;
    }
}

#[tokio::test]
async fn a_driver_that_panics_once_does_not_even_lose_the_lock() {
    let world = World::new();
    let armed = std::sync::atomic::AtomicBool::new(true);
    world.faults.on_call(Operation::Extend, move || {
        assert!(!armed.swap(false, std::sync::atomic::Ordering::SeqCst), "a bug in the driver");
    });
    let guard = world.locks().lock("k").acquire().await.unwrap();
    world.clock.advance(TTL / 3);
    eventually("the driver has panicked", async || guard.state() == LockState::Uncertain).await;
    eventually("renewed after the panic", async || {
        world.clock.advance(Duration::from_millis(10));
        guard.state() == LockState::Held
    })
    .await;
    assert_eq!(world.faults.answers(Operation::Extend), 1);
}

#[tokio::test]
async fn a_hook_that_blocks_keeps_nobody_from_renewing() {
    let memory = Memory::new();
    let (store, faults) = FaultLayer::new(memory.clone());
    let (go, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = std::sync::Mutex::new(blocked);
    let block = move |_: &leasehold::ReleaseFailure<'_>| {
        let _ = blocked.lock().unwrap().recv();
    };
    let locks = Locks::builder(store).on_release_error(block).build();
    let unlucky = locks.lock("unlucky").acquire().await.unwrap();
    let guard = locks.lock("k").ttl(Duration::from_millis(600)).acquire().await.unwrap();
    faults.next(Operation::Release, Fault::FailBefore(ErrorCode::AuthFailed));
    drop(unlucky);
    let before = faults.calls(Operation::Extend);
    eventually("renewed meanwhile", async || faults.calls(Operation::Extend) >= before + 4).await;
    assert_eq!(guard.state(), LockState::Held);
    drop(go);
}

#[tokio::test]
async fn work_that_ends_after_the_lease_is_not_a_success() {
    let world = World::new();
    let clock = world.clock.clone();
    let request = world.locks().lock("k").heartbeat(false);
    let error = request.run(|_| async move { clock.advance(TTL * 2) }).await.unwrap_err();
    assert_eq!((error.code(), error.loss()), (ErrorCode::LockLost, Some(Loss::Expired)));
}
