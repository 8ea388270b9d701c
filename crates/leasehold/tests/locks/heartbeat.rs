//! Heartbeats: they keep the lock, do not depend on the user's runtime, and stop when told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::memory::Memory;
use leasehold::testing::{Fault, FaultLayer, ManualClock};
use leasehold::{ErrorCode, LockState, Locks, Loss, Operation, TIME_TOLERANCE};
use test_support::eventually;

use crate::support::{HoldsUpExtends, TTL, World};

/// Moves time on in steps short enough for renewals to happen in between.
async fn live_through(world: &World, time: Duration) {
    let step = TTL / 3 + Duration::from_secs(1);
    let mut passed = Duration::ZERO;
    while passed < time {
        let before = world.faults.calls(Operation::Extend);
        world.clock.advance(step);
        passed += step;
        eventually("the lock was renewed", async || world.faults.calls(Operation::Extend) > before).await;
    }
}

#[tokio::test]
async fn a_lock_with_a_heartbeat_outlives_its_ttl_many_times_over() {
    let world = World::new();
    let guard = world.locks().lock("k").acquire().await.unwrap();
    live_through(&world, TTL * 5).await;
    eventually("held", async || guard.state() == LockState::Held).await;
    assert!(world.rival().lock("k").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn renewals_come_at_a_third_of_the_ttl_or_a_little_before() {
    let world = World::new();
    let guard = world.locks().lock("k").acquire().await.unwrap();
    let earliest = TTL / 3 - TTL / 3 / 8;
    world.clock.advance(earliest);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(world.faults.calls(Operation::Extend), 0);
    world.clock.advance(TTL / 3 - earliest);
    eventually("renewed", async || guard.remaining() == TTL).await;
    assert_eq!(world.faults.calls(Operation::Extend), 1);
}

#[test]
fn a_blocked_runtime_does_not_lose_the_lock() {
    let world = World::new();
    let locks = world.locks();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let guard = runtime.block_on(async { locks.lock("k").acquire().await.unwrap() });
    let fence = guard.fence();

    // Both threads of the runtime are in the middle of something.
    let (busy, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let block = |_| {
        let (busy, done) = (busy.clone(), done.clone());
        runtime.spawn(async move {
            busy.fetch_add(1, Ordering::SeqCst);
            while !done.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        })
    };
    let blocked: Vec<_> = (0..2).map(block).collect();
    test_servers::eventually("the runtime is blocked", || busy.load(Ordering::SeqCst) == 2);
    for _ in 0..9 {
        world.clock.advance(TTL / 3);
        test_servers::eventually("renewed", || guard.remaining() == TTL);
    }
    assert_eq!(guard.state(), LockState::Held);
    done.store(true, Ordering::SeqCst);
    runtime.block_on(async {
        for task in blocked {
            task.await.unwrap();
        }
        let rival = world.rival();
        assert!(rival.lock("k").try_acquire().await.unwrap().is_none());
        let record = rival.get_by_id(guard.lock_id()).await.unwrap().expect("the store still has it");
        assert_eq!(record.fence, fence);
        guard.release().await.unwrap();
    });
}

#[tokio::test]
async fn a_failing_renewal_makes_the_lock_uncertain_and_is_tried_again() {
    let world = World::new();
    let guard = world.locks().lock("k").acquire().await.unwrap();
    world.faults.always(Operation::Extend, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    world.clock.advance(TTL / 2);
    eventually("uncertain", async || guard.state() == LockState::Uncertain).await;
    world.faults.clear(Operation::Extend);
    eventually("held again", async || {
        world.clock.advance(Duration::from_millis(100));
        guard.state() == LockState::Held
    })
    .await;
    assert!(guard.remaining() > TTL / 2);
}

#[tokio::test]
async fn renewals_that_fail_to_the_end_lose_the_lock_at_the_deadline() {
    let world = World::new();
    let guard = world.locks().lock("k").acquire().await.unwrap();
    world.faults.always(Operation::Extend, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    world.clock.advance(TTL - Duration::from_millis(1));
    eventually("uncertain", async || guard.state() == LockState::Uncertain).await;
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(guard.lost().await, Loss::Expired);
}

#[tokio::test]
async fn a_store_that_never_answers_loses_the_lock_at_the_deadline() {
    let world = World::new();
    let guard = world.locks().lock("k").acquire().await.unwrap();
    for operation in [Operation::Extend, Operation::Release] {
        world.faults.always(operation, Fault::HangBefore);
    }
    world.clock.advance(TTL);
    assert_eq!(guard.lost().await, Loss::Expired);
}

#[tokio::test]
async fn a_renewal_that_hangs_is_cut_short_and_tried_again() {
    let world = World::new();
    let guard = world.locks().lock("k").acquire().await.unwrap();
    world.faults.next(Operation::Extend, Fault::HangBefore);
    world.clock.advance(TTL / 3);
    eventually("the renewal hangs", async || world.faults.most_at_once(Operation::Extend) == 1).await;
    eventually("renewed by a later try", async || {
        world.clock.advance(Duration::from_millis(100));
        world.faults.calls(Operation::Extend) == 1
    })
    .await;
    eventually("held", async || guard.state() == LockState::Held).await;
}

#[tokio::test]
async fn a_refused_renewal_fires_lost_and_stops_run_before_a_rival_can_be_granted() {
    let world = World::new();
    let locks = world.locks();
    let (entered, started) = tokio::sync::oneshot::channel();
    let stopped = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    struct SetOnDrop(std::sync::Arc<std::sync::atomic::AtomicBool>);
    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let flag = SetOnDrop(stopped.clone());
    world.faults.always(Operation::Extend, Fault::Refuse);
    let running = tokio::spawn(async move {
        let work = |lease: leasehold::Lease| async move {
            let _flag = flag;
            entered.send(lease).unwrap();
            std::future::pending::<()>().await;
        };
        locks.lock("k").run(work).await
    });
    let lease = started.await.unwrap();
    world.clock.advance(TTL / 3);
    assert_eq!(lease.lost().await, Loss::Gone);
    let error = running.await.unwrap().unwrap_err();
    assert_eq!((error.code(), error.loss()), (ErrorCode::LockLost, Some(Loss::Gone)));
    assert!(stopped.load(std::sync::atomic::Ordering::SeqCst), "the work was dropped");
    assert!(
        world.rival().lock("k").try_acquire().await.unwrap().is_none(),
        "the work stopped while the store still keeps others out"
    );
}

#[tokio::test]
async fn not_one_renewal_arrives_after_a_release_was_acknowledged() {
    let clock = ManualClock::new();
    let store = HoldsUpExtends::new(Memory::with_clock(&clock));
    let locks = Locks::builder(store.clone()).clock(&clock).build();
    for round in 1..=10 {
        store.extends.set_open(false);
        let guard = locks.lock("k").acquire().await.unwrap();
        clock.advance(TTL / 3);
        eventually("a renewal is on its way", async || store.extends.reached() == round).await;
        // A release may stop the renewal, or wait until it has arrived.
        let mut release = tokio::spawn(guard.release());
        let stopped = tokio::time::timeout(Duration::from_millis(50), &mut release).await;
        store.extends.set_open(true);
        match stopped {
            Ok(released) => released.unwrap().unwrap(),
            Err(_) => release.await.unwrap().unwrap(),
        }
        let arrived = store.extends.passed();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(store.extends.passed(), arrived, "in round {round}");
    }
}

#[tokio::test]
async fn no_renewal_is_sent_for_a_dropped_or_leaked_guard() {
    let world = World::new();
    let locks = world.locks();
    drop(locks.lock("a").acquire().await.unwrap());
    let _ = locks.lock("b").acquire().await.unwrap().leak();
    world.freed("a").await;
    world.clock.advance(TTL / 2);
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(world.faults.calls(Operation::Extend), 0);
}

#[tokio::test]
async fn max_hold_ends_the_lock_in_the_store_as_well() {
    let world = World::new();
    let guard = world.locks().lock("k").max_hold(TTL + TTL / 2).acquire().await.unwrap();
    world.clock.advance(TTL / 2);
    eventually("renewed", async || world.faults.calls(Operation::Extend) == 1).await;
    eventually("renewed", async || guard.remaining() == TTL).await;
    assert_eq!(guard.ensure(TTL + Duration::from_secs(1)).await.unwrap_err().loss(), Some(Loss::MaxHold));
    world.clock.advance(TTL);
    assert_eq!(guard.lost().await, Loss::MaxHold);
    world.clock.advance(TIME_TOLERANCE);
    assert!(world.rival().lock("k").try_acquire().await.unwrap().is_some(), "even though nobody released it");
}

#[tokio::test]
async fn a_renewal_near_the_end_of_max_hold_asks_for_no_more_than_is_left() {
    let world = World::new();
    let guard = world.locks().lock("k").max_hold(TTL / 3 * 4).acquire().await.unwrap();
    world.clock.advance(TTL / 2);
    eventually("renewed", async || guard.remaining() == TTL / 3 * 4 - TTL / 2).await;
    let record = world.rival().get_by_id(guard.lock_id()).await.unwrap().unwrap();
    assert_eq!(record.expires_at, record.acquired_at + TTL / 3 * 4);
}

#[tokio::test]
async fn a_lock_with_heartbeat_is_lost_when_the_whole_process_slept_past_the_deadline() {
    let clock = ManualClock::new();
    let locks = Locks::builder(Memory::with_clock(&clock)).clock(&clock).build();
    let guard = locks.lock("k").acquire().await.unwrap();
    clock.advance(TTL * 10);
    assert_eq!(guard.state(), LockState::Lost, "at once, before the keeper has noticed");
    assert_eq!(guard.lost().await, Loss::Expired);
}

#[tokio::test]
async fn max_hold_is_renewed_up_to_its_end_and_not_over_and_over() {
    let (store, faults) = FaultLayer::new(Memory::new());
    let request = Locks::new(store).lock("k").ttl(Duration::from_millis(600)).max_hold(Duration::from_millis(1000));
    let guard = request.acquire().await.unwrap();
    assert_eq!(guard.lost().await, Loss::MaxHold);
    let renewals = faults.calls(Operation::Extend);
    assert!(renewals < 10, "{renewals} renewals");
}

#[tokio::test]
async fn a_max_hold_shorter_than_the_ttl_ends_the_lock_in_the_store_as_well() {
    let world = World::new();
    let guard = world.locks().lock("k").max_hold(TTL / 3).acquire().await.unwrap();
    world.clock.advance(TTL / 3);
    assert_eq!(guard.lost().await, Loss::MaxHold);
    world.clock.advance(TIME_TOLERANCE);
    assert!(world.rival().lock("k").try_acquire().await.unwrap().is_some(), "even though nobody released it");
}

#[tokio::test]
async fn very_short_ttls_do_not_make_the_keeper_spin() {
    let (store, faults) = FaultLayer::new(Memory::new());
    let locks = Locks::new(store);
    for millis in [1, 2, 5] {
        let (before, started) = (faults.calls(Operation::Extend), Instant::now());
        let guard = locks.lock(format!("k{millis}")).ttl(Duration::from_millis(millis)).acquire().await.unwrap();
        let _ = tokio::time::timeout(Duration::from_millis(200), guard.lost()).await;
        let renewals = faults.calls(Operation::Extend) - before;
        assert!(renewals as u128 <= started.elapsed().as_millis() * 3 + 10, "{renewals} renewals of {millis} ms");
    }
}

/// Many locks, taken together.
async fn take(locks: &Locks, count: usize) -> Vec<leasehold::Guard> {
    let mut guards = Vec::with_capacity(count);
    for number in 0..count {
        guards.push(locks.lock(format!("k{number}")).acquire().await.unwrap());
    }
    guards
}

#[tokio::test]
async fn all_locks_pause_together_while_the_store_fails() {
    let world = World::new();
    let guards = take(&world.locks(), 300).await;
    world.faults.always(Operation::Extend, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    world.clock.advance(TTL / 3);
    eventually("the store is known to fail", async || world.faults.tries(Operation::Extend) >= 64).await;
    for _ in 0..100 {
        world.clock.advance(Duration::from_millis(10));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // A second of pauses of an eighth of a second at least, with 64 locks each; and what four lanes
    // had sent before.
    let tries = world.faults.tries(Operation::Extend);
    assert!(tries <= (8 + 4) * 64, "{tries} renewals of 300 locks in a second of failure");
    world.faults.clear(Operation::Extend);
    eventually("all are held again", async || {
        world.clock.advance(Duration::from_millis(10));
        guards.iter().all(|guard| guard.state() == LockState::Held)
    })
    .await;
}

#[tokio::test]
async fn a_store_that_is_back_just_before_the_deadline_loses_no_lock() {
    let world = World::new();
    let guards = take(&world.locks(), 300).await;
    world.faults.always(Operation::Extend, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    let back = Duration::from_millis(60);
    world.clock.advance(TTL - Duration::from_secs(2));
    eventually("it failed", async || guards.iter().any(|guard| guard.state() == LockState::Uncertain)).await;
    while guards[0].remaining() > back {
        world.clock.advance(Duration::from_millis(10));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    world.faults.clear(Operation::Extend);
    world.clock.advance(back / 2);
    eventually("all are held again", async || guards.iter().all(|guard| guard.state() == LockState::Held)).await;
}

#[tokio::test]
async fn locks_taken_together_are_not_renewed_at_the_same_moment() {
    let world = World::new();
    let locks = world.locks();
    let guards = take(&locks, 300).await;
    let barrier = locks.lock("barrier").heartbeat(false).acquire().await.unwrap();
    let (earliest, latest) = (TTL / 3 - TTL / 3 / 10, TTL / 3);
    world.clock.advance(earliest);
    let mut renewed = std::collections::BTreeSet::new();
    for _ in 0..20 {
        world.clock.advance((latest - earliest) / 20);
        // What the keeper does for us, it does after what was due.
        for _ in 0..2 {
            barrier.extend(TTL).await.unwrap();
        }
        renewed.insert(guards.iter().filter(|guard| guard.remaining() > TTL - earliest).count());
    }
    eventually("all were renewed", async || guards.iter().all(|guard| guard.remaining() > TTL - earliest)).await;
    assert!(renewed.len() > 5, "{renewed:?}");
}

#[tokio::test]
async fn a_short_lease_does_not_wait_behind_many_long_ones() {
    let world = World::new();
    let locks = world.locks();
    let _long = take(&locks, 1000).await;
    world.clock.advance(TTL / 3 - Duration::from_millis(1500));
    let ttl = Duration::from_secs(3);
    let short = locks.lock("short").ttl(ttl).acquire().await.unwrap();
    // All are due at once now, half of the others before this one, and the store is slow.
    world.faults.always(Operation::Extend, Fault::DelayBefore(Duration::from_millis(5)));
    let late = Arc::new(AtomicBool::new(false));
    world.faults.on_call(Operation::Extend, {
        let (late, faults, short) = (late.clone(), world.faults.clone(), short.lease().clone());
        move || {
            if faults.calls(Operation::Extend) > 5 * 64 && short.remaining() < ttl {
                late.store(true, Ordering::SeqCst);
            }
        }
    });
    world.clock.advance(Duration::from_millis(1500));
    eventually("all are renewed", async || world.faults.answers(Operation::Extend) == 1001).await;
    assert_eq!(short.remaining(), ttl);
    assert!(!late.load(Ordering::SeqCst), "it waited behind others");
}

#[tokio::test]
async fn dropped_guards_do_not_keep_renewals_waiting_nor_pile_up() {
    let (store, faults) = FaultLayer::new(Memory::new());
    let locks = Locks::new(store);
    let ttl = Duration::from_secs(2);
    let kept = locks.lock("kept").ttl(ttl).acquire().await.unwrap();
    faults.always(Operation::Release, Fault::DelayBefore(Duration::from_millis(20)));
    let (until, mut dropped) = (Instant::now() + ttl * 2, 0);
    while Instant::now() < until {
        drop(locks.lock(format!("k{dropped}")).acquire().await.unwrap());
        dropped += 1;
        assert_ne!(kept.state(), LockState::Lost);
    }
    let at_once = faults.most_at_once(Operation::Release);
    assert!(at_once <= 128, "{at_once} releases at once");
    let behind = dropped - faults.calls(Operation::Release);
    assert!(behind <= 5000, "{behind} releases of {dropped} are behind");
    assert!(dropped > 5000, "only {dropped} guards were dropped");
    faults.clear(Operation::Release);
    kept.release().await.unwrap();
    locks.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_renewal_that_hangs_keeps_no_other_from_being_tried_again() {
    let world = World::new();
    let locks = world.builder().call_timeout(Duration::from_secs(3600)).build();
    let long = Duration::from_secs(600);
    let _hanging = locks.lock("hanging").ttl(long).acquire().await.unwrap();
    world.faults.next(Operation::Extend, Fault::HangBefore);
    world.clock.advance(long / 3);
    eventually("the first one hangs", async || world.faults.tries(Operation::Extend) == 1).await;

    let ttl = Duration::from_secs(60);
    let other = locks.lock("other").ttl(ttl).acquire().await.unwrap();
    world.faults.next(Operation::Extend, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    world.clock.advance(ttl / 3);
    eventually("the other one failed", async || other.state() == LockState::Uncertain).await;
    eventually("and is renewed", async || {
        world.clock.advance(Duration::from_millis(10));
        other.state() == LockState::Held
    })
    .await;
    assert!(world.faults.tries(Operation::Extend) <= 3, "the first one hangs all the while");
}
