//! Those who wait are woken, and those who lost their lock are told.

use std::time::Instant;

use leasehold::backend::{Event, Topic};
use leasehold::{Loss, Operation, Steal};

use super::context::{Context, EVENT_TIMEOUT, LONG, event, granted, loss_of, released, request, silent};
use super::group;

group!("wakeups":
    release_wakes_a_subscriber_on_the_peer needs WakeUps,
    release_wakes_every_subscriber needs WakeUps,
    nothing_is_missed_between_subscribe_and_release needs WakeUps,
    steal_tells_the_victim needs WakeUps,
    force_release_wakes_and_tells needs WakeUps,
    unrelated_keys_do_not_wake needs WakeUps,
    a_store_that_cannot_push_stays_silent needs NoWakeUps,
    a_waiting_guard_gets_the_lock_that_a_peer_releases,
    a_guard_hears_that_its_lock_was_taken needs WakeUps,
);

async fn release_wakes_a_subscriber_on_the_peer(cx: &Context) {
    let key = cx.key("awaited");
    let grant = cx.take(&key, LONG).await;
    let mut freed = cx.peer.subscribe(Topic::Freed(&key)).await.expect("subscribe answers");
    released(&cx.backend, &grant.lock_id).await;
    assert!(matches!(event(&mut freed).await, Event::Freed | Event::Missed));
}

async fn release_wakes_every_subscriber(cx: &Context) {
    let key = cx.key("popular");
    let grant = cx.take(&key, LONG).await;
    let mut subscriptions = Vec::new();
    for subscriber in 0..6 {
        let store = if subscriber % 2 == 0 { &cx.backend } else { &cx.peer };
        subscriptions.push(store.subscribe(Topic::Freed(&key)).await.expect("subscribe answers"));
    }
    released(&cx.peer, &grant.lock_id).await;
    for subscription in &mut subscriptions {
        assert!(matches!(event(subscription).await, Event::Freed | Event::Missed));
    }
}

async fn nothing_is_missed_between_subscribe_and_release(cx: &Context) {
    for round in 0..20 {
        let key = cx.key(&format!("prompt-{round}"));
        let grant = cx.take(&key, LONG).await;
        let mut freed = cx.peer.subscribe(Topic::Freed(&key)).await.expect("subscribe answers");
        released(&cx.backend, &grant.lock_id).await;
        event(&mut freed).await;
    }
}

async fn steal_tells_the_victim(cx: &Context) {
    let key = cx.key("stolen");
    let mut taken = cx.backend.subscribe(Topic::Taken).await.expect("subscribe answers");
    let victim = cx.take(&key, LONG).await;
    let thief = request(&key, LONG).with_steal(Steal::NEVER.with_same_holder());
    granted(&cx.peer, &thief).await;
    assert_eq!(loss_of(&mut taken, (&key, victim.fence)).await, Loss::Stolen);
}

async fn force_release_wakes_and_tells(cx: &Context) {
    let key = cx.key("forced");
    let mut taken = cx.backend.subscribe(Topic::Taken).await.expect("subscribe answers");
    let mut freed = cx.backend.subscribe(Topic::Freed(&key)).await.expect("subscribe answers");
    let victim = cx.take(&key, LONG).await;
    cx.peer.force_release(&key, None).await.expect("force_release answers");
    assert_eq!(loss_of(&mut taken, (&key, victim.fence)).await, Loss::ForceReleased);
    assert!(matches!(event(&mut freed).await, Event::Freed | Event::Missed));
}

async fn unrelated_keys_do_not_wake(cx: &Context) {
    let (busy, quiet) = (cx.key("busy"), cx.key("quiet"));
    cx.take(&quiet, LONG).await;
    let grant = cx.take(&busy, LONG).await;
    let mut from_busy = cx.peer.subscribe(Topic::Freed(&busy)).await.expect("subscribe answers");
    let mut from_quiet = cx.peer.subscribe(Topic::Freed(&quiet)).await.expect("subscribe answers");
    released(&cx.backend, &grant.lock_id).await;
    event(&mut from_busy).await;
    assert!(silent(&mut from_quiet).await, "woken by the release of another key");
}

async fn a_store_that_cannot_push_stays_silent(cx: &Context) {
    let key = cx.key("silent");
    let mut freed = cx.peer.subscribe(Topic::Freed(&key)).await.expect("subscribe answers");
    let mut taken = cx.peer.subscribe(Topic::Taken).await.expect("subscribe answers");
    let grant = cx.take(&key, LONG).await;
    released(&cx.backend, &grant.lock_id).await;
    assert!(silent(&mut freed).await, "the store can push after all");
    assert!(silent(&mut taken).await, "the store can push after all");
}

async fn a_waiting_guard_gets_the_lock_that_a_peer_releases(cx: &Context) {
    let key = cx.key("awaited");
    let (locks, faults) = cx.locks();
    let grant = granted(&cx.peer, &request(&key, LONG)).await;
    let waiter = tokio::spawn({
        let key = key.clone();
        async move { locks.lock(&key).wait_forever().acquire().await }
    });
    let tries = if cx.backend.capabilities().wake_ups { 2 } else { 1 };
    cx.eventually("the guard waits", || faults.calls(Operation::Acquire) >= tries).await;
    released(&cx.peer, &grant.lock_id).await;
    if !cx.backend.capabilities().wake_ups {
        // What is not pushed is found by looking. It may not have begun to wait yet.
        let give_up = Instant::now() + 2 * EVENT_TIMEOUT;
        while !waiter.is_finished() && Instant::now() < give_up {
            cx.pass(LONG / 60).await;
            tokio::task::yield_now().await;
        }
    }
    let guard = tokio::time::timeout(EVENT_TIMEOUT, waiter).await.expect("it is woken within five seconds");
    assert!(guard.expect("the task ends").expect("the lock is free").fence() > grant.fence);
}

async fn a_guard_hears_that_its_lock_was_taken(cx: &Context) {
    let key = cx.key("taken");
    let (locks, faults) = cx.locks();
    let guard = locks.lock(&key).acquire().await.expect("the lock is free");
    cx.eventually("the keeper listens", || faults.answers(Operation::Subscribe) >= 1).await;
    cx.peer.force_release(&key, None).await.expect("force_release answers");
    let loss = tokio::time::timeout(EVENT_TIMEOUT, guard.lost()).await.expect("it is told within five seconds");
    assert_eq!(loss, Loss::ForceReleased);
}
