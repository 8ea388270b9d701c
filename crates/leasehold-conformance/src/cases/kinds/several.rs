//! Several locks at once: all of them or none, with one fence.

use std::sync::Arc;

use leasehold::backend::{AcquireAll, AcquireRequest, Backend, Line, MOST_KEYS, Mode};
use leasehold::{Contention, ErrorCode, Grant, Key, TIME_TOLERANCE};

use super::context::{LONG, SHORT};
use super::{
    Context, granted, group, heeding, inspect, joining, live_record, one_of, permit, reader, refused, released,
    request, waits,
};

group!("kinds":
    all_or_nothing needs Lines,
    all_share_one_fence needs Lines,
    all_is_idempotent needs Lines,
    all_that_are_held_in_part_are_granted_anew needs Lines,
    all_take_what_modes_they_want needs Lines,
    all_obey_the_line needs Lines within CALL_LEASE,
    all_of_a_refused_request_stay_as_they_were needs Lines,
    all_call_who_is_next_where_they_are_refused needs Lines within CALL_LEASE,
    all_of_the_most_keys_at_once needs Lines,
    all_refuse_an_id_of_another_key needs Lines,
    all_take_what_has_expired needs Lines,
);

async fn all(store: &Arc<dyn Backend>, requests: &[AcquireRequest]) -> Vec<Grant> {
    match store.acquire_all(requests).await.expect("acquire_all answers") {
        AcquireAll::Granted(grants) => {
            let ids: Vec<_> = grants.iter().map(|grant| grant.lock_id).collect();
            assert_eq!(ids, requests.iter().map(|request| request.lock_id).collect::<Vec<_>>(), "in their order");
            assert!(grants.iter().all(|grant| grant.fence == grants[0].fence), "they share a fence: {grants:?}");
            grants
        }
        other => panic!("the locks should be free, but are {other:?}"),
    }
}

async fn none(store: &Arc<dyn Backend>, requests: &[AcquireRequest], in_the_way: usize) -> Contention {
    match store.acquire_all(requests).await.expect("acquire_all answers") {
        AcquireAll::Held { which, contention } => {
            assert_eq!(which, in_the_way, "which of them is held");
            contention
        }
        other => panic!("one of the locks is held, but they were given away: {other:?}"),
    }
}

fn keys(cx: &Context, count: usize) -> Vec<Key> {
    (0..count).map(|number| cx.key(&format!("key-{number}"))).collect()
}

async fn all_or_nothing(cx: &Context) {
    let keys = keys(cx, 3);
    let held = granted(&cx.peer, &request(&keys[1], LONG)).await;
    let wanted: Vec<_> = keys.iter().map(|key| request(key, LONG)).collect();
    for store in [&cx.backend, &cx.peer] {
        let found = none(store, &wanted, 1).await;
        assert_eq!((found.fence, found.holders), (Some(held.fence), 1));
        assert_eq!((found.expires_at, found.place), (held.expires_at, None));
    }
    assert!(!cx.is_locked(&keys[0]).await && !cx.is_locked(&keys[2]).await, "a part of them is held");
    let elsewhere = request(&cx.key("elsewhere"), LONG).with_lock_id(wanted[0].lock_id);
    granted(&cx.peer, &elsewhere).await;
    released(&cx.peer, &elsewhere.lock_id).await;
    released(&cx.peer, &held.lock_id).await;
    let grants = all(&cx.backend, &wanted).await;
    for (wanted, grant) in wanted.iter().zip(&grants) {
        assert_eq!(live_record(cx, wanted).await.grant(), *grant);
        refused(&cx.peer, &request(&wanted.key, LONG)).await;
        released(&cx.peer, &wanted.lock_id).await;
        granted(&cx.peer, &request(&wanted.key, LONG)).await;
    }
}

async fn all_share_one_fence(cx: &Context) {
    let keys = keys(cx, 3);
    let mut highest = None;
    for (number, key) in keys.iter().enumerate() {
        for _ in 0..=number * 5 {
            let grant = granted(&cx.peer, &request(key, LONG)).await;
            highest = highest.max(Some(grant.fence));
            released(&cx.peer, &grant.lock_id).await;
        }
    }
    let wanted: Vec<_> = keys.iter().map(|key| request(key, LONG)).collect();
    let fence = all(&cx.backend, &wanted).await[0].fence;
    assert!(Some(fence) > highest, "higher than any before");
    for wanted in &wanted {
        released(&cx.backend, &wanted.lock_id).await;
        assert!(granted(&cx.peer, &request(&wanted.key, LONG)).await.fence > fence, "lower than any after");
    }
}

async fn all_is_idempotent(cx: &Context) {
    let wanted: Vec<_> = keys(cx, 3).iter().map(|key| request(key, LONG)).collect();
    let first = all(&cx.backend, &wanted).await;
    cx.pass(30).await;
    assert_eq!(all(&cx.backend, &wanted).await, first);
    assert_eq!(all(&cx.peer, &wanted).await, first);
    assert_eq!(granted(&cx.peer, &wanted[1]).await, first[1], "each of them is a lock like any other");
}

async fn all_that_are_held_in_part_are_granted_anew(cx: &Context) {
    let keys = keys(cx, 3);
    let wanted: Vec<_> = keys.iter().map(|key| request(key, LONG)).collect();
    let part = granted(&cx.backend, &wanted[1]).await;
    let other = granted(&cx.peer, &request(&keys[2], LONG)).await;
    none(&cx.backend, &wanted, 2).await;
    assert_eq!(live_record(cx, &wanted[1]).await.grant(), part, "what was held is held");
    released(&cx.peer, &other.lock_id).await;
    let grants = all(&cx.peer, &wanted).await;
    assert!(grants[0].fence > part.fence.max(other.fence), "a grant of its own");
    assert_eq!(live_record(cx, &wanted[1]).await.grant(), grants[1]);
    for wanted in &wanted {
        released(&cx.backend, &wanted.lock_id).await;
        assert!(!cx.is_locked(&wanted.key).await);
    }
}

async fn all_take_what_modes_they_want(cx: &Context) {
    let keys = keys(cx, 3);
    granted(&cx.peer, &reader(&keys[0], LONG)).await;
    granted(&cx.peer, &permit(2, &keys[1], LONG)).await;
    let wanted = [reader(&keys[0], LONG), permit(2, &keys[1], LONG), heeding(request(&keys[2], LONG))];
    let grants = all(&cx.backend, &wanted).await;
    assert_eq!(grants.iter().map(|grant| grant.slot).collect::<Vec<_>>(), [None, Some(1), None]);
    let modes: Vec<_> = [
        live_record(cx, &wanted[0]).await.mode,
        live_record(cx, &wanted[1]).await.mode,
        live_record(cx, &wanted[2]).await.mode,
    ]
    .into();
    assert_eq!(modes, [Mode::Shared, one_of(2), Mode::Exclusive]);
    let again = [reader(&keys[0], LONG), permit(2, &keys[1], LONG)];
    assert_eq!(none(&cx.peer, &again, 1).await.holders, 2, "there is room for the reader only");
    assert_eq!(inspect(cx, &keys[0]).await.holders.len(), 2);
}

async fn all_obey_the_line(cx: &Context) {
    let keys = keys(cx, 2);
    let held = granted(&cx.backend, &reader(&keys[1], LONG)).await;
    let writer = joining(request(&keys[1], LONG), LONG);
    waits(&cx.backend, &writer, 0).await;
    let with_reader = |reader| [request(&keys[0], LONG), reader];
    let found = none(&cx.peer, &with_reader(heeding(reader(&keys[1], LONG))), 1).await;
    assert_eq!((found.holders, found.place), (1, None));
    released(&cx.backend, &held.lock_id).await;
    // The lock is kept for the one who was called.
    let found = none(&cx.peer, &with_reader(reader(&keys[1], LONG)), 1).await;
    assert_eq!(found.holders, 0);
    granted(&cx.backend, &writer).await;
}

async fn all_of_a_refused_request_stay_as_they_were(cx: &Context) {
    let keys = keys(cx, 3);
    granted(&cx.backend, &reader(&keys[0], LONG)).await;
    waits(&cx.backend, &joining(request(&keys[0], LONG), LONG), 0).await;
    granted(&cx.backend, &request(&keys[2], LONG)).await;
    waits(&cx.backend, &joining(reader(&keys[2], LONG), LONG), 0).await;
    let before = [inspect(cx, &keys[0]).await, inspect(cx, &keys[1]).await, inspect(cx, &keys[2]).await];
    let wanted = [reader(&keys[0], LONG), request(&keys[1], LONG), request(&keys[2], LONG)];
    none(&cx.peer, &wanted, 2).await;
    for (key, before) in keys.iter().zip(&before) {
        assert_eq!(inspect(cx, key).await, *before);
    }
    // The ids are nobody's.
    granted(&cx.peer, &request(&cx.key("elsewhere"), LONG).with_lock_id(wanted[0].lock_id)).await;
}

async fn all_call_who_is_next_where_they_are_refused(cx: &Context) {
    let keys = keys(cx, 2);
    cx.take(&keys[1], SHORT).await;
    let first = joining(request(&keys[1], LONG), LONG * 2);
    waits(&cx.backend, &first, 0).await;
    cx.until_free(SHORT).await;
    let wanted: Vec<_> = keys.iter().map(|key| heeding(request(key, LONG))).collect();
    let found = none(&cx.peer, &wanted, 1).await;
    let until = inspect(cx, &keys[1]).await.waiters[0].until;
    assert!(until <= found.now + Line::CALL_LEASE, "nobody waits for longer for one who may be dead");
    assert_eq!((found.expires_at + TIME_TOLERANCE).as_millis(), until.as_millis());
    // Kept, also from those who ignore the line.
    refused(&cx.backend, &request(&keys[1], LONG)).await;
    granted(&cx.backend, &first).await;
}

async fn all_of_the_most_keys_at_once(cx: &Context) {
    let wanted: Vec<_> = keys(cx, MOST_KEYS).iter().map(|key| request(key, LONG)).collect();
    all(&cx.backend, &wanted).await;
    let again: Vec<_> = wanted.iter().map(|wanted| request(&wanted.key, LONG)).collect();
    none(&cx.peer, &again, 0).await;
    let ids: Vec<_> = wanted.iter().map(|wanted| wanted.lock_id).collect();
    for answer in cx.peer.release_many(&ids).await {
        assert_eq!(answer.expect("release answers"), leasehold::backend::Release::Released);
    }
    all(&cx.peer, &again).await;
}

async fn all_refuse_an_id_of_another_key(cx: &Context) {
    let keys = keys(cx, 2);
    let elsewhere = cx.take(&cx.key("elsewhere"), LONG).await;
    let wanted = [request(&keys[0], LONG), request(&keys[1], LONG).with_lock_id(elsewhere.lock_id)];
    let error = cx.peer.acquire_all(&wanted).await.expect_err("the id holds another key");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(!cx.is_locked(&keys[0]).await && !cx.is_locked(&keys[1]).await);
    assert_eq!(cx.record(&cx.key("elsewhere")).await.map(|record| record.grant()), Some(elsewhere));
    granted(&cx.peer, &wanted[0]).await;
}

async fn all_take_what_has_expired(cx: &Context) {
    let keys = keys(cx, 2);
    let expired = cx.take(&keys[1], SHORT).await;
    cx.until_free(SHORT).await;
    let wanted: Vec<_> = keys.iter().map(|key| request(key, LONG)).collect();
    assert!(all(&cx.peer, &wanted).await[1].fence > expired.fence);
    super::not_released(&cx.backend, &expired.lock_id).await;
}
