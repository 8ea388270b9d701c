//! Guards: releasing, dropping, leaking, and the three states.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::memory::Memory;
use leasehold::testing::{Fault, FaultLayer};
use leasehold::{ErrorCode, LockState, Locks, Loss, Operation, TIME_TOLERANCE};
use test_support::{eventually, key};

use crate::support::{TTL, World, poll_then_drop};

#[tokio::test]
async fn an_explicit_release_frees_the_lock_before_it_returns() {
    let world = World::new();
    let guard = world.locks().lock("k").acquire().await.unwrap();
    assert!(world.is_locked("k").await);
    guard.release().await.unwrap();
    assert!(!world.is_locked("k").await);
}

#[tokio::test]
async fn dropping_a_guard_releases_the_lock_in_the_background() {
    let world = World::new();
    drop(world.locks().lock("k").acquire().await.unwrap());
    world.freed("k").await;
    assert_eq!(world.faults.calls(Operation::Release), 1);
}

#[tokio::test]
async fn a_guard_dropped_on_a_thread_without_a_runtime_is_released() {
    let world = World::new();
    let guard = world.locks().lock("k").acquire().await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    world.freed("k").await;
}

#[test]
fn a_guard_dropped_while_its_runtime_shuts_down_is_released() {
    let store = Memory::new();
    let locks = Locks::new(store.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (held, wait) = std::sync::mpsc::channel();
    runtime.spawn(async move {
        let _guard = locks.lock("k").acquire().await.unwrap();
        held.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    wait.recv().unwrap();
    assert_eq!(store.len(), 1);
    runtime.shutdown_background();
    test_servers::eventually("the lock is given back", || store.is_empty());
}

#[tokio::test]
async fn a_guard_dropped_by_a_panic_is_released() {
    let world = World::new();
    let locks = world.locks();
    let task = tokio::spawn(async move {
        let _guard = locks.lock("k").acquire().await.unwrap();
        panic!("the work failed");
    });
    assert!(task.await.unwrap_err().is_panic());
    world.freed("k").await;
}

#[tokio::test]
async fn releasing_a_lock_that_is_gone_says_that_it_was_lost() {
    let world = World::new();
    let guard = world.locks().lock("k").acquire().await.unwrap();
    world.memory_release(&guard).await;
    let error = guard.release().await.unwrap_err();
    assert_eq!((error.code(), error.loss()), (ErrorCode::LockLost, Some(Loss::Gone)));
}

impl World {
    async fn memory_release(&self, guard: &leasehold::Guard) {
        assert!(self.rival().release(guard.lock_id()).await.unwrap());
    }
}

#[tokio::test]
async fn releasing_after_the_deadline_says_that_it_was_lost_and_still_clears_the_record() {
    let world = World::new();
    let guard = world.locks().lock("k").heartbeat(false).acquire().await.unwrap();
    world.clock.advance(TTL);
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.loss(), Some(Loss::Expired));
    assert!(!world.is_locked("k").await, "others need not wait for the tolerance");
}

#[tokio::test]
async fn a_release_whose_answer_was_lost_is_repeated_and_counts_as_done() {
    let world = World::new();
    let (clock, faults) = (world.clock.clone(), world.faults.clone());
    let guard = world.locks().lock("k").acquire().await.unwrap();
    faults.next(Operation::Release, Fault::FailAfter(ErrorCode::ServiceUnavailable));
    let release = tokio::spawn(guard.release());
    eventually("the first try has failed", async || {
        clock.advance(Duration::from_millis(10));
        faults.calls(Operation::Release) == 2
    })
    .await;
    release.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_release_that_keeps_failing_is_reported_and_goes_on_in_the_background() {
    let world = World::new();
    let locks = world.builder().release_timeout(Duration::from_millis(200)).build();
    let guard = locks.lock("k").acquire().await.unwrap();
    world.faults.always(Operation::Release, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    let clock = world.clock.clone();
    let release = tokio::spawn(guard.release());
    eventually("the caller is told", async || {
        clock.advance(Duration::from_millis(10));
        release.is_finished()
    })
    .await;
    assert_eq!(release.await.unwrap().unwrap_err().code(), ErrorCode::ServiceUnavailable);
    assert!(world.is_locked("k").await);

    world.faults.clear(Operation::Release);
    eventually("the background has released it", async || {
        clock.advance(Duration::from_millis(10));
        !world.is_locked("k").await
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_release_still_happens() {
    let world = World::new();
    for polls in 0..4 {
        let guard = world.locks().lock("k").acquire().await.unwrap();
        if polls > 0 {
            world.faults.next(Operation::Release, Fault::HangBefore);
        }
        assert!(poll_then_drop(guard.release(), polls).await.is_none());
        world.freed("k").await;
    }
}

#[tokio::test]
async fn a_leaked_lock_is_neither_renewed_nor_released_and_can_be_handed_on() {
    let world = World::new();
    let locks = world.locks();
    let grant = locks.lock("k").acquire().await.unwrap().leak();
    world.clock.advance(TTL / 2);
    assert!(locks.owns(&grant.lock_id).await.unwrap());
    assert!(world.rival().extend(&grant.lock_id, leasehold::Ttl::default()).await.unwrap());
    assert!(world.rival().release(&grant.lock_id).await.unwrap());
    assert!(!world.rival().release(&grant.lock_id).await.unwrap(), "a release succeeds at most once");
    assert_eq!(world.faults.calls(Operation::Extend), 0);
    assert_eq!(world.faults.calls(Operation::Release), 0);
}

#[tokio::test]
async fn the_deadline_counts_from_the_moment_the_request_was_sent() {
    let store = leasehold::testing::FaultLayer::new(Memory::new());
    let delay = Duration::from_millis(150);
    store.1.next(Operation::Acquire, Fault::DelayAfter(delay));
    let guard = Locks::new(store.0).lock("k").acquire().await.unwrap();
    assert!(guard.remaining() <= TTL - delay, "{:?}", guard.remaining());
    assert!(guard.remaining() > TTL - Duration::from_secs(20));
}

#[tokio::test]
async fn a_lock_without_heartbeat_is_held_until_its_deadline_and_lost_at_it() {
    let world = World::new();
    let guard = world.locks().lock("k").heartbeat(false).acquire().await.unwrap();
    assert_eq!(guard.state(), LockState::Held);
    world.clock.advance(TTL - Duration::from_millis(1));
    assert_eq!((guard.state(), guard.remaining()), (LockState::Held, Duration::from_millis(1)));
    assert_eq!(guard.loss(), None);
    world.clock.advance(Duration::from_millis(1));
    assert_eq!((guard.state(), guard.remaining()), (LockState::Lost, Duration::ZERO));
    assert_eq!(guard.lost().await, Loss::Expired);
}

#[tokio::test]
async fn lost_fires_before_anybody_else_can_be_granted_the_lock() {
    let world = World::new();
    let guard = world.locks().lock("k").heartbeat(false).acquire().await.unwrap();
    world.clock.advance(TTL);
    assert_eq!(guard.lost().await, Loss::Expired);
    let rival = world.rival();
    assert!(rival.lock("k").try_acquire().await.unwrap().is_none(), "the tolerance belongs to nobody");
    world.clock.advance(TIME_TOLERANCE - Duration::from_millis(1));
    assert!(rival.lock("k").try_acquire().await.unwrap().is_none());
    world.clock.advance(Duration::from_millis(1));
    let taken = rival.lock("k").try_acquire().await.unwrap().expect("free at last");
    assert!(taken.fence() > guard.fence());

    let error = guard.release().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::LockLost);
    assert!(rival.owns(taken.lock_id()).await.unwrap(), "the late release did not touch the rival's lock");
}

#[tokio::test]
async fn a_failed_release_in_the_background_is_reported_once_and_a_panicking_hook_is_ignored() {
    let world = World::new();
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let locks = world
        .builder()
        .on_release_error(move |failure| {
            sender.send((failure.key.clone(), failure.error.code())).unwrap();
            panic!("the hook is broken");
        })
        .build();
    world.faults.always(Operation::Release, Fault::FailBefore(ErrorCode::AuthFailed));
    for _ in 0..2 {
        let guard = locks.lock("k").acquire().await.unwrap();
        let id = *guard.lock_id();
        drop(guard);
        assert_eq!(heard.recv().await.unwrap(), (key("k"), ErrorCode::AuthFailed));
        world.rival().release(&id).await.unwrap();
    }
    assert!(heard.try_recv().is_err());
}

#[tokio::test]
async fn a_guard_shows_neither_key_nor_lock_id() {
    let world = World::new();
    let guard = world.locks().lock("user:alice").acquire().await.unwrap();
    let shown = format!("{guard:?} {:?}", guard.lease());
    assert!(!shown.contains("alice") && !shown.contains(guard.lock_id().expose()), "{shown}");
}

#[tokio::test]
async fn a_cancelled_release_that_arrived_is_no_failure() {
    let world = World::new();
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let locks = world.builder().on_release_error(move |failure| sender.send(failure.error.code()).unwrap()).build();
    let guard = locks.lock("k").acquire().await.unwrap();
    world.faults.next(Operation::Release, Fault::HangAfter);
    assert!(poll_then_drop(guard.release(), 2).await.is_none());
    eventually("the background has asked again", async || world.faults.answers(Operation::Release) == 2).await;
    locks.shutdown().await.unwrap();
    assert_eq!(heard.try_recv().ok(), None);
}

#[tokio::test]
async fn a_lock_that_was_lost_and_is_gone_is_not_reported_as_left_behind() {
    let world = World::new();
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let locks = world.builder().on_release_error(move |failure| sender.send(failure.error.code()).unwrap()).build();
    for late in [Duration::ZERO, TTL] {
        let guard = locks.lock("k").heartbeat(false).acquire().await.unwrap();
        world.clock.advance(TTL + late);
        guard.lost().await;
        drop(guard);
    }
    locks.shutdown().await.unwrap();
    assert_eq!(heard.try_recv().ok(), None);
}

#[tokio::test]
async fn a_release_that_was_in_time_and_only_slow_is_no_loss() {
    for dropped in [false, true] {
        let world = World::new();
        let failures = Arc::new(Mutex::new(Vec::new()));
        let seen = failures.clone();
        let hook = move |failure: &leasehold::ReleaseFailure<'_>| seen.lock().unwrap().push(failure.error.clone());
        let locks = world.builder().on_release_error(hook).build();
        let guard = locks.lock("k").heartbeat(false).acquire().await.unwrap();
        let clock = world.clock.clone();
        world.faults.on_call(Operation::Release, move || clock.advance(TTL + TIME_TOLERANCE * 2));
        if dropped {
            drop(guard);
            eventually("it was released", async || world.faults.answers(Operation::Release) == 1).await;
        } else {
            guard.release().await.unwrap();
        }
        locks.shutdown().await.unwrap();
        assert!(failures.lock().unwrap().is_empty(), "{failures:?}");
    }
}

#[tokio::test]
async fn a_release_that_failed_to_the_end_tells_of_a_try_that_had_time() {
    let (store, faults) = FaultLayer::new(Memory::new());
    let timeout = Duration::from_millis(400);
    let locks = Locks::builder(store).call_timeout(Duration::from_millis(150)).release_timeout(timeout).build();
    let guard = locks.lock("k").acquire().await.unwrap();
    faults.always(Operation::Release, Fault::HangBefore);
    let error = guard.release().await.unwrap_err();
    let said = error.to_string();
    let within = said.split("within ").nth(1).and_then(|rest| rest.split("ms").next()).unwrap().to_owned();
    assert!(within.parse::<f64>().unwrap() >= 50.0, "{said}");
}

#[tokio::test]
async fn a_slow_release_of_a_lock_that_was_taken_before_is_a_loss_for_as_long_as_that_can_be_told() {
    let late = [(TIME_TOLERANCE / 2, true), (TIME_TOLERANCE * 2, false)];
    for (late, is_loss) in late {
        let world = World::new();
        world.faults.drop_wake_ups(true);
        let guard = world.locks().lock("k").heartbeat(false).acquire().await.unwrap();
        let steal = leasehold::Steal::NEVER.with_same_holder();
        let _thief = world.rival().lock("k").steal(steal).ttl(TTL * 10).acquire().await.unwrap();
        assert_eq!(guard.state(), leasehold::LockState::Held, "it was not told");
        let clock = world.clock.clone();
        world.faults.on_call(Operation::Release, move || clock.advance(TTL + late));
        assert_eq!(guard.release().await.is_err(), is_loss, "{late:?} after the end of the lease");
    }
}
