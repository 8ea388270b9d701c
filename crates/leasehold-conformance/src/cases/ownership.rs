//! The lock id, and nothing else, is the proof of ownership.

use leasehold::backend::Release;

use super::context::{
    Context, LONG, SHORT, extended, granted, new_id, not_extended, not_released, refused, release, released, request,
};
use super::group;

group!("ownership":
    a_strange_id_cannot_release,
    a_strange_id_cannot_extend,
    concurrent_releases_succeed_once,
    an_expired_id_cannot_touch_its_successor,
    a_released_id_cannot_touch_its_successor,
    the_id_works_through_any_handle,
);

async fn a_strange_id_cannot_release(cx: &Context) {
    let key = cx.key("mine");
    cx.take(&key, LONG).await;
    // An id that is known to the store, but for another lock.
    let other = cx.take(&cx.key("other"), LONG).await;
    not_released(&cx.peer, &new_id()).await;
    released(&cx.peer, &other.lock_id).await;
    refused(&cx.peer, &request(&key, LONG)).await;
}

async fn a_strange_id_cannot_extend(cx: &Context) {
    let key = cx.key("mine");
    cx.take(&key, LONG).await;
    let before = cx.record(&key).await;
    not_extended(&cx.peer, &new_id(), LONG * 2).await;
    assert_eq!(cx.record(&key).await, before);
}

async fn concurrent_releases_succeed_once(cx: &Context) {
    for round in 0..10 {
        let grant = cx.take(&cx.key(&format!("race-{round}")), LONG).await;
        let racers: Vec<_> = (0..8)
            .map(|racer| {
                let store = if racer % 2 == 0 { cx.backend.clone() } else { cx.peer.clone() };
                tokio::spawn(async move { release(&store, &grant.lock_id).await == Release::Released })
            })
            .collect();
        let mut successes = 0;
        for racer in racers {
            successes += u32::from(racer.await.expect("a racer ends"));
        }
        assert_eq!(successes, 1, "round {round}");
    }
}

async fn an_expired_id_cannot_touch_its_successor(cx: &Context) {
    let key = cx.key("inherited");
    let old = cx.take(&key, SHORT).await;
    cx.until_free(SHORT).await;
    granted(&cx.peer, &request(&key, LONG)).await;
    let before = cx.record(&key).await;
    not_extended(&cx.backend, &old.lock_id, LONG * 2).await;
    not_released(&cx.backend, &old.lock_id).await;
    assert_eq!(cx.record(&key).await, before);
}

async fn a_released_id_cannot_touch_its_successor(cx: &Context) {
    let key = cx.key("handed-over");
    let old = cx.take(&key, LONG).await;
    released(&cx.backend, &old.lock_id).await;
    granted(&cx.peer, &request(&key, LONG)).await;
    let before = cx.record(&key).await;
    not_extended(&cx.backend, &old.lock_id, LONG * 2).await;
    not_released(&cx.backend, &old.lock_id).await;
    assert_eq!(cx.record(&key).await, before);
}

async fn the_id_works_through_any_handle(cx: &Context) {
    let key = cx.key("shared");
    let grant = cx.take(&key, LONG).await;
    extended(&cx.peer, &grant.lock_id, LONG).await;
    released(&cx.peer, &grant.lock_id).await;
    assert!(!cx.is_locked(&key).await);
}
