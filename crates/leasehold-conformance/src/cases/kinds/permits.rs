//! A semaphore: so many hold the lock together, each with a slot of its own.

use leasehold::backend::Mode;
use leasehold::{Grant, Key};

use super::context::{LONG, SHORT};
use super::{Context, granted, group, inspect, live_record, one_of, permit, refused, released, request};

group!("kinds":
    permits_up_to_the_limit needs Lines,
    slots_are_the_lowest_free needs Lines,
    mixed_limits needs Lines,
    an_exclusive_request_waits_for_all_permits needs Lines,
    an_expired_permit_frees_its_slot needs Lines,
    a_repeated_request_of_a_permit_returns_the_same_slot needs Lines,
    a_permit_is_shown_as_it_was_asked_for needs Lines,
);

async fn takes(cx: &Context, of: u16, key: &Key, slot: u16) -> Grant {
    let store = if slot.is_multiple_of(2) { &cx.backend } else { &cx.peer };
    let grant = granted(store, &permit(of, key, LONG)).await;
    assert_eq!(grant.slot, Some(slot), "the lowest slot that is free");
    grant
}

async fn permits_up_to_the_limit(cx: &Context) {
    let key = cx.key("counted");
    let mut grants = Vec::new();
    for millis in [LONG + 1000, LONG, LONG + 2000] {
        grants.push(granted(&cx.backend, &permit(3, &key, millis)).await);
    }
    for store in [&cx.backend, &cx.peer] {
        let found = refused(store, &permit(3, &key, LONG)).await;
        assert_eq!((found.mode, found.holders), (one_of(3), 3));
        assert_eq!(found.fence, Some(grants[0].fence), "the oldest is named");
        assert_eq!(found.expires_at, grants[1].expires_at, "one that ends makes room enough");
    }
    released(&cx.peer, &grants[0].lock_id).await;
    granted(&cx.peer, &permit(3, &key, LONG)).await;
    refused(&cx.backend, &permit(3, &key, LONG)).await;
}

async fn slots_are_the_lowest_free(cx: &Context) {
    let key = cx.key("slots");
    let mut grants = Vec::new();
    for slot in 0..4 {
        grants.push(takes(cx, 4, &key, slot).await);
    }
    refused(&cx.peer, &permit(4, &key, LONG)).await;
    for (freed, slot) in [(vec![1], 1), (vec![2], 2), (vec![3, 0], 0)] {
        for freed in freed {
            released(&cx.peer, &grants[freed].lock_id).await;
        }
        grants[usize::from(slot)] = takes(cx, 4, &key, slot).await;
    }
    takes(cx, 4, &key, 3).await;
    assert_eq!(cx.take(&cx.key("alone"), LONG).await.slot, None, "an exclusive lock has no slot");
}

async fn mixed_limits(cx: &Context) {
    let key = cx.key("mixed");
    let mut grants = Vec::new();
    for slot in 0..3 {
        grants.push(takes(cx, 5, &key, slot).await);
    }
    refused(&cx.backend, &permit(3, &key, LONG)).await;
    refused(&cx.peer, &permit(1, &key, LONG)).await;
    grants.push(takes(cx, 4, &key, 3).await);
    let found = refused(&cx.peer, &permit(3, &key, LONG)).await;
    assert_eq!(found.holders, 4);
    let mut ends: Vec<_> = grants.iter().map(|grant| grant.expires_at).collect();
    ends.sort_unstable();
    assert_eq!(found.expires_at, ends[1], "two must end before this one has room");
    released(&cx.backend, &grants[0].lock_id).await;
    takes(cx, 4, &key, 0).await;
}

async fn an_exclusive_request_waits_for_all_permits(cx: &Context) {
    let key = cx.key("drained");
    let mut grants = Vec::new();
    for millis in [LONG, LONG + 2000, LONG + 1000] {
        grants.push(granted(&cx.backend, &permit(3, &key, millis)).await);
    }
    assert_eq!(refused(&cx.peer, &request(&key, LONG)).await.expires_at, grants[1].expires_at);
    for (left, grant) in (1..=3).rev().zip(&grants) {
        let found = refused(&cx.backend, &request(&key, LONG)).await;
        assert_eq!((found.mode, found.holders), (one_of(3), left));
        released(&cx.peer, &grant.lock_id).await;
    }
    granted(&cx.backend, &request(&key, LONG)).await;
    assert_eq!(refused(&cx.peer, &permit(3, &key, LONG)).await.mode, Mode::Exclusive);
}

async fn an_expired_permit_frees_its_slot(cx: &Context) {
    let key = cx.key("expired");
    granted(&cx.backend, &permit(2, &key, SHORT)).await;
    takes(cx, 2, &key, 1).await;
    refused(&cx.peer, &permit(2, &key, LONG)).await;
    cx.until_free(SHORT).await;
    takes(cx, 2, &key, 0).await;
    assert_eq!(refused(&cx.peer, &permit(2, &key, LONG)).await.holders, 2);
}

async fn a_repeated_request_of_a_permit_returns_the_same_slot(cx: &Context) {
    let key = cx.key("repeated");
    let lower = takes(cx, 2, &key, 0).await;
    let wanted = permit(2, &key, LONG);
    let first = granted(&cx.backend, &wanted).await;
    released(&cx.backend, &lower.lock_id).await;
    assert_eq!(granted(&cx.backend, &wanted).await, first);
    assert_eq!(granted(&cx.peer, &wanted).await, first);
    assert_eq!(inspect(cx, &key).await.holders.len(), 1);
}

async fn a_permit_is_shown_as_it_was_asked_for(cx: &Context) {
    let key = cx.key("shown");
    let (first, second) = (permit(3, &key, LONG), permit(7, &key, LONG));
    granted(&cx.backend, &first).await;
    let grant = granted(&cx.peer, &second).await;
    let record = live_record(cx, &second).await;
    assert_eq!((record.mode, record.slot, record.grant()), (one_of(7), Some(1), grant));
    let oldest = cx.record(&key).await.expect("the lock is held");
    assert_eq!((oldest.lock_id, oldest.mode, oldest.slot), (first.lock_id, one_of(3), Some(0)));
}
