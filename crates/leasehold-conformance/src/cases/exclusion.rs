//! One holder at a time.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use leasehold::Operation;
use leasehold::backend::Acquire;
use leasehold::testing::Fault;
use tokio::sync::oneshot;

use super::context::{Context, LONG, acquire, granted, holder, not_extended, not_released, refused, released, request};
use super::group;

group!("exclusion":
    a_held_lock_refuses_everybody_else,
    only_one_of_many_concurrent_acquires_wins,
    a_released_lock_can_be_taken_at_once,
    keys_do_not_exclude_each_other,
    contention_tells_who_and_since_when,
    a_refused_acquire_changes_nothing,
    tasks_of_one_process_wait_in_line,
);

async fn a_held_lock_refuses_everybody_else(cx: &Context) {
    let key = cx.key("held");
    cx.take(&key, LONG).await;
    refused(&cx.backend, &request(&key, LONG)).await;
    refused(&cx.peer, &request(&key, LONG)).await;
}

async fn only_one_of_many_concurrent_acquires_wins(cx: &Context) {
    for round in 0..10 {
        let key = cx.key(&format!("race-{round}"));
        let racers: Vec<_> = (0..16)
            .map(|racer| {
                let store = if racer % 2 == 0 { cx.backend.clone() } else { cx.peer.clone() };
                let request = request(&key, LONG);
                tokio::spawn(async move { matches!(acquire(&store, &request).await, Acquire::Granted(_)) })
            })
            .collect();
        let mut winners = 0;
        for racer in racers {
            winners += u32::from(racer.await.expect("a racer ends"));
        }
        assert_eq!(winners, 1, "round {round}");
    }
}

async fn a_released_lock_can_be_taken_at_once(cx: &Context) {
    let key = cx.key("handed-over");
    let grant = cx.take(&key, LONG).await;
    released(&cx.backend, &grant.lock_id).await;
    granted(&cx.peer, &request(&key, LONG)).await;
    refused(&cx.backend, &request(&key, LONG)).await;
}

async fn keys_do_not_exclude_each_other(cx: &Context) {
    let (one, other) = (cx.key("one"), cx.key("other"));
    let grant = cx.take(&one, LONG).await;
    granted(&cx.peer, &request(&other, LONG)).await;
    released(&cx.backend, &grant.lock_id).await;
    assert!(!cx.is_locked(&one).await);
    assert!(cx.is_locked(&other).await);
}

async fn contention_tells_who_and_since_when(cx: &Context) {
    let key = cx.key("busy");
    let mut first = request(&key, LONG);
    first.holder = holder("host-1/worker");
    let grant = granted(&cx.backend, &first).await;
    cx.pass(100).await;
    let earliest = cx.earliest();
    let contention = refused(&cx.peer, &request(&key, LONG)).await;
    assert_eq!(contention.holder.as_ref(), Some(&first.holder));
    assert_eq!(contention.acquired_at, grant.acquired_at);
    assert_eq!(contention.expires_at, grant.expires_at);
    let now = contention.now.as_millis();
    assert!((earliest.as_millis()..=cx.latest().as_millis()).contains(&now), "the time of the answer");
}

async fn a_refused_acquire_changes_nothing(cx: &Context) {
    let key = cx.key("untouched");
    cx.take(&key, LONG).await;
    let before = cx.record(&key).await;
    let loser = request(&key, LONG * 2);
    refused(&cx.peer, &loser).await;
    assert_eq!(cx.record(&key).await, before);
    assert_eq!(cx.record_of(&loser.lock_id).await, None);
    not_extended(&cx.peer, &loser.lock_id, LONG).await;
    not_released(&cx.peer, &loser.lock_id).await;
    assert_eq!(cx.record(&key).await, before);
}

async fn tasks_of_one_process_wait_in_line(cx: &Context) {
    const TASKS: usize = 12;
    let key = cx.key("line");
    let (locks, faults) = cx.locks();
    let first = locks.lock(&key).acquire().await.expect("the lock is free");
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let (locks, key, order) = (locks.clone(), key.clone(), order.clone());
        let (queued, in_line) = oneshot::channel();
        tasks.push(tokio::spawn(async move {
            let mut acquire = pin!(locks.lock(&key).wait_forever().acquire());
            let polled = poll_fn(|cx| Poll::Ready(acquire.as_mut().poll(cx).is_pending())).await;
            assert!(polled, "the lock is held");
            queued.send(()).expect("the case waits");
            let guard = acquire.await.expect("its turn comes");
            order.lock().expect("nobody panicked").push(task);
            guard.release().await.expect("the lock is held");
        }));
        in_line.await.expect("the task waits in line");
    }
    // Long enough to see two that ask at the same time.
    faults.always(Operation::Acquire, Fault::DelayBefore(Duration::from_millis(2)));
    first.release().await.expect("the lock is held");
    for task in tasks {
        task.await.expect("a task ends");
    }
    assert_eq!(*order.lock().expect("nobody panicked"), (0..TASKS).collect::<Vec<_>>());
    assert_eq!(faults.most_at_once(Operation::Acquire), 1, "only the first in line asks the store");
}
