//! Locks that travel together: none has to suffer for another, and no lane is kept from those that
//! need it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::memory::Memory;
use leasehold::testing::{Fault, FaultLayer, Faults, ManualClock};
use leasehold::{ErrorCode, Guard, LockState, Locks, Loss, Operation};
use test_support::{eventually, soon};

use crate::support::{AnswersForSome, HoldsUpExtends, PanicsForOne, TTL, World};

/// A handle whose renewals can be held up on their way.
struct HeldUp {
    clock: ManualClock,
    store: HoldsUpExtends,
    faults: Faults,
    locks: Locks,
}

impl HeldUp {
    fn new() -> Self {
        let clock = ManualClock::new();
        let store = HoldsUpExtends::new(Memory::with_clock(&clock));
        let (layer, faults) = FaultLayer::new(store.clone());
        let locks = Locks::builder(layer).clock(&clock).call_timeout(Duration::from_secs(3600)).build();
        Self { clock, store, faults, locks }
    }

    async fn take(&self, name: &str, count: usize, ttl: Duration) -> Vec<Guard> {
        let mut guards = Vec::new();
        for number in 0..count {
            guards.push(self.locks.lock(format!("{name}{number}")).ttl(ttl).acquire().await.unwrap());
        }
        guards
    }

    /// Waits until the keeper is through with what it was doing. Only other extends may be held up.
    async fn keeper_is_through(&self) {
        let guard = self.locks.lock("barrier").heartbeat(false).acquire().await.unwrap();
        for _ in 0..2 {
            guard.extend(TTL).await.unwrap();
        }
        guard.release().await.unwrap();
    }

    async fn renewed(&self, guard: &Guard, ttl: Duration) {
        eventually("renewed", async || guard.remaining() == ttl && guard.state() == LockState::Held).await;
    }
}

#[tokio::test]
async fn a_lease_that_ends_while_its_renewal_is_on_its_way_takes_no_other_with_it() {
    let world = HeldUp::new();
    world.faults.always(Operation::Extend, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    let ending = world.locks.lock("ending").acquire().await.unwrap();
    world.clock.advance(TTL / 2);
    let other = world.locks.lock("other").acquire().await.unwrap();
    world.clock.advance(TTL / 3);
    for guard in [&ending, &other] {
        eventually("it waits for the next try", async || guard.state() == LockState::Uncertain).await;
    }
    // Nothing is sent before the clock goes on.
    world.faults.clear(Operation::Extend);
    world.store.extends.stop_only([&ending, &other]);
    let (rest, left) = (Duration::from_millis(300), ending.remaining());
    world.clock.advance(left - rest);
    eventually("both are on their way", async || world.store.extends.reached() == 2).await;
    world.clock.advance(rest);
    assert_eq!(soon("the loss", ending.lost()).await, Loss::Expired);
    world.keeper_is_through().await;
    world.store.extends.set_open(true);
    eventually("the other is renewed", async || other.state() == LockState::Held).await;
    assert_eq!(other.remaining(), TTL - rest, "by the same request");
}

#[tokio::test]
async fn a_lease_that_is_certain_for_a_moment_only_does_not_travel_with_long_ones() {
    let world = HeldUp::new();
    let (long, moment) = (Duration::from_secs(600), Duration::from_secs(3));
    let fails = Fault::FailBefore(ErrorCode::ServiceUnavailable);
    world.faults.always(Operation::Extend, fails);
    let hanging = world.take("hanging", 1, long).await;
    world.store.extends.stop_only(&hanging);
    world.clock.advance(long / 3);
    eventually("it waits for the next try", async || hanging[0].state() == LockState::Uncertain).await;

    // Nothing is sent by the keeper while the clock stands still.
    let unsure = world.locks.lock("unsure").ttl(long).acquire().await.unwrap();
    world.faults.clear(Operation::Extend);
    world.faults.next(Operation::Extend, Fault::LoseBefore(ErrorCode::NetworkTimeout));
    unsure.extend(moment).await.unwrap_err();
    unsure.extend(long).await.unwrap();
    assert_eq!(unsure.remaining(), moment, "the first extend may still arrive");
    world.faults.always(Operation::Extend, fails);
    world.clock.advance(moment / 3);
    eventually("this one waits as well", async || {
        // Slowly enough for a keeper that is not scheduled, here and below.
        if unsure.remaining() > moment / 2 {
            world.clock.advance(Duration::from_millis(10));
        }
        unsure.state() == LockState::Uncertain
    })
    .await;

    world.faults.clear(Operation::Extend);
    eventually("renewed", async || {
        if unsure.remaining() > moment / 3 {
            world.clock.advance(Duration::from_millis(10));
        }
        unsure.state() == LockState::Held
    })
    .await;
    assert_eq!(hanging[0].state(), LockState::Uncertain);
}

#[tokio::test]
async fn what_is_urgent_gets_out_whatever_hangs() {
    let world = HeldUp::new();
    let (long, medium, short) = (Duration::from_secs(6000), Duration::from_secs(60), Duration::from_secs(3));
    let mut hanging = world.take("long", 4 * 64, long).await;
    world.store.extends.stop_only(&hanging);
    world.clock.advance(long / 3);
    eventually("all lanes hang", async || world.store.extends.reached() == 4 * 64).await;

    let lock = world.locks.lock("medium").ttl(medium).acquire().await.unwrap();
    world.clock.advance(medium / 3);
    world.renewed(&lock, medium).await;
    hanging.push(lock);
    world.store.extends.stop_only(&hanging);
    world.clock.advance(medium / 3);
    eventually("that one hangs as well", async || world.store.extends.reached() == 4 * 64 + 2).await;

    let lock = world.locks.lock("short").ttl(short).acquire().await.unwrap();
    for _ in 0..5 {
        world.clock.advance(short / 3);
        world.renewed(&lock, short).await;
    }
    assert_eq!(world.store.extends.reached(), 4 * 64 + 2 + 5, "all others hang all the while");
}

#[tokio::test]
async fn what_is_urgent_is_tried_again_while_the_one_that_tries_again_hangs() {
    let world = HeldUp::new();
    let (long, short) = (Duration::from_secs(6000), Duration::from_secs(3));
    let failure = Fault::FailBefore(ErrorCode::ServiceUnavailable);
    let hanging = world.take("long", 1, long).await;
    world.store.extends.stop_only(&hanging);
    world.faults.next(Operation::Extend, failure);
    world.clock.advance(long / 3);
    eventually("the next try hangs", async || {
        world.clock.advance(Duration::from_millis(10));
        world.store.extends.reached() == 1
    })
    .await;
    let lock = world.locks.lock("short").ttl(short).acquire().await.unwrap();
    world.faults.next(Operation::Extend, failure);
    world.clock.advance(short / 3);
    eventually("that one fails", async || lock.state() == LockState::Uncertain).await;
    eventually("it is renewed all the same", async || {
        // Slowly enough for a keeper that is not scheduled.
        if lock.remaining() > short / 3 {
            world.clock.advance(Duration::from_millis(10));
        }
        lock.state() == LockState::Held
    })
    .await;
    assert_eq!(world.store.extends.reached(), 2, "the other hangs all the while");
}

#[tokio::test]
async fn there_are_no_more_lanes_for_what_can_wait() {
    let world = HeldUp::new();
    let guards = world.take("k", 8 * 64, TTL).await;
    world.store.extends.stop_only(&guards);
    world.clock.advance(TTL / 3);
    eventually("all lanes hang", async || world.store.extends.reached() == 4 * 64).await;
    world.keeper_is_through().await;
    // The keeper's own extend was one more.
    assert_eq!(world.faults.most_at_once(Operation::Extend), 4 * 64 + 1);
    world.store.extends.set_open(true);
    eventually("all are renewed", async || guards.iter().all(|guard| guard.remaining() == TTL)).await;
    assert_eq!(world.faults.most_at_once(Operation::Extend), 4 * 64 + 1);
}

#[tokio::test]
async fn a_lock_for_which_the_driver_panics_is_the_only_one_that_is_not_renewed() {
    let clock = ManualClock::new();
    let store = PanicsForOne::new(Memory::with_clock(&clock));
    let locks = Locks::builder(store.clone()).clock(&clock).build();
    let mut guards = Vec::new();
    for number in 0..100 {
        guards.push(locks.lock(format!("k{number}")).acquire().await.unwrap());
    }
    store.panic_for(&guards[30]);
    clock.advance(TTL / 3);
    let broken = guards.swap_remove(30);
    let renewed = |guard: &Guard| guard.state() == LockState::Held && guard.remaining() > broken.remaining() + TTL / 4;
    eventually("all others are renewed", async || {
        // Slowly enough for a keeper that is not scheduled.
        if broken.remaining() > TTL / 3 {
            clock.advance(Duration::from_millis(10));
        }
        guards.iter().all(renewed)
    })
    .await;
    assert_eq!(broken.state(), LockState::Uncertain);
}

/// A handle whose failed releases are noted.
fn noting_failures(store: impl leasehold::backend::Backend) -> (Locks, Arc<Mutex<Vec<ErrorCode>>>) {
    let failures = Arc::new(Mutex::new(Vec::new()));
    let noted = failures.clone();
    let hook = move |failure: &leasehold::ReleaseFailure<'_>| noted.lock().unwrap().push(failure.error.code());
    (Locks::builder(store).on_release_error(hook).build(), failures)
}

async fn take(locks: &Locks, count: usize) -> Vec<Guard> {
    let mut guards = Vec::new();
    for number in 0..count {
        guards.push(locks.lock(format!("k{number}")).ttl(Duration::from_secs(600)).acquire().await.unwrap());
    }
    guards
}

#[tokio::test]
async fn a_driver_that_panics_once_leaves_no_lock_behind() {
    let memory = Memory::new();
    let (store, faults) = FaultLayer::new(memory.clone());
    let (locks, failures) = noting_failures(store);
    let guards = take(&locks, 64).await;
    let armed = AtomicBool::new(true);
    faults.on_call(Operation::Release, move || {
        assert!(!armed.swap(false, Ordering::SeqCst), "a bug in the driver");
    });
    drop(guards);
    locks.shutdown().await.unwrap();
    assert!(memory.is_empty() && failures.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_lock_for_which_the_driver_panics_is_the_only_one_that_is_left() {
    let memory = Memory::new();
    let store = PanicsForOne::new(memory.clone());
    let (locks, failures) = noting_failures(store.clone());
    let guards = take(&locks, 100).await;
    store.panic_for(&guards[30]);
    drop(guards);
    eventually("all others are given back", async || memory.len() == 1).await;
    eventually("it is reported", async || *failures.lock().unwrap() == [ErrorCode::Internal]).await;
}

#[tokio::test]
async fn releases_without_an_answer_are_sent_again() {
    let memory = Memory::new();
    let (locks, failures) = noting_failures(AnswersForSome(memory.clone()));
    drop(take(&locks, 200).await);
    locks.shutdown().await.unwrap();
    assert!(memory.is_empty() && failures.lock().unwrap().is_empty());
}

#[tokio::test]
async fn tries_that_may_be_late_are_released_with_others() {
    let world = World::new();
    let timeout = Duration::from_secs(10);
    let locks = world.builder().call_timeout(timeout).build();
    world.faults.always(Operation::Acquire, Fault::LoseBefore(ErrorCode::NetworkTimeout));
    for number in 0..300 {
        assert!(locks.lock(format!("k{number}")).try_acquire().await.is_err());
    }
    eventually("all are undone", async || world.faults.answers(Operation::Release) == 300).await;
    world.faults.always(Operation::Release, Fault::DelayBefore(Duration::from_millis(10)));
    eventually("all are released once more", async || {
        world.clock.advance(timeout / 100);
        world.faults.tries(Operation::Release) >= 600
    })
    .await;
    let at_once = world.faults.most_at_once(Operation::Release);
    assert!(at_once <= 2 * 64, "{at_once} releases at once");
}
