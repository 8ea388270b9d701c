//! A store whose clock is set while locks are held: the next answer shows it, and every lock of the
//! handle is verified at once. The handle's own clock hardly moves, so no renewal is ever due.

use std::time::Duration;

use leasehold::backend::{Backend, Line};
use leasehold::memory::Memory;
use leasehold::testing::{Fault, FaultLayer, Faults, ManualClock};
use leasehold::{ErrorCode, Guard, LockState, Locks, Loss, Operation, Steal};
use test_support::{eventually, granted, held, request, soon, ttl};

use crate::support::{HoldsUpAnswers, TTL};

const HOUR: Duration = Duration::from_secs(3600);

/// A handle and a rival on a store that has a clock of its own.
struct World {
    store_clock: ManualClock,
    clock: ManualClock,
    faults: Faults,
    locks: Locks,
    rival: Locks,
}

impl World {
    fn new() -> Self {
        Self::with(|memory| memory)
    }

    /// With a store around the one in memory.
    fn with<B: Backend>(store: impl FnOnce(Memory) -> B) -> Self {
        let (store_clock, clock) = (ManualClock::new(), ManualClock::new());
        let memory = Memory::with_clock(&store_clock);
        let (store, faults) = FaultLayer::new(store(memory.clone()));
        let locks = Locks::builder(store).clock(&clock).build();
        let rival = Locks::builder(memory).clock(&clock).build();
        Self { store_clock, clock, faults, locks, rival }
    }

    /// Any answer of the store.
    async fn ask(&self) {
        self.locks.lock("other").try_acquire().await.unwrap().unwrap().release().await.unwrap();
    }

    /// The store's clock is set forward, and the handle hears of it a moment later.
    async fn step(&self, size: Duration) {
        self.store_clock.advance(size);
        self.clock.advance(Duration::from_millis(1));
        self.ask().await;
    }

    /// Waits until the keeper is through with what it was doing.
    async fn keeper_is_through(&self) {
        let guard = self.locks.lock("barrier").heartbeat(false).acquire().await.unwrap();
        for _ in 0..2 {
            guard.extend(TTL).await.unwrap();
        }
        guard.release().await.unwrap();
    }
}

/// A handle on a store that holds up answers.
fn with_held_up_answers() -> (World, HoldsUpAnswers) {
    let mut held_up = None;
    let world = World::with(|memory| held_up.insert(HoldsUpAnswers::new(memory)).clone());
    (world, held_up.unwrap())
}

async fn take(world: &World, name: &str, count: usize, heartbeat: bool) -> Vec<Guard> {
    let mut guards = Vec::new();
    for number in 0..count {
        guards.push(world.locks.lock(format!("{name}{number}")).heartbeat(heartbeat).acquire().await.unwrap());
    }
    guards
}

#[tokio::test]
async fn a_clock_set_forward_ends_the_locks_that_others_may_have() {
    for heartbeat in [true, false] {
        let world = World::new();
        let guard = world.locks.lock("k").heartbeat(heartbeat).acquire().await.unwrap();
        world.store_clock.advance(HOUR);
        let rival = world.rival.lock("k").try_acquire().await.unwrap().unwrap();
        assert_eq!(guard.state(), LockState::Held, "nothing was heard from the store yet");
        world.ask().await;
        assert_eq!(soon("the loss", guard.lost()).await, Loss::Gone);
        assert_eq!(rival.state(), LockState::Held);
    }
}

#[tokio::test]
async fn a_refused_request_shows_it_too() {
    let world = World::new();
    let guard = world.locks.lock("k").acquire().await.unwrap();
    let _rival = world.rival.lock("taken").ttl(HOUR * 2).acquire().await.unwrap();
    world.store_clock.advance(HOUR);
    assert!(world.locks.lock("taken").try_acquire().await.unwrap().is_none());
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Gone);
}

#[tokio::test]
async fn an_extend_shows_it_to_the_other_locks() {
    let world = World::new();
    let short = world.locks.lock("short").acquire().await.unwrap();
    let long = world.locks.lock("long").ttl(HOUR * 2).heartbeat(false).acquire().await.unwrap();
    world.store_clock.advance(HOUR);
    long.extend(HOUR * 2).await.unwrap();
    assert_eq!(soon("the loss", short.lost()).await, Loss::Gone);
    assert_eq!(long.state(), LockState::Held);
}

#[tokio::test]
async fn what_is_left_of_a_lease_shrinks_with_the_step_or_is_renewed() {
    let world = World::new();
    let renewed = world.locks.lock("renewed").acquire().await.unwrap();
    let left = world.locks.lock("left").heartbeat(false).acquire().await.unwrap();
    assert_eq!((renewed.remaining(), left.remaining()), (TTL, TTL));
    let step = Duration::from_secs(10);
    world.store_clock.advance(step);
    world.ask().await;
    eventually("the shorter lease is known", async || left.remaining() <= TTL - step).await;
    assert_eq!(left.state(), LockState::Held);
    eventually("the other was renewed", async || world.faults.answers(Operation::Extend) == 1).await;
    assert_eq!(renewed.remaining(), TTL);
}

#[tokio::test]
async fn a_lock_that_could_not_be_verified_is_asked_for_again() {
    let world = World::new();
    let renewed = world.locks.lock("renewed").acquire().await.unwrap();
    let left = world.locks.lock("left").heartbeat(false).acquire().await.unwrap();
    for operation in [Operation::Extend, Operation::Lookup] {
        world.faults.always(operation, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    }
    world.store_clock.advance(Duration::from_secs(10));
    world.ask().await;
    eventually("the failure is noticed", async || renewed.state() == LockState::Uncertain).await;
    for operation in [Operation::Extend, Operation::Lookup] {
        world.faults.clear(operation);
    }
    eventually("both are verified", async || {
        world.clock.advance(Duration::from_millis(20));
        world.store_clock.advance(Duration::from_millis(20));
        renewed.state() == LockState::Held && world.faults.answers(Operation::Lookup) > 0
    })
    .await;
    assert!(left.remaining() < TTL - Duration::from_secs(10));
}

#[tokio::test]
async fn a_clock_set_back_takes_no_lock_away() {
    let world = World::new();
    let guard = world.locks.lock("k").acquire().await.unwrap();
    world.store_clock.set_back(HOUR);
    world.ask().await;
    eventually("it is verified", async || world.faults.answers(Operation::Extend) == 1).await;
    assert_eq!(guard.state(), LockState::Held);
    assert!(world.rival.lock("k").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_clock_that_drifts_is_not_taken_for_one_that_was_set() {
    let world = World::new();
    let guard = world.locks.lock("k").acquire().await.unwrap();
    for _ in 0..20 {
        world.store_clock.advance(Duration::from_millis(900));
        world.ask().await;
    }
    guard.release().await.unwrap();
    world.locks.shutdown().await.unwrap();
    assert_eq!(world.faults.calls(Operation::Extend), 0, "nothing was verified");
}

#[tokio::test]
async fn a_waiter_takes_what_is_stuck_by_its_own_clock_if_the_stores_was_set_back() {
    let world = World::new();
    let stuck = world.rival.lock("k").ttl(HOUR * 24).heartbeat(false).acquire().await.unwrap();
    world.store_clock.set_back(HOUR);
    let steal = Steal::NEVER.with_held_longer_than(Duration::from_secs(60));
    let waiter = tokio::spawn(world.locks.lock("k").steal(steal).wait_forever().acquire());
    eventually("it waits", async || world.faults.answers(Operation::Acquire) > 0).await;
    let mut waited = Duration::ZERO;
    eventually("stolen", async || {
        let second = Duration::from_secs(1);
        world.store_clock.advance(second);
        world.clock.advance(second);
        waited += second;
        waiter.is_finished()
    })
    .await;
    let thief = waiter.await.unwrap().unwrap();
    assert!(thief.fence() > stuck.fence());
    assert!(waited > Duration::from_secs(60), "{waited:?}");
    assert!(thief.acquired_at() < stuck.acquired_at(), "by the store's clock it was never held at all");
}

const STEP: Duration = Duration::from_secs(10);

#[tokio::test]
async fn two_locks_are_looked_up_at_a_time_and_only_after_the_renewals_were_sent() {
    let (world, store) = with_held_up_answers();
    let renewed = take(&world, "renewed", 5 * 64, true).await;
    let left = take(&world, "left", 50, false).await;
    store.extends.stop_only(&renewed);
    store.extends.set_open(false);
    store.lookups.set_open(false);
    world.step(STEP).await;
    eventually("renewals are on their way", async || store.extends.reached() == 4 * 64).await;
    world.keeper_is_through().await;
    assert_eq!(store.lookups.reached(), 0, "while renewals wait");

    store.extends.set_open(true);
    eventually("lookups are on their way", async || store.lookups.reached() == 2).await;
    eventually("all others are renewed", async || renewed.iter().all(|guard| guard.remaining() == TTL)).await;
    world.keeper_is_through().await;
    assert_eq!(store.lookups.reached(), 2, "while these two are not answered");
    store.lookups.set_open(true);
    eventually("the shorter leases are known", async || left.iter().all(|guard| guard.remaining() <= TTL - STEP)).await;
    assert_eq!(world.faults.most_at_once(Operation::Lookup), 2);
}

#[tokio::test]
async fn a_lock_that_waits_to_be_looked_up_is_lost_in_time() {
    let (world, store) = with_held_up_answers();
    let left = take(&world, "left", 5, false).await;
    store.lookups.set_open(false);
    world.step(STEP).await;
    eventually("lookups are on their way", async || store.lookups.reached() == 2).await;
    world.clock.advance(TTL);
    world.store_clock.advance(TTL);
    for guard in &left {
        assert_eq!(soon("the loss", guard.lost()).await, Loss::Expired);
    }
    world.keeper_is_through().await;
    assert_eq!(world.locks.release_all().await.unwrap(), 0, "the keeper has noticed");
}

#[tokio::test]
async fn an_extend_that_was_confirmed_meanwhile_tells_more_than_a_lookup() {
    let (world, store) = with_held_up_answers();
    let guard = world.locks.lock("k").heartbeat(false).acquire().await.unwrap();
    store.lookups.set_open(false);
    world.step(STEP).await;
    eventually("the old expiry was read", async || store.lookups.reached() == 1).await;
    guard.extend(TTL * 10).await.unwrap();
    assert_eq!(guard.remaining(), TTL * 10);
    store.lookups.set_open(true);
    eventually("the old expiry is heard of", async || store.lookups.passed() == 1).await;
    world.keeper_is_through().await;
    assert_eq!(guard.remaining(), TTL * 10);
}

#[tokio::test]
async fn a_lock_that_seemed_gone_before_an_extend_was_confirmed_is_not_lost() {
    let (world, store) = with_held_up_answers();
    let guard = world.locks.lock("k").heartbeat(false).acquire().await.unwrap();
    store.lookups.set_open(false);
    world.step(HOUR).await;
    eventually("it was not found", async || store.lookups.reached() == 1).await;
    world.store_clock.set_back(HOUR);
    world.clock.advance(Duration::from_millis(1));
    guard.extend(TTL).await.unwrap();
    store.lookups.set_open(true);
    eventually("that is heard of", async || store.lookups.passed() > 0).await;
    world.keeper_is_through().await;
    assert_eq!(guard.state(), LockState::Held);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn an_extend_that_was_answered_before_the_step_does_not_end_the_doubt() {
    for lookup_first in [false, true] {
        let (world, store) = with_held_up_answers();
        let guard = world.locks.lock("k").heartbeat(false).acquire().await.unwrap();
        store.extends.set_open(false);
        store.lookups.set_open(false);
        let extend = tokio::spawn({
            let lease = guard.lease().clone();
            async move { lease.extend(TTL).await }
        });
        eventually("the store has extended it", async || store.extends.reached() == 1).await;
        world.step(STEP).await;
        eventually("the true expiry was read", async || store.lookups.reached() == 1).await;
        if lookup_first {
            store.lookups.set_open(true);
            eventually("the true expiry is known", async || guard.remaining() <= TTL - STEP).await;
        }
        store.extends.set_open(true);
        soon("the extend", extend).await.unwrap().unwrap();
        store.lookups.set_open(true);
        eventually("the true expiry is known", async || guard.remaining() <= TTL - STEP).await;
    }
}

#[tokio::test]
async fn a_renewal_that_was_answered_before_the_step_is_made_again() {
    let (world, store) = with_held_up_answers();
    let guard = world.locks.lock("k").acquire().await.unwrap();
    store.extends.set_open(false);
    world.clock.advance(TTL / 3);
    world.store_clock.advance(TTL / 3);
    eventually("the store has extended it", async || store.extends.reached() == 1).await;
    world.step(STEP).await;
    let before = guard.remaining();
    store.extends.set_open(true);
    eventually("it is renewed again", async || guard.remaining() == TTL).await;
    assert!(before < TTL && store.extends.passed() == 2, "{before:?}");
}

#[tokio::test]
async fn an_extend_that_fails_does_not_end_the_doubt() {
    let (world, store) = with_held_up_answers();
    let left = take(&world, "left", 3, false).await;
    store.lookups.set_open(false);
    world.step(STEP).await;
    eventually("two are looked up and one waits", async || store.lookups.reached() == 2).await;
    for guard in &left {
        world.faults.next(Operation::Extend, Fault::FailBefore(ErrorCode::ServiceUnavailable));
        guard.extend(TTL).await.unwrap_err();
    }
    store.lookups.set_open(true);
    eventually("the shorter leases are known", async || left.iter().all(|guard| guard.remaining() <= TTL - STEP)).await;
}

#[tokio::test]
async fn who_was_called_before_the_step_back_and_does_not_come_keeps_the_lock_for_no_longer() {
    let clock = ManualClock::new();
    clock.advance(2 * HOUR);
    let store = Memory::with_clock(&clock);
    let joining = || request("k").with_line(Line::Join { lease: ttl(60_000) });
    let (holder, dead, next) = (request("k"), joining(), joining());
    granted(&store, &holder).await;
    held(&store, &dead).await;
    store.release(&holder.lock_id).await.unwrap();
    clock.set_back(HOUR);
    held(&store, &next).await;
    clock.advance(Line::CALL_LEASE);
    granted(&store, &next).await;
}
