//! Readers hold a lock together, and everybody else holds it without them.

use leasehold::backend::Mode;

use super::context::{LONG, SHORT};
use super::{
    Context, granted, group, heeding, holder, inspect, live_record, not_released, permit, reader, refused, released,
    request,
};
use crate::cases::context::{extended, not_extended};

group!("kinds":
    readers_share_and_writers_do_not needs Lines,
    a_plain_request_is_refused_while_readers_hold needs Lines,
    readers_and_permits_exclude_each_other needs Lines,
    a_refusal_names_the_oldest_reader_and_the_last_end needs Lines,
    a_reader_ends_only_its_own_lock needs Lines,
    an_expired_reader_leaves_the_others needs Lines,
    extend_of_a_reader_keeps_writers_out needs Lines,
    a_shortened_reader_lets_writers_in needs Lines,
    each_grant_has_a_fence_of_its_own needs Lines,
    a_repeated_request_of_a_reader_returns_the_same_grant needs Lines,
);

async fn readers_share_and_writers_do_not(cx: &Context) {
    let key = cx.key("read");
    let here = granted(&cx.backend, &reader(&key, LONG)).await;
    let there = granted(&cx.peer, &heeding(reader(&key, LONG))).await;
    assert_eq!((here.slot, there.slot), (None, None), "readers have no slots");
    for store in [&cx.backend, &cx.peer] {
        let found = refused(store, &heeding(request(&key, LONG))).await;
        assert_eq!((found.mode, found.holders, found.place), (Mode::Shared, 2, None));
    }
    released(&cx.peer, &here.lock_id).await;
    refused(&cx.peer, &request(&key, LONG)).await;
    released(&cx.backend, &there.lock_id).await;
    granted(&cx.backend, &request(&key, LONG)).await;
    let found = refused(&cx.peer, &reader(&key, LONG)).await;
    assert_eq!((found.mode, found.holders), (Mode::Exclusive, 1));
}

async fn a_plain_request_is_refused_while_readers_hold(cx: &Context) {
    let key = cx.key("covered");
    let wanted = reader(&key, LONG);
    granted(&cx.backend, &wanted).await;
    for store in [&cx.backend, &cx.peer] {
        let plain = request(&key, LONG);
        assert!(plain.is_plain());
        refused(store, &plain).await;
        not_released(store, &plain.lock_id).await;
        not_extended(store, &plain.lock_id, LONG).await;
    }
    assert!(cx.is_locked(&key).await);
    assert_eq!(cx.record(&key).await, Some(live_record(cx, &wanted).await));
}

async fn readers_and_permits_exclude_each_other(cx: &Context) {
    let (read, counted) = (cx.key("read"), cx.key("counted"));
    granted(&cx.backend, &reader(&read, LONG)).await;
    granted(&cx.backend, &permit(5, &counted, LONG)).await;
    assert_eq!(refused(&cx.peer, &permit(5, &read, LONG)).await.mode, Mode::Shared);
    assert_eq!(refused(&cx.peer, &reader(&counted, LONG)).await.mode, super::one_of(5));
}

async fn a_refusal_names_the_oldest_reader_and_the_last_end(cx: &Context) {
    let key = cx.key("named");
    let oldest = granted(&cx.backend, &reader(&key, LONG).with_holder(holder("oldest"))).await;
    let longest = granted(&cx.peer, &reader(&key, LONG * 3).with_holder(holder("longest"))).await;
    granted(&cx.backend, &reader(&key, LONG * 2).with_holder(holder("newest"))).await;
    let found = refused(&cx.peer, &request(&key, LONG)).await;
    assert_eq!((found.holder, found.fence), (Some(holder("oldest")), Some(oldest.fence)));
    assert_eq!((found.acquired_at, found.expires_at), (oldest.acquired_at, longest.expires_at));
    assert_eq!(found.holders, 3);
}

async fn a_reader_ends_only_its_own_lock(cx: &Context) {
    let key = cx.key("left");
    let (first, second) = (reader(&key, LONG), reader(&key, LONG));
    granted(&cx.backend, &first).await;
    granted(&cx.peer, &second).await;
    let before = live_record(cx, &second).await;
    released(&cx.peer, &first.lock_id).await;
    not_released(&cx.backend, &first.lock_id).await;
    not_extended(&cx.backend, &first.lock_id, LONG).await;
    assert_eq!(cx.record_of(&first.lock_id).await, None);
    assert_eq!(inspect(cx, &key).await.holders, [before]);
}

async fn an_expired_reader_leaves_the_others(cx: &Context) {
    let key = cx.key("outlived");
    granted(&cx.backend, &reader(&key, SHORT)).await;
    let lasting = granted(&cx.peer, &reader(&key, LONG)).await;
    cx.until_free(SHORT).await;
    let found = refused(&cx.backend, &request(&key, LONG)).await;
    assert_eq!((found.holders, found.fence), (1, Some(lasting.fence)), "only the other one is left");
    assert_eq!(found.expires_at, lasting.expires_at);
    released(&cx.backend, &lasting.lock_id).await;
    granted(&cx.peer, &request(&key, LONG)).await;
}

async fn extend_of_a_reader_keeps_writers_out(cx: &Context) {
    let key = cx.key("extended");
    let kept = granted(&cx.backend, &reader(&key, SHORT)).await;
    let dead = granted(&cx.peer, &reader(&key, SHORT)).await;
    let expires_at = extended(&cx.peer, &kept.lock_id, LONG).await;
    cx.until_free(SHORT).await;
    let found = refused(&cx.peer, &request(&key, LONG)).await;
    assert_eq!((found.holders, found.expires_at), (1, expires_at));
    not_extended(&cx.backend, &dead.lock_id, LONG).await;
    released(&cx.backend, &kept.lock_id).await;
    granted(&cx.peer, &request(&key, LONG)).await;
}

async fn a_shortened_reader_lets_writers_in(cx: &Context) {
    let key = cx.key("shortened");
    let first = granted(&cx.backend, &reader(&key, LONG)).await;
    let second = granted(&cx.peer, &reader(&key, LONG)).await;
    released(&cx.backend, &second.lock_id).await;
    let expires_at = extended(&cx.peer, &first.lock_id, SHORT).await;
    assert_eq!(refused(&cx.peer, &request(&key, LONG)).await.expires_at, expires_at);
    cx.until_free(SHORT).await;
    granted(&cx.peer, &request(&key, LONG)).await;
}

async fn each_grant_has_a_fence_of_its_own(cx: &Context) {
    let key = cx.key("fenced");
    let mut last = cx.take(&key, LONG).await;
    for kind in 0..3 {
        released(&cx.backend, &last.lock_id).await;
        for round in 0..3 {
            let store = if round % 2 == 0 { &cx.peer } else { &cx.backend };
            let wanted = match kind {
                0 => reader(&key, LONG),
                1 => permit(3, &key, LONG),
                _ => request(&key, LONG),
            };
            let grant = granted(store, &wanted).await;
            assert!(grant.fence > last.fence, "each grant has a higher fence than the one before");
            last = grant;
            if kind == 2 {
                return;
            }
        }
        for held in inspect(cx, &key).await.holders.iter().filter(|held| held.lock_id != last.lock_id) {
            released(&cx.peer, &held.lock_id).await;
        }
    }
}

async fn a_repeated_request_of_a_reader_returns_the_same_grant(cx: &Context) {
    let key = cx.key("repeated");
    granted(&cx.backend, &reader(&key, LONG)).await;
    let wanted = reader(&key, LONG);
    let first = granted(&cx.backend, &wanted).await;
    assert_eq!(granted(&cx.backend, &wanted).await, first);
    assert_eq!(granted(&cx.peer, &wanted).await, first);
    assert_eq!(inspect(cx, &key).await.holders.len(), 2);
}
