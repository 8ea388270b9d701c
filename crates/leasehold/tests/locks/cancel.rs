//! Cancelled and ambiguous acquires leave no orphans.

use std::time::Duration;

use leasehold::memory::Memory;
use leasehold::testing::{Fault, FaultLayer};
use leasehold::{ErrorCode, Locks, Operation, Owner};
use test_support::eventually;

use crate::support::{LandsLate, TTL, World, poll_then_drop};

/// The places at which a call can be cut: before and after the store did it, and while it waits for
/// its turn.
const STALLS: [Option<Fault>; 4] = [
    None,
    Some(Fault::DelayBefore(Duration::from_millis(2))),
    Some(Fault::DelayAfter(Duration::from_millis(2))),
    Some(Fault::HangAfter),
];

#[tokio::test]
async fn an_acquire_dropped_at_any_await_point_leaves_no_orphan() {
    for stall in STALLS {
        for polls in 0..12 {
            let world = World::new();
            let locks = world.builder().call_timeout(Duration::from_secs(1)).build();
            if let Some(stall) = stall {
                world.faults.always(Operation::Acquire, stall);
                world.faults.always(Operation::Subscribe, stall);
            }
            drop(poll_then_drop(locks.lock("k").acquire(), polls).await);
            // An answer that never comes is given up after the operation timeout.
            world.clock.advance(Duration::from_secs(1));
            world.freed("k").await;
        }
    }
}

#[tokio::test]
async fn a_waiting_acquire_dropped_at_any_await_point_leaves_no_orphan_and_blocks_nobody() {
    for stall in STALLS {
        for polls in 0..16 {
            let world = World::new();
            let locks = world.builder().call_timeout(Duration::from_secs(1)).build();
            let held = world.rival().lock("k").acquire().await.unwrap();
            if let Some(stall) = stall {
                world.faults.always(Operation::Acquire, stall);
            }
            let waiting = poll_then_drop(locks.lock("k").wait_forever().acquire(), polls);
            let release = async {
                tokio::time::sleep(Duration::from_millis(polls as u64 / 2)).await;
                held.release().await.unwrap();
            };
            let (waited, ()) = tokio::join!(waiting, release);
            drop(waited);
            world.faults.clear(Operation::Acquire);
            world.clock.advance(Duration::from_secs(1));
            world.freed("k").await;
            eventually("its place is given up", async || locks.waiters("k").await.unwrap().is_empty()).await;
            let again = locks.lock("k").try_acquire().await.unwrap();
            assert!(again.is_some(), "stalled by {stall:?}, dropped after {polls} polls");
        }
    }
}

#[tokio::test]
async fn a_run_dropped_at_any_await_point_leaves_no_orphan() {
    for polls in 0..8 {
        let world = World::new();
        let locks = world.locks();
        world.faults.always(Operation::Acquire, Fault::DelayAfter(Duration::from_millis(1)));
        world.faults.always(Operation::Release, Fault::DelayBefore(Duration::from_millis(1)));
        let run = locks.lock("k").run(|_| tokio::time::sleep(Duration::from_millis(1)));
        drop(poll_then_drop(run, polls).await);
        world.freed("k").await;
    }
}

#[tokio::test]
async fn a_try_whose_answer_was_lost_is_undone() {
    let world = World::new();
    world.faults.next(Operation::Acquire, Fault::FailAfter(ErrorCode::NetworkTimeout));
    let error = world.locks().lock("k").try_acquire().await.unwrap_err();
    assert!(error.outcome_unknown());
    world.freed("k").await;
}

#[tokio::test]
async fn an_acquire_whose_answer_was_lost_gets_the_same_grant_when_it_asks_again() {
    let world = World::new();
    world.faults.next(Operation::Acquire, Fault::FailAfter(ErrorCode::ServiceUnavailable));
    let locks = world.locks();
    let waiter = tokio::spawn(async move { locks.lock("k").acquire().await });
    eventually("the first try has landed", async || world.is_locked("k").await).await;
    let granted_at = world.clock.now().as_millis();
    eventually("the second try was made", async || {
        world.clock.advance(Duration::from_millis(10));
        waiter.is_finished()
    })
    .await;
    let guard = waiter.await.unwrap().unwrap();
    assert_eq!(guard.acquired_at().as_millis(), granted_at, "it did not block on its own lock");
    assert!(guard.remaining() < TTL, "validity counts from the first try");
    let store_says = guard.expires_at().as_millis() - world.clock.now().as_millis();
    assert!(guard.remaining().as_millis() <= u128::from(store_says));
}

#[tokio::test]
async fn a_grant_found_long_after_it_was_made_is_extended_before_it_is_handed_out() {
    let world = World::new();
    world.faults.next(Operation::Acquire, Fault::FailAfter(ErrorCode::ServiceUnavailable));
    let locks = world.locks();
    let waiter = tokio::spawn(async move { locks.lock("k").heartbeat(false).wait_forever().acquire().await });
    eventually("the first try has landed", async || world.is_locked("k").await).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    world.clock.advance(TTL - Duration::from_secs(1));
    let guard = waiter.await.unwrap().unwrap();
    assert_eq!(guard.remaining(), TTL);
    assert_eq!(world.faults.calls(Operation::Extend), 1);
}

#[tokio::test]
async fn an_acquire_that_gives_up_after_a_lost_answer_undoes_it() {
    let world = World::new();
    world.faults.always(Operation::Acquire, Fault::FailAfter(ErrorCode::ServiceUnavailable));
    let locks = world.locks();
    let waiter = tokio::spawn(async move { locks.lock("k").acquire().await });
    eventually("it gives up", async || {
        world.clock.advance(Duration::from_millis(50));
        waiter.is_finished()
    })
    .await;
    waiter.await.unwrap().unwrap_err();
    world.freed("k").await;
}

#[tokio::test]
async fn a_cancelled_acquire_with_an_owner_leaves_no_orphan() {
    for polls in 0..6 {
        let world = World::new();
        let locks = world.locks();
        let owner = Owner::new();
        world.faults.next(Operation::Acquire, Fault::DelayAfter(Duration::from_millis(2)));
        drop(poll_then_drop(locks.lock("k").reentrant(&owner).acquire(), polls).await);
        world.freed("k").await;
    }
}

/// Waits, without a runtime, until nothing is kept.
fn emptied(store: &Memory) {
    test_servers::eventually("the lock is given back", || store.is_empty());
}

#[test]
fn an_acquire_given_up_on_a_runtime_that_stands_still_afterwards_is_undone() {
    for stall in [Fault::DelayAfter(Duration::from_millis(100)), Fault::HangAfter] {
        let memory = Memory::new();
        let (store, faults) = FaultLayer::new(memory.clone());
        let locks = Locks::builder(store).call_timeout(Duration::from_millis(300)).build();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        faults.next(Operation::Acquire, stall);
        let acquire = locks.lock("k").ttl(Duration::from_secs(600)).acquire();
        assert!(runtime.block_on(poll_then_drop(acquire, 1)).is_none());
        emptied(&memory);
        let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        other.block_on(locks.shutdown()).unwrap();
    }
}

#[test]
fn an_acquire_whose_runtime_goes_away_is_undone() {
    for stall in [
        Fault::DelayAfter(Duration::from_millis(100)),
        Fault::DelayBefore(Duration::from_millis(100)),
        Fault::HangAfter,
    ] {
        let memory = Memory::new();
        let (store, faults) = FaultLayer::new(memory.clone());
        let locks = Locks::builder(store).call_timeout(Duration::from_millis(300)).build();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        faults.next(Operation::Acquire, stall);
        runtime.spawn({
            let locks = locks.clone();
            async move { locks.lock("k").acquire().await.map(drop) }
        });
        while faults.most_at_once(Operation::Acquire) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        runtime.shutdown_background();
        std::thread::sleep(Duration::from_millis(150));
        emptied(&memory);
    }
}

/// Like a connection that many share: a request that was sent lands even if nobody waits for it any
/// more. The first acquire takes its time.
fn lands_late(memory: &Memory) -> LandsLate {
    LandsLate::new(memory.clone())
}

#[tokio::test]
async fn a_try_that_lands_after_it_was_given_up_is_released_again() {
    let memory = Memory::new();
    let late = lands_late(&memory);
    let locks = Locks::builder(late.clone()).call_timeout(Duration::from_millis(200)).build();
    let error = locks.lock("k").ttl(Duration::from_secs(600)).try_acquire().await.unwrap_err();
    assert!(error.outcome_unknown());
    late.landed().await;
    eventually("it is released again", async || memory.is_empty()).await;
}

#[tokio::test]
async fn a_try_that_lands_after_its_handle_is_gone_is_released_again() {
    let memory = Memory::new();
    let late = lands_late(&memory);
    let locks = Locks::builder(late.clone()).call_timeout(Duration::from_millis(200)).build();
    assert!(locks.lock("k").ttl(Duration::from_secs(600)).try_acquire().await.is_err());
    drop(locks);
    late.landed().await;
    eventually("it is released again", async || memory.is_empty()).await;
}

#[tokio::test]
async fn a_first_try_that_lands_after_the_release_is_released_again() {
    let memory = Memory::new();
    let late = lands_late(&memory);
    let locks = Locks::builder(late.clone()).call_timeout(Duration::from_millis(200)).build();
    let guard = locks.lock("k").ttl(Duration::from_secs(600)).acquire().await.unwrap();
    guard.release().await.unwrap();
    late.landed().await;
    eventually("it is released again", async || memory.is_empty()).await;
}

#[tokio::test]
async fn a_first_try_that_lands_after_the_guard_was_dropped_or_all_was_released_is_released_again() {
    for release_all in [false, true] {
        let memory = Memory::new();
        let late = lands_late(&memory);
        let locks = Locks::builder(late.clone()).call_timeout(Duration::from_millis(200)).build();
        let guard = locks.lock("k").ttl(Duration::from_secs(600)).acquire().await.unwrap();
        if release_all {
            assert_eq!(locks.release_all().await.unwrap(), 1);
        }
        drop(guard);
        late.landed().await;
        eventually("it is released again", async || memory.is_empty()).await;
    }
}

#[tokio::test]
async fn a_refused_try_that_nobody_waited_for_does_not_excuse_an_earlier_one_of_unknown_outcome() {
    let world = World::new();
    let _held = world.rival().lock("k").acquire().await.unwrap();
    world.faults.next(Operation::Acquire, Fault::LoseBefore(ErrorCode::NetworkTimeout));
    world.faults.next(Operation::Acquire, Fault::DelayAfter(Duration::from_millis(50)));
    let locks = world.locks();
    let waiter = tokio::spawn(async move { locks.lock("k").wait_forever().acquire().await.map(drop) });
    eventually("the second try is on its way", async || {
        world.clock.advance(Duration::from_millis(10));
        world.faults.calls(Operation::Acquire) == 1
    })
    .await;
    waiter.abort();
    eventually("the id is released all the same", async || world.faults.calls(Operation::Release) >= 1).await;
}
