//! Giving everything back.

use std::time::Duration;

use leasehold::memory::Memory;
use leasehold::testing::{Fault, FaultLayer};
use leasehold::{ErrorCode, Locks, Loss, Operation};
use test_support::{eventually, key, soon};

use crate::support::World;

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

#[tokio::test]
async fn shutdown_waits_until_the_acquires_it_aborts_are_undone() {
    let world = World::new();
    let locks = world.locks();
    world.faults.next(Operation::Acquire, Fault::DelayAfter(Duration::from_millis(50)));
    let acquiring = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k").acquire().await.map(drop) }
    });
    eventually("the acquire landed", async || world.memory.len() == 1).await;
    locks.shutdown().await.unwrap();
    assert!(world.memory.is_empty());
    assert_eq!(acquiring.await.unwrap().unwrap_err().code(), ErrorCode::Aborted);
}

#[test]
fn a_lock_granted_during_shutdown_is_not_handed_out() {
    let memory = Memory::new();
    let (store, faults) = FaultLayer::new(memory.clone());
    let (arrived, wait_arrived) = std::sync::mpsc::channel();
    let (go, wait_go) = std::sync::mpsc::channel::<()>();
    let wait_go = std::sync::Mutex::new(wait_go);
    faults.on_call(Operation::Acquire, move || {
        arrived.send(()).unwrap();
        wait_go.lock().unwrap().recv().unwrap();
    });
    let locks = Locks::new(store);
    let on_a_runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let taker = std::thread::spawn({
        let locks = locks.clone();
        move || on_a_runtime().block_on(async move { locks.lock("k").acquire().await.map(drop) })
    });
    wait_arrived.recv().unwrap();
    let closer = std::thread::spawn(move || on_a_runtime().block_on(async move { locks.shutdown().await }));
    std::thread::sleep(Duration::from_millis(50));
    go.send(()).unwrap();
    assert_eq!(taker.join().unwrap().unwrap_err().code(), ErrorCode::Aborted);
    closer.join().unwrap().unwrap();
    assert!(memory.is_empty());
}

#[tokio::test]
async fn shutdown_gives_up_on_a_store_that_is_down_after_the_release_timeout() {
    let world = World::new();
    let locks = world.builder().release_timeout(Duration::from_secs(2)).build();
    let _guard = locks.lock("k").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    world.faults.always(Operation::Release, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    drop(locks.lock("dropped").ttl(Duration::from_secs(3600)).acquire().await.unwrap());
    let started = world.clock.now();
    let closing = tokio::spawn(async move { locks.shutdown().await });
    eventually("it gives up", async || {
        world.clock.advance(Duration::from_millis(100));
        closing.is_finished()
    })
    .await;
    assert_eq!(closing.await.unwrap().unwrap_err().code(), ErrorCode::ServiceUnavailable);
    let took = world.clock.now().since(started);
    assert!(took < Duration::from_secs(60), "{took:?} on the clock, which runs on while others are scheduled");
}

#[tokio::test]
async fn release_all_says_when_a_release_panicked() {
    let (store, faults) = FaultLayer::new(Memory::new());
    faults.on_call(Operation::Release, || panic!("a bug in the driver"));
    let locks = Locks::new(store);
    let _guard = locks.lock("k").acquire().await.unwrap();
    assert_eq!(locks.release_all().await.unwrap_err().code(), ErrorCode::Internal);
}

#[tokio::test]
async fn shutdown_says_how_many_locks_it_could_not_give_back() {
    let (store, faults) = FaultLayer::new(Memory::new());
    let locks = Locks::builder(store).release_timeout(Duration::from_millis(300)).build();
    let ttl = Duration::from_secs(600);
    let mut guards = Vec::new();
    for number in 0..200 {
        guards.push(locks.lock(format!("k{number}")).ttl(ttl).acquire().await.unwrap());
    }
    faults.always(Operation::Release, Fault::HangBefore);
    guards.truncate(50);
    let error = locks.shutdown().await.unwrap_err();
    assert!(error.to_string().contains("200 locks could not be given back"), "{error}");
    assert!(error.hint().unwrap().contains("ttl"));
}

#[tokio::test]
async fn shutdown_waits_for_as_long_as_releases_come_to_an_end() {
    let memory = Memory::new();
    let (store, faults) = FaultLayer::new(memory.clone());
    let locks = Locks::builder(store).release_timeout(Duration::from_millis(500)).build();
    let mut guards = Vec::new();
    for number in 0..640 {
        guards.push(locks.lock(format!("k{number}")).ttl(Duration::from_secs(600)).acquire().await.unwrap());
    }
    // Ten requests in two lanes take three times the release timeout.
    faults.always(Operation::Release, Fault::DelayBefore(Duration::from_millis(300)));
    drop(guards);
    assert_eq!(locks.shutdown().await.unwrap(), 0);
    assert_eq!(memory.len(), 0);
}

#[tokio::test]
async fn every_shutdown_says_what_was_left() {
    let (store, faults) = FaultLayer::new(Memory::new());
    let locks = Locks::builder(store).release_timeout(Duration::from_millis(10)).build();
    let _guard = locks.lock("k").acquire().await.unwrap();
    faults.always(Operation::Release, Fault::FailBefore(ErrorCode::AuthFailed));
    for _ in 0..2 {
        let error = locks.shutdown().await.unwrap_err();
        assert!(error.to_string().contains("1 lock could not be given back"), "{error}");
    }
}

#[tokio::test]
async fn a_release_that_fails_after_the_handle_is_gone_is_reported() {
    for _ in 0..10 {
        let (store, faults) = FaultLayer::new(Memory::new());
        let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let hook = move |failure: &leasehold::ReleaseFailure<'_>| sender.send(failure.error.code()).unwrap();
        let locks = Locks::builder(store).on_release_error(hook).build();
        faults.always(Operation::Release, Fault::FailBefore(ErrorCode::AuthFailed));
        let guard = locks.lock("k").acquire().await.unwrap();
        drop(locks);
        drop(guard);
        assert_eq!(soon("the report", heard.recv()).await, Some(ErrorCode::AuthFailed));
    }
}
