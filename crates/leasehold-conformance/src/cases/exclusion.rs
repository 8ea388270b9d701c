//! One holder at a time.

use super::context::{Context, LONG, acquire, granted, holder, not_extended, not_released, refused, released, request};
use super::group;
use leasehold::Acquire;

group!("exclusion":
    a_held_lock_refuses_everybody_else,
    only_one_of_many_concurrent_acquires_wins,
    a_released_lock_can_be_taken_at_once,
    keys_do_not_exclude_each_other,
    contention_tells_who_and_since_when,
    a_refused_acquire_changes_nothing,
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
