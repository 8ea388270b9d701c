//! Deadline arithmetic, with time that passes inside a call.

use std::sync::Mutex;
use std::time::Duration;

use leasehold::backend::Backend;
use leasehold::testing::Fault;
use leasehold::{ErrorCode, LockState, Locks, Loss, Operation};
use test_support::eventually;

use crate::support::{TTL, World};

/// A handle for which `time` passes inside every call of `operation`.
fn slow(world: &World, operation: Operation, time: Duration) -> Locks {
    let clock = world.clock.clone();
    world.faults.on_call(operation, move || clock.advance(time));
    world.locks()
}

#[tokio::test]
async fn an_extend_counts_from_the_moment_it_was_sent() {
    let world = World::new();
    let locks = slow(&world, Operation::Extend, Duration::from_secs(5));
    let guard = locks.lock("k").heartbeat(false).acquire().await.unwrap();
    guard.extend(TTL * 2).await.unwrap();
    assert_eq!(guard.remaining(), TTL * 2 - Duration::from_secs(5));
}

#[tokio::test]
async fn an_extend_confirmed_after_the_deadline_does_not_bring_the_lock_back() {
    let world = World::new();
    let locks = slow(&world, Operation::Extend, TTL + Duration::from_millis(500));
    let guard = locks.lock("k").heartbeat(false).acquire().await.unwrap();
    let error = guard.extend(TTL).await.unwrap_err();
    assert_eq!(world.faults.answers(Operation::Extend), 1, "the store did extend it");
    assert_eq!(error.loss(), Some(Loss::Expired));
    assert_eq!(guard.state(), LockState::Lost);
}

#[tokio::test]
async fn a_refreshed_grant_counts_from_the_moment_the_refresh_was_sent() {
    let world = World::new();
    let locks = slow(&world, Operation::Extend, Duration::from_secs(5));
    world.faults.next(Operation::Acquire, Fault::FailAfter(ErrorCode::ServiceUnavailable));
    let waiter = tokio::spawn(async move { locks.lock("k").heartbeat(false).wait_forever().acquire().await });
    eventually("the first try has landed", async || world.is_locked("k").await).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    world.clock.advance(TTL - Duration::from_secs(8));
    let guard = waiter.await.unwrap().unwrap();
    assert_eq!(guard.remaining(), TTL - Duration::from_secs(5));
}

#[tokio::test]
async fn a_try_that_certainly_failed_does_not_hide_that_an_earlier_one_may_have_landed() {
    let world = World::new();
    world.faults.next(Operation::Acquire, Fault::FailAfter(ErrorCode::ServiceUnavailable));
    world.faults.next(Operation::Acquire, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    let locks = world.locks();
    let waiter = tokio::spawn(async move { locks.lock("k").heartbeat(false).acquire().await });
    eventually("granted by the third try", async || {
        world.clock.advance(Duration::from_millis(10));
        waiter.is_finished()
    })
    .await;
    let guard = waiter.await.unwrap().unwrap();
    let store_says = guard.expires_at().as_millis() - world.clock.now().as_millis();
    assert!(guard.remaining().as_millis() <= u128::from(store_says), "{:?} > {store_says} ms", guard.remaining());
}

#[tokio::test]
async fn a_lost_try_that_lands_after_a_later_one_was_refused_counts_from_the_refusal() {
    let world = World::new();
    let held = world.rival().lock("k").acquire().await.unwrap().leak();
    // The first try is lost on its way. When the second has been refused, the rival goes, the first
    // lands after all, and ten seconds pass.
    world.faults.next(Operation::Acquire, Fault::LoseBefore(ErrorCode::NetworkTimeout));
    let (memory, clock) = (world.memory.clone(), world.clock.clone());
    let (refused, waiting) = tokio::sync::mpsc::unbounded_channel();
    let locks = world.locks();
    let waiter = tokio::spawn(async move {
        let tell = move |_: &leasehold::Contention| refused.send(()).unwrap();
        locks.lock("k").holder("late").heartbeat(false).wait_forever().on_contention(tell).acquire().await
    });
    let mut waiting = waiting;
    eventually("refused", async || {
        world.clock.advance(Duration::from_millis(10));
        waiting.try_recv().is_ok()
    })
    .await;
    memory.release(&held.lock_id).await.unwrap();
    clock.advance(Duration::from_secs(5));
    let guard = waiter.await.unwrap().unwrap();
    let store_says = guard.expires_at().as_millis() - world.clock.now().as_millis();
    assert!(guard.remaining().as_millis() <= u128::from(store_says), "{:?} > {store_says} ms", guard.remaining());
}

#[tokio::test]
async fn a_release_is_not_sent_while_an_extend_is_on_its_way() {
    let world = World::new();
    let (started, wait_started) = std::sync::mpsc::channel();
    let (go, wait_go) = std::sync::mpsc::channel::<()>();
    let wait_go = Mutex::new(wait_go);
    world.faults.on_call(Operation::Extend, move || {
        started.send(()).unwrap();
        let _ = wait_go.lock().unwrap().recv();
    });
    let guard = world.locks().lock("k").acquire().await.unwrap();
    world.clock.advance(TTL / 3);
    wait_started.recv().unwrap();
    let release = tokio::spawn(guard.release());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(world.faults.calls(Operation::Release), 0, "the renewal may still go out");
    go.send(()).unwrap();
    release.await.unwrap().unwrap();
    assert!(!world.is_locked("k").await);
}
