//! The line in front of a key: order over processes, places that end with their owners, and who
//! passes whom.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::backend::{Acquire, AcquireRequest, Backend, Line};
use leasehold::testing::Fault;
use leasehold::{ErrorCode, Guard, LockId, Locks, Operation, Retry, TIME_TOLERANCE, Ttl};
use test_support::{eventually, key, soon};
use tokio::task::JoinHandle;

use crate::support::World;

/// A waiter in a process of its own, once it has its place and sleeps.
async fn waiter(world: &World, before: usize) -> JoinHandle<Guard> {
    let locks = world.locks();
    let waiting = tokio::spawn(async move { locks.lock("k").wait_forever().acquire().await.unwrap() });
    in_line(world, before + 1).await;
    waiting
}

async fn in_line(world: &World, count: usize) {
    let rival = world.rival();
    eventually("all have their place", async || rival.waiters("k").await.unwrap().len() == count).await;
}

/// Somebody who took a place and died.
async fn dead_waiter(world: &World, lease: Duration) {
    let line = Line::Join { lease: Ttl::try_from(lease).unwrap() };
    let request = AcquireRequest::new(key("k"), LockId::random().unwrap(), Ttl::default()).with_line(line);
    assert!(matches!(world.memory.acquire(&request).await.unwrap(), Acquire::Held(_)));
}

#[tokio::test]
async fn processes_are_served_in_the_order_of_their_coming() {
    let world = World::new();
    let held = world.rival().lock("k").acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..20 {
        let (locks, order) = (world.locks(), order.clone());
        tasks.push(tokio::spawn(async move {
            let guard = locks.lock("k").wait_forever().acquire().await.unwrap();
            order.lock().unwrap().push(number);
            tokio::task::yield_now().await;
            guard.release().await.unwrap();
        }));
        in_line(&world, number + 1).await;
    }
    held.release().await.unwrap();
    for task in tasks {
        soon("served", task).await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_hand_over_costs_a_release_and_an_acquire_however_many_wait() {
    let world = World::new();
    let held = world.rival().lock("k").acquire().await.unwrap();
    let mut waiting = Vec::new();
    for number in 0..50 {
        waiting.push(waiter(&world, number).await);
    }
    // Each asked, subscribed and asked once more.
    eventually("all sleep", async || world.faults.answers(Operation::Acquire) == 100).await;
    held.release().await.unwrap();
    let first = soon("the first", waiting.remove(0)).await.unwrap();
    assert_eq!(world.faults.calls(Operation::Acquire), 101, "nobody else was woken");
    first.release().await.unwrap();
    drop(soon("the second", waiting.remove(0)).await.unwrap());
    for task in waiting {
        task.abort();
    }
}

#[tokio::test]
async fn whoever_tries_passes_nobody_and_whoever_is_unfair_passes_all_but_the_called() {
    let world = World::new();
    let lasts = Duration::from_secs(5);
    let _ = world.rival().lock("k").ttl(lasts).acquire().await.unwrap().leak();
    dead_waiter(&world, Duration::from_secs(60)).await;
    let (locks, free) = (world.rival(), lasts + TIME_TOLERANCE);
    world.clock.advance(free);
    assert!(!locks.is_locked("k").await.unwrap());
    let seen = locks.lock("k").try_acquire_or_see().await.unwrap().unwrap_err();
    assert_eq!((seen.holders, seen.place), (0, None), "it is free, and somebody else is first in line");
    // That look has called the first in line, for whom the lock is kept now.
    assert!(locks.lock("k").unfair().try_acquire().await.unwrap().is_none());
    world.clock.advance(Line::CALL_LEASE);
    assert!(locks.lock("k").try_acquire().await.unwrap().is_some());

    let _ = world.rival().lock("j").ttl(lasts).acquire().await.unwrap().leak();
    let line = Line::Join { lease: Ttl::default() };
    let dead = AcquireRequest::new(key("j"), LockId::random().unwrap(), Ttl::default()).with_line(line);
    assert!(matches!(world.memory.acquire(&dead).await.unwrap(), Acquire::Held(_)));
    world.clock.advance(free);
    assert!(locks.lock("j").unfair().try_acquire().await.unwrap().is_some(), "nobody was called");
}

#[tokio::test]
async fn a_place_is_kept_by_asking_and_given_up_by_whoever_stops_waiting() {
    let world = World::new();
    let held = world.rival().lock("k").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    let first = waiter(&world, 0).await;
    let second = waiter(&world, 1).await;
    eventually("both sleep", async || world.faults.answers(Operation::Acquire) == 4).await;
    let since: Vec<_> = world.rival().waiters("k").await.unwrap().iter().map(|waiter| waiter.since).collect();
    for _ in 0..40 {
        let asked = world.faults.answers(Operation::Acquire);
        world.clock.advance(Duration::from_secs(3));
        eventually("both ask", async || world.faults.answers(Operation::Acquire) == asked + 2).await;
    }
    let waiters = world.rival().waiters("k").await.unwrap();
    assert_eq!(waiters.iter().map(|waiter| waiter.since).collect::<Vec<_>>(), since);
    first.abort();
    in_line(&world, 1).await;
    held.release().await.unwrap();
    drop(soon("the second", second).await.unwrap());
}

#[tokio::test]
async fn a_request_that_runs_out_of_time_or_is_shut_down_leaves_no_place() {
    let world = World::new();
    let _held = world.rival().lock("k").acquire().await.unwrap();
    let locks = world.locks();
    let timed_out = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k").wait(Duration::from_secs(1)).acquire().await.map(drop) }
    });
    in_line(&world, 1).await;
    world.clock.advance(Duration::from_secs(1));
    let error = timed_out.await.unwrap().unwrap_err();
    assert_eq!(error.code(), ErrorCode::AcquisitionTimeout);
    assert_eq!(error.contention().and_then(|contention| contention.place), Some(0));
    in_line(&world, 0).await;

    let aborted = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k").wait_forever().acquire().await.map(drop) }
    });
    in_line(&world, 1).await;
    locks.shutdown().await.unwrap();
    assert_eq!(aborted.await.unwrap().unwrap_err().code(), ErrorCode::Aborted);
    assert!(world.rival().waiters("k").await.unwrap().is_empty(), "before shutdown returns");
}

#[tokio::test]
async fn a_join_whose_answer_was_lost_leaves_no_place() {
    let world = World::new();
    let _held = world.rival().lock("k").acquire().await.unwrap();
    world.faults.always(Operation::Acquire, Fault::FailAfter(ErrorCode::NetworkTimeout));
    let locks = world.locks();
    let waiting = tokio::spawn(async move { locks.lock("k").wait(Duration::from_secs(1)).acquire().await.map(drop) });
    in_line(&world, 1).await;
    world.clock.advance(Duration::from_secs(1));
    assert!(waiting.await.unwrap().is_err());
    in_line(&world, 0).await;
}

#[tokio::test]
async fn the_dead_in_line_cost_one_lease_however_many_they_are() {
    let world = World::new();
    let held = world.rival().lock("k").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    for _ in 0..1000 {
        dead_waiter(&world, Line::DEFAULT_LEASE).await;
    }
    let alive = waiter(&world, 1000).await;
    eventually("it sleeps", async || world.faults.answers(Operation::Acquire) == 2).await;
    held.release().await.unwrap();
    // It asks three times a lease. With the last of them it is served, and its task ends.
    for _ in 0..4 {
        let asked = world.faults.answers(Operation::Acquire);
        world.clock.advance(Line::DEFAULT_LEASE / 3);
        eventually("it asks", async || alive.is_finished() || world.faults.answers(Operation::Acquire) > asked).await;
    }
    drop(soon("it is served", alive).await.unwrap());
}

#[tokio::test]
async fn a_dead_first_in_line_is_passed_over_once_it_was_called() {
    let world = World::new();
    let held = world.rival().lock("k").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    dead_waiter(&world, Duration::from_secs(3000)).await;
    let alive = waiter(&world, 1).await;
    eventually("it sleeps", async || world.faults.answers(Operation::Acquire) == 2).await;
    held.release().await.unwrap();
    eventually("it is served", async || {
        world.clock.advance(Duration::from_millis(500));
        alive.is_finished()
    })
    .await;
}

#[tokio::test]
async fn a_waiter_that_misses_its_call_is_served_when_it_asks() {
    let world = World::new();
    let held = world.rival().lock("k").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    world.faults.drop_wake_ups(true);
    let waiting = waiter(&world, 0).await;
    eventually("it sleeps", async || world.faults.answers(Operation::Acquire) == 2).await;
    held.release().await.unwrap();
    world.clock.advance(Line::DEFAULT_LEASE / 3);
    drop(soon("it asks", waiting).await.unwrap());
}

#[tokio::test]
async fn the_first_in_line_keeps_its_place_if_its_call_is_lost() {
    let world = World::new();
    let held = world.rival().lock("k").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    world.faults.drop_wake_ups(true);
    let first = waiter(&world, 0).await;
    let second = waiter(&world, 1).await;
    eventually("both sleep", async || world.faults.answers(Operation::Acquire) == 4).await;
    let asked = world.faults.answers(Operation::Acquire);
    world.clock.advance(Line::CALL_LEASE / 2);
    eventually("the first asks", async || world.faults.answers(Operation::Acquire) == asked + 1).await;
    held.release().await.unwrap();
    world.clock.advance(Line::CALL_LEASE / 2);
    let served = soon("the first", first).await.unwrap();
    assert!(!second.is_finished());
    drop(served);
    second.abort();
}

#[tokio::test]
async fn what_is_asked_to_keep_a_place_is_no_retry() {
    let world = World::new();
    let held = world.rival().lock("k").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    let (locks, wait) = (world.locks(), Duration::from_secs(60));
    let waiting = tokio::spawn(async move {
        locks.lock("k").retry(Retry::default().with_max_retries(2).with_timeout(wait)).acquire().await.unwrap()
    });
    in_line(&world, 1).await;
    eventually("it sleeps", async || world.faults.answers(Operation::Acquire) == 2).await;
    for _ in 0..15 {
        let asked = world.faults.answers(Operation::Acquire);
        world.clock.advance(Line::DEFAULT_LEASE / 3);
        eventually("it asks", async || world.faults.answers(Operation::Acquire) > asked).await;
    }
    held.release().await.unwrap();
    drop(soon("it is served", waiting).await.unwrap());
}

#[tokio::test]
async fn a_waiter_that_cannot_listen_looks_often_enough_to_come_when_it_is_called() {
    let world = World::new();
    world.faults.always(Operation::Subscribe, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    let held = world.rival().lock("k").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    let first = waiter(&world, 0).await;
    let _second = waiter(&world, 1).await;
    for _ in 0..20 {
        let asked = world.faults.answers(Operation::Acquire);
        world.clock.advance(Line::CALL_LEASE / 2);
        eventually("both look", async || world.faults.answers(Operation::Acquire) >= asked + 2).await;
    }
    held.release().await.unwrap();
    world.clock.advance(Line::CALL_LEASE / 2);
    drop(soon("the first", first).await.unwrap());
}

#[tokio::test]
async fn the_tasks_of_one_process_have_one_place() {
    let world = World::new();
    let _held = world.rival().lock("k").acquire().await.unwrap();
    let locks = world.locks();
    let wait = |locks: &Locks| {
        let locks = locks.clone();
        tokio::spawn(async move { locks.lock("k").wait_forever().acquire().await.map(drop) })
    };
    let tasks: Vec<_> = (0..10).map(|_| wait(&locks)).collect();
    in_line(&world, 1).await;
    eventually("it sleeps", async || world.faults.answers(Operation::Acquire) == 2).await;
    assert_eq!(world.rival().waiters("k").await.unwrap().len(), 1);
    for task in tasks {
        task.abort();
    }
}

#[tokio::test]
async fn a_thief_passes_the_line() {
    use leasehold::Steal;

    let world = World::new();
    let victim = world.rival().lock("k").holder("me").acquire().await.unwrap();
    let waiting = waiter(&world, 0).await;
    let steal = Steal::NEVER.with_same_holder();
    let thief = world.rival().lock("k").holder("me").steal(steal).try_acquire().await.unwrap().unwrap();
    victim.lost().await;
    thief.release().await.unwrap();
    drop(soon("the waiter", waiting).await.unwrap());
}
