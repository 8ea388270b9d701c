//! Cancelled and ambiguous acquires leave no orphans.

use std::time::Duration;

use leasehold::{ErrorCode, Fault, Operation, Owner};

use crate::support::{TTL, World, eventually, poll_then_drop};

/// The places at which a call can be cut: before and after the store did it, and while it waits for its turn.
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
            let locks = world.builder().operation_timeout(Duration::from_secs(1)).build();
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
            let locks = world.builder().operation_timeout(Duration::from_secs(1)).build();
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
