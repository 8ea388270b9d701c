//! Every operation may be repeated after an answer that never came.

use leasehold::backend::Acquire;

use super::context::{Context, LONG, acquire, extended, granted, not_released, refused, released, request};
use super::group;

group!("idempotency":
    a_repeated_acquire_returns_the_same_grant,
    a_repeated_acquire_does_not_prolong,
    a_repeated_acquire_shows_the_extended_expiry,
    concurrent_repeats_share_one_grant,
    second_release_finds_nothing,
    a_repeated_extend_is_harmless,
    a_second_forced_release_finds_nothing,
);

async fn a_repeated_acquire_returns_the_same_grant(cx: &Context) {
    let request = request(&cx.key("repeated"), LONG);
    let first = granted(&cx.backend, &request).await;
    assert_eq!(granted(&cx.backend, &request).await, first);
    assert_eq!(granted(&cx.peer, &request).await, first);
}

async fn a_repeated_acquire_does_not_prolong(cx: &Context) {
    let key = cx.key("repeated");
    let request = request(&key, LONG);
    let first = granted(&cx.backend, &request).await;
    cx.pass(30).await;
    assert_eq!(granted(&cx.backend, &request).await.expires_at, first.expires_at);
    assert_eq!(cx.record(&key).await.expect("the lock is held").expires_at, first.expires_at);
}

async fn a_repeated_acquire_shows_the_extended_expiry(cx: &Context) {
    let request = request(&cx.key("repeated"), LONG);
    let first = granted(&cx.backend, &request).await;
    let expires_at = extended(&cx.backend, &request.lock_id, LONG * 2).await;
    let again = granted(&cx.backend, &request).await;
    assert_eq!(again.expires_at, expires_at);
    assert_eq!((again.fence, again.acquired_at), (first.fence, first.acquired_at));
}

async fn concurrent_repeats_share_one_grant(cx: &Context) {
    for round in 0..10 {
        let request = request(&cx.key(&format!("race-{round}")), LONG);
        let repeats: Vec<_> = (0..8)
            .map(|repeat| {
                let store = if repeat % 2 == 0 { cx.backend.clone() } else { cx.peer.clone() };
                let request = request.clone();
                tokio::spawn(async move { granted(&store, &request).await })
            })
            .collect();
        let mut grants = Vec::new();
        for repeat in repeats {
            grants.push(repeat.await.expect("every repeat is granted"));
        }
        assert!(grants.windows(2).all(|pair| pair[0] == pair[1]), "different grants: {grants:?}");
    }
}

async fn second_release_finds_nothing(cx: &Context) {
    let key = cx.key("once");
    let grant = cx.take(&key, LONG).await;
    released(&cx.backend, &grant.lock_id).await;
    not_released(&cx.backend, &grant.lock_id).await;
    not_released(&cx.peer, &grant.lock_id).await;
}

async fn a_repeated_extend_is_harmless(cx: &Context) {
    let key = cx.key("extended");
    let grant = cx.take(&key, LONG).await;
    extended(&cx.backend, &grant.lock_id, LONG).await;
    let earliest = cx.earliest();
    let expires_at = extended(&cx.backend, &grant.lock_id, LONG).await;
    let ttl = super::context::ttl(LONG);
    assert!(expires_at >= earliest.expiry(ttl) && expires_at <= cx.latest().expiry(ttl), "extends do not add up");
    refused(&cx.peer, &request(&key, LONG)).await;
}

async fn a_second_forced_release_finds_nothing(cx: &Context) {
    let key = cx.key("forced");
    cx.take(&key, LONG).await;
    let first = cx.backend.force_release(&key, None).await.expect("force_release answers");
    assert!(!first.is_empty(), "{first:?}");
    assert_eq!(cx.peer.force_release(&key, None).await.expect("force_release answers"), []);
    assert!(matches!(acquire(&cx.peer, &request(&key, LONG)).await, Acquire::Granted(_)));
}
