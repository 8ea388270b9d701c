//! Stealing and forced release: who may, and that the victim hears of it.

use std::time::Duration;

use leasehold::memory::Memory;
use leasehold::testing::{Fault, FaultLayer};
use leasehold::{ErrorCode, LockState, Locks, Loss, Operation, Steal};
use test_support::{eventually, key};

use crate::support::{TTL, World};

#[tokio::test]
async fn a_restarted_worker_takes_back_the_lock_it_left_behind() {
    let world = World::new();
    let before = world.locks().lock("k").holder("w-1").acquire().await.unwrap().leak();
    let steal = Steal::NEVER.with_same_holder();
    let other = world.rival().lock("k").holder("w-2").steal(steal).try_acquire().await.unwrap();
    assert!(other.is_none(), "another holder may not");
    let guard = world.rival().lock("k").holder("w-1").steal(steal).try_acquire().await.unwrap().unwrap();
    assert!(guard.fence() > before.fence);
    assert!(!world.rival().release(&before.lock_id).await.unwrap(), "the old id is dead");
    assert!(world.rival().owns(guard.lock_id()).await.unwrap());
}

#[tokio::test]
async fn a_lock_held_for_too_long_can_be_taken_and_not_before() {
    let world = World::new();
    let steal = Steal::NEVER.with_held_longer_than(Duration::from_secs(10));
    let _stuck = world.locks().lock("k").heartbeat(false).acquire().await.unwrap();
    world.clock.advance(Duration::from_secs(10));
    assert!(world.rival().lock("k").steal(steal).try_acquire().await.unwrap().is_none());
    world.clock.advance(Duration::from_millis(1));
    assert!(world.rival().lock("k").steal(steal).try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn the_victim_of_a_steal_is_told_at_once_and_its_work_stopped() {
    let world = World::new();
    let locks = world.locks();
    let running = tokio::spawn(async move { locks.lock("k").holder("w").run(|_| std::future::pending::<()>()).await });
    eventually("it runs, and listens", async || {
        world.is_locked("k").await && world.faults.answers(Operation::Subscribe) == 1
    })
    .await;
    let thief = world.rival();
    let guard = thief.lock("k").holder("w").steal(Steal::NEVER.with_same_holder()).acquire().await.unwrap();
    let error = running.await.unwrap().unwrap_err();
    assert_eq!((error.code(), error.loss()), (ErrorCode::LockLost, Some(Loss::Stolen)));
    assert_eq!(world.faults.calls(Operation::Extend), 0, "no time has passed, so it was not a renewal that noticed");
    assert_eq!(world.faults.calls(Operation::Release), 0, "there is nothing left to release");
    assert_eq!(guard.state(), LockState::Held);
}

#[tokio::test]
async fn a_victim_that_missed_the_news_learns_it_from_its_next_renewal() {
    let world = World::new();
    world.faults.drop_wake_ups(true);
    let guard = world.locks().lock("k").holder("w").acquire().await.unwrap();
    let steal = Steal::NEVER.with_same_holder();
    let thief = world.rival().lock("k").holder("w").steal(steal).acquire().await.unwrap();
    world.clock.advance(TTL / 3);
    assert_eq!(guard.lost().await, Loss::Gone);
    assert_eq!(guard.release().await.unwrap_err().code(), ErrorCode::LockLost);
    assert!(world.rival().owns(thief.lock_id()).await.unwrap(), "the victim cannot touch the thief's lock");
}

#[tokio::test]
async fn a_forced_release_tells_the_holder_and_lets_the_next_one_in() {
    let world = World::new();
    let guard = world.locks().lock("k").holder("w").acquire().await.unwrap();
    eventually("it listens", async || world.faults.answers(Operation::Subscribe) == 1).await;
    let waiter = tokio::spawn({
        let locks = world.rival();
        async move { locks.lock("k").wait_forever().acquire().await }
    });
    let ended = world.rival().force_release(&key("k")).await.unwrap().pop().unwrap();
    assert_eq!(ended.holder.unwrap().as_str(), "w");
    assert_eq!(ended.fence, guard.fence());
    assert_eq!(guard.lost().await, Loss::ForceReleased);
    assert!(waiter.await.unwrap().unwrap().fence() > guard.fence());
    assert!(world.rival().force_release(&key("free")).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_waiter_that_may_steal_does_so_as_soon_as_the_rule_allows() {
    let world = World::new();
    let stuck = world.locks().lock("k").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    let steal = Steal::NEVER.with_held_longer_than(Duration::from_secs(60));
    let locks = world.rival();
    let waiter = tokio::spawn(async move { locks.lock("k").steal(steal).wait_forever().acquire().await });
    eventually("stolen", async || {
        world.clock.advance(Duration::from_secs(1));
        waiter.is_finished()
    })
    .await;
    let thief = waiter.await.unwrap().unwrap();
    let held = thief.acquired_at().since(stuck.acquired_at());
    assert!(held > Duration::from_secs(60) && held < Duration::from_secs(63), "{held:?}");
}

#[tokio::test]
async fn a_steal_within_one_handle_is_not_taken_for_a_broken_store() {
    let world = World::new();
    let locks = world.locks();
    world.faults.next(Operation::Acquire, Fault::DelayAfter(Duration::from_millis(50)));
    let victim = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k").try_acquire().await.map(drop) }
    });
    eventually("the victim has the lock and does not know", async || world.is_locked("k").await).await;
    let thief = locks.lock("k").steal(Steal::NEVER.with_same_holder()).try_acquire().await.unwrap();
    let error = victim.await.unwrap().unwrap_err();
    assert_eq!(error.code(), ErrorCode::LockLost);
    assert_eq!(thief.unwrap().state(), LockState::Held);
}

#[tokio::test]
async fn a_steal_is_heard_of_even_after_the_driver_panicked_while_listening() {
    let (store, faults) = FaultLayer::new(Memory::new());
    let armed = std::sync::atomic::AtomicBool::new(true);
    faults.on_call(Operation::Subscribe, move || {
        assert!(!armed.swap(false, std::sync::atomic::Ordering::SeqCst), "a bug in the driver");
    });
    let locks = Locks::new(store.clone());
    let guard = locks.lock("k").heartbeat(false).holder("w").acquire().await.unwrap();
    eventually("it listens again", async || faults.answers(Operation::Subscribe) == 1).await;
    let thief = Locks::new(store).lock("k").holder("w").steal(Steal::NEVER.with_same_holder());
    let _thief = thief.try_acquire().await.unwrap().unwrap();
    assert_eq!(guard.lost().await, Loss::Stolen);
}
