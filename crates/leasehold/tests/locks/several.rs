//! Several locks at once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::testing::Fault;
use leasehold::{Error, ErrorCode, Guards, Key, LockState, Locks, Loss, Operation, Retry, Steal};
use test_support::{eventually, soon};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::support::{TTL, World, poll_then_drop};

#[tokio::test]
async fn all_are_taken_or_none_with_one_fence() {
    let world = World::new();
    let locks = world.rival();
    let b = locks.lock("b").acquire().await.unwrap();
    let (key, contention) = world.locks().lock_all(["c", "b", "a"]).try_acquire_or_see().await.unwrap().unwrap_err();
    assert_eq!((key.as_str(), contention.fence), ("b", Some(b.fence())));
    for name in ["a", "c"] {
        assert!(!world.is_locked(name).await);
    }
    let before = b.fence();
    b.release().await.unwrap();
    let all = world.locks().lock_all(["c", "b", "a"]).acquire().await.unwrap();
    assert!(all.fence() > before);
    assert!(all.iter().all(|guard| guard.fence() == all.fence()));
    let names: Vec<_> = all.iter().map(|guard| guard.key().as_str().to_owned()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(all.state(), LockState::Held);
    assert!(all.remaining() <= TTL && all.remaining() > TTL / 2);
    all.release().await.unwrap();
    let next = locks.lock("b").acquire().await.unwrap();
    assert!(next.fence() > before);
    for name in ["a", "c"] {
        assert!(!world.is_locked(name).await);
    }
}

#[tokio::test]
async fn it_waits_for_whichever_is_in_the_way() {
    let world = World::new();
    let (a, b) = (world.rival().lock("a").acquire().await.unwrap(), world.rival().lock("b").acquire().await.unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let waiting = tokio::spawn({
        let (locks, seen) = (world.locks(), seen.clone());
        let tell = move |key: &Key, _: &leasehold::Contention| seen.lock().unwrap().push(key.as_str().to_owned());
        async move { locks.lock_all(["a", "b"]).on_contention(tell).wait_forever().acquire().await }
    });
    eventually("it waits for a", async || seen.lock().unwrap().last().is_some_and(|key| key == "a")).await;
    a.release().await.unwrap();
    eventually("it waits for b", async || seen.lock().unwrap().last().is_some_and(|key| key == "b")).await;
    assert!(!world.is_locked("a").await, "it holds nothing while it waits");
    b.release().await.unwrap();
    drop(soon("both", waiting).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_each_other_for_ever() {
    let world = World::new();
    let counters = Arc::new([const { Mutex::new(0u32) }; 3]);
    let tasks: Vec<_> = (0..6)
        .map(|number| {
            let (locks, counters) = (world.rival(), counters.clone());
            tokio::spawn(async move {
                for round in 0..20 {
                    let (one, other) = ((number + round) % 3, (number + round + 1) % 3);
                    let names = if number % 2 == 0 { [one, other] } else { [other, one] };
                    let guards = locks.lock_all(names.map(|name| name.to_string())).wait_forever().acquire();
                    let guards = guards.await.unwrap();
                    for name in names {
                        let counter = counters[name].try_lock();
                        *counter.expect("nobody else is here") += 1;
                    }
                    guards.release().await.unwrap();
                }
            })
        })
        .collect();
    // The manual clock stands still: whoever sleeps has to be woken.
    let driving = tokio::spawn({
        let clock = world.clock.clone();
        async move {
            loop {
                clock.advance(Duration::from_millis(5));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    for task in tasks {
        soon("all rounds", task).await.unwrap();
    }
    driving.abort();
    assert_eq!(counters.iter().map(|counter| *counter.lock().unwrap()).sum::<u32>(), 6 * 20 * 2);
}

#[tokio::test]
async fn losing_one_is_losing_all_and_stops_the_work() {
    let world = World::new();
    let locks = world.locks();
    let work = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock_all(["a", "b"]).run(|_| std::future::pending::<()>()).await }
    });
    eventually("it works and listens", async || {
        world.is_locked("b").await && world.faults.answers(Operation::Subscribe) == 1
    })
    .await;
    world.rival().force_release("b").await.unwrap();
    let error = soon("it stops", work).await.unwrap().unwrap_err();
    assert_eq!(error.loss(), Some(Loss::ForceReleased));
    world.freed("a").await;
}

#[tokio::test]
async fn dropped_at_any_await_point_it_leaves_no_orphan() {
    let stalls =
        [None, Some(Fault::DelayBefore(Duration::from_millis(2))), Some(Fault::DelayAfter(Duration::from_millis(2)))];
    for stall in stalls.into_iter().chain([Some(Fault::HangAfter)]) {
        for polls in 0..8 {
            let world = World::new();
            let locks = world.builder().call_timeout(Duration::from_secs(1)).build();
            if let Some(stall) = stall {
                world.faults.always(Operation::Acquire, stall);
            }
            drop(poll_then_drop(locks.lock_all(["a", "b"]).acquire(), polls).await);
            world.clock.advance(Duration::from_secs(1));
            world.freed("a").await;
            world.freed("b").await;
        }
    }
}

#[tokio::test]
async fn a_lost_answer_is_found_again() {
    let world = World::new();
    world.faults.next(Operation::Acquire, Fault::FailAfter(ErrorCode::NetworkTimeout));
    let locks = world.locks();
    let waiting = tokio::spawn(async move { locks.lock_all(["a", "b"]).acquire().await });
    eventually("it was granted", async || world.is_locked("b").await).await;
    let first = world.rival().holders("a").await.unwrap().remove(0);
    world.clock.advance(Duration::from_millis(100));
    let all = soon("the same grant", waiting).await.unwrap().unwrap();
    assert_eq!(all.fence(), first.fence);
}

/// A request for `a` and `b` through a handle, once it is known to wait.
async fn waits_for_both(locks: &Locks) -> JoinHandle<Guards> {
    let refused = Arc::new(Notify::new());
    let waiting = tokio::spawn({
        let (locks, refused) = (locks.clone(), refused.clone());
        let tell = move |_: &Key, _: &leasehold::Contention| refused.notify_one();
        async move { locks.lock_all(["a", "b"]).on_contention(tell).wait_forever().acquire().await.unwrap() }
    });
    soon("it is refused", refused.notified()).await;
    waiting
}

#[tokio::test]
async fn nobody_in_its_process_waits_for_it_while_it_waits() {
    let world = World::new();
    let locks = world.locks();
    let b = world.rival().lock("b").acquire().await.unwrap();
    let waiting = waits_for_both(&locks).await;
    let a = soon("what is free", locks.lock("a").wait_forever().acquire()).await.unwrap();
    a.release().await.unwrap();
    b.release().await.unwrap();
    drop(soon("both", waiting).await.unwrap());
    world.freed("b").await;

    // Not even if that one has what it waits for.
    let b = locks.lock("b").acquire().await.unwrap();
    let waiting = waits_for_both(&locks).await;
    let a = soon("the other", locks.lock("a").wait_forever().acquire()).await.unwrap();
    a.release().await.unwrap();
    b.release().await.unwrap();
    drop(soon("both", waiting).await.unwrap());
}

#[tokio::test]
async fn those_of_one_process_who_want_the_same_ask_one_at_a_time() {
    let world = World::new();
    let locks = world.locks();
    let b = world.rival().lock("b").acquire().await.unwrap();
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let locks = locks.clone();
            let keys = if number % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
            tokio::spawn(async move { locks.lock_all(keys).wait_forever().acquire().await.unwrap().release().await })
        })
        .collect();
    eventually("one asked, and once more when it listened", async || world.faults.answers(Operation::Acquire) == 2)
        .await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(world.faults.calls(Operation::Acquire), 2);
    b.release().await.unwrap();
    for task in tasks {
        soon("all of them", task).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn one_that_was_stolen_while_its_answer_was_on_the_way_is_handed_to_nobody() {
    let world = World::new();
    let locks = world.locks();
    world.faults.next(Operation::Acquire, Fault::DelayAfter(Duration::from_millis(50)));
    let victim = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock_all(["a", "b"]).try_acquire().await.map(drop) }
    });
    eventually("the victim has the locks and does not know", async || world.is_locked("b").await).await;
    let thief = locks.lock("b").steal(Steal::NEVER.with_same_holder()).try_acquire().await.unwrap().unwrap();
    assert_eq!(victim.await.unwrap().unwrap_err().code(), ErrorCode::LockLost);
    assert_eq!(thief.state(), LockState::Held);
    world.freed("a").await;
}

#[tokio::test]
async fn locks_that_are_found_late_last_a_full_ttl() {
    let world = World::new();
    world.faults.next(Operation::Acquire, Fault::FailAfter(ErrorCode::NetworkTimeout));
    let locks = world.locks();
    let waiting = tokio::spawn(async move { locks.lock_all(["a", "b"]).wait_forever().acquire().await });
    eventually("they were granted", async || world.is_locked("b").await).await;
    world.clock.advance(TTL - Duration::from_secs(1));
    let all = soon("the same grants", waiting).await.unwrap().unwrap();
    assert!(all.remaining() > TTL / 2, "{:?}", all.remaining());
}

#[tokio::test]
async fn it_gives_up_after_as_many_tries_as_it_may() {
    let world = World::new();
    world.faults.always(Operation::Acquire, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    let retry = Retry::default().with_max_retries(3).with_timeout(Duration::from_secs(3600));
    let locks = world.locks();
    let waiting = tokio::spawn(async move { locks.lock_all(["a", "b"]).retry(retry).acquire().await.map(drop) });
    eventually("it gives up", async || {
        world.clock.advance(Duration::from_secs(1));
        waiting.is_finished()
    })
    .await;
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), ErrorCode::ServiceUnavailable);
    assert_eq!(world.faults.tries(Operation::Acquire), 4);
}

#[tokio::test]
async fn it_passes_nobody_in_line() {
    let world = World::new();
    let held = world.rival().lock("b").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let locks = world.rival();
        async move { locks.lock("b").wait_forever().acquire().await.unwrap() }
    });
    eventually("somebody waits", async || world.rival().waiters("b").await.unwrap().len() == 1).await;
    assert!(held.release().await.is_ok());
    assert!(world.locks().lock_all(["a", "b"]).try_acquire().await.unwrap().is_none());
    let served = soon("the waiter", waiting).await.unwrap();
    served.release().await.unwrap();
    assert!(world.locks().lock_all(["a", "b"]).wait(Duration::ZERO).acquire().await.is_ok());
}

#[tokio::test]
async fn wrong_keys_are_refused() {
    let world = World::new();
    let code = |outcome: Result<_, Error>| outcome.map(drop).unwrap_err().code();
    let many: Vec<_> = (0..33).map(|number| number.to_string()).collect();
    let none: [&str; 0] = [];
    assert_eq!(code(world.locks().lock_all(none).acquire().await), ErrorCode::InvalidArgument);
    assert_eq!(code(world.locks().lock_all(["a", "a"]).acquire().await), ErrorCode::InvalidArgument);
    assert_eq!(code(world.locks().lock_all(["a", ""]).acquire().await), ErrorCode::InvalidArgument);
    assert_eq!(code(world.locks().lock_all(&many[..]).acquire().await), ErrorCode::InvalidArgument);
    assert_eq!(code(world.locks().lock_all(["a"]).ttl(Duration::ZERO).acquire().await), ErrorCode::InvalidArgument);
}
