//! Who holds a key and who waits for it can be seen, and looking changes nothing.

use std::collections::{BTreeMap, HashMap};

use leasehold::backend::Inspected;
use leasehold::{ListRequest, Metadata};
use serde_json::json;

use super::context::LONG;
use super::{
    Context, granted, group, heeding, holder, inspect, joining, live_record, one_of, permit, reader, request, ttl,
    waits,
};

group!("kinds":
    inspect_shows_holders_and_the_line needs Lines,
    inspect_shows_an_exclusive_lock,
    inspect_shows_nothing_of_a_free_key,
    looking_keeps_no_place_and_calls_nobody needs Lines,
    list_counts_who_waits needs Lines,
    list_shows_every_grant_once needs Lines,
);

async fn inspect_shows_holders_and_the_line(cx: &Context) {
    let key = cx.key("shown");
    let held = [permit(4, &key, LONG * 2), permit(9, &key, LONG), permit(4, &key, LONG)];
    let notes = |number: usize| Metadata::new(json!({"number": number})).expect("valid notes");
    for (number, wanted) in held.iter().enumerate() {
        let store = if number % 2 == 0 { &cx.backend } else { &cx.peer };
        granted(store, &wanted.clone().with_metadata(notes(number)).with_holder(holder("holds"))).await;
    }
    let wanted = [request(&key, LONG), reader(&key, LONG), permit(3, &key, LONG)];
    let line = wanted.map(|wanted| joining(wanted, LONG * 3));
    let mut times = Vec::new();
    for (place, waiter) in (0..).zip(&line) {
        let earliest = cx.earliest();
        let named = waiter.clone().with_metadata(notes(7)).with_holder(holder("waits"));
        waits(&cx.peer, &named, place).await;
        times.push((earliest, cx.latest()));
    }
    let Inspected { holders, waiters, .. } = inspect(cx, &key).await;
    assert_eq!(holders.len(), 3, "everybody who holds it, the oldest first");
    for ((slot, wanted), shown) in (0..).zip(&held).zip(&holders) {
        assert_eq!(*shown, live_record(cx, wanted).await, "as it is found by its id");
        assert_eq!((shown.mode, shown.slot), (wanted.mode, Some(slot)));
        assert_eq!((&shown.metadata, &shown.holder), (&notes(usize::from(slot)), &Some(holder("holds"))));
    }
    assert_eq!(waiters.len(), 3, "everybody who waits, the first in line first");
    for ((wanted, (earliest, latest)), shown) in line.iter().zip(times).zip(&waiters) {
        assert_eq!((&shown.key, shown.lock_id, shown.mode), (&key, wanted.lock_id, wanted.mode));
        assert_eq!((&shown.metadata, &shown.holder), (&notes(7), &Some(holder("waits"))));
        assert!(shown.since.as_millis() >= earliest.as_millis() && shown.since <= latest, "since it joined");
        let lease = ttl(LONG * 3);
        assert!(shown.until >= earliest.expiry(lease) && shown.until <= latest.expiry(lease), "until its lease ends");
    }
}

async fn inspect_shows_an_exclusive_lock(cx: &Context) {
    let wanted = request(&cx.key("alone"), LONG);
    granted(&cx.backend, &wanted).await;
    let record = live_record(cx, &wanted).await;
    assert_eq!(inspect(cx, &wanted.key).await, Inspected::new(vec![record], vec![]));
}

async fn inspect_shows_nothing_of_a_free_key(cx: &Context) {
    assert_eq!(inspect(cx, &cx.key("free")).await, Inspected::default());
}

async fn looking_keeps_no_place_and_calls_nobody(cx: &Context) {
    let key = cx.key("looked-at");
    let held = reader(&key, LONG);
    granted(&cx.backend, &held).await;
    waits(&cx.backend, &joining(request(&key, LONG), LONG), 0).await;
    let brief = joining(reader(&key, LONG), super::context::SHORT);
    waits(&cx.backend, &brief, 1).await;
    let before = inspect(cx, &key).await;
    for _ in 0..3 {
        cx.is_locked(&key).await;
        cx.record(&key).await;
        cx.backend.list(&ListRequest::new(key.as_str())).await.expect("list answers");
        cx.peer.inspect(&key).await.expect("inspect answers");
    }
    let after = inspect(cx, &key).await;
    assert_eq!((&after.holders, &after.waiters[0]), (&before.holders, &before.waiters[0]));
    cx.until_place_ends(super::context::SHORT).await;
    assert_eq!(inspect(cx, &key).await.waiters, [before.waiters[0].clone()]);
}

async fn list_counts_who_waits(cx: &Context) {
    let (busy, read, quiet) = (cx.key("busy"), cx.key("read"), cx.key("quiet"));
    cx.take(&busy, LONG).await;
    cx.take(&quiet, LONG).await;
    granted(&cx.backend, &reader(&read, LONG)).await;
    granted(&cx.peer, &reader(&read, LONG)).await;
    waits(&cx.backend, &joining(request(&read, LONG), LONG), 0).await;
    for place in 0..3 {
        waits(&cx.peer, &joining(reader(&busy, LONG), LONG), place).await;
        super::refused(&cx.peer, &heeding(reader(&busy, LONG))).await;
    }
    let expected = HashMap::from([(busy, 3), (read, 1)]);
    for store in [&cx.backend, &cx.peer] {
        let page = store.list(&ListRequest::new(cx.namespace())).await.expect("list answers");
        assert_eq!((page.records.len(), &page.waiting), (4, &expected));
    }
}

async fn list_shows_every_grant_once(cx: &Context) {
    let (read, counted, alone) = (cx.key("read"), cx.key("counted"), cx.key("alone"));
    let mut expected = BTreeMap::new();
    for number in 0..11 {
        let wanted = if number % 2 == 0 { reader(&read, LONG) } else { permit(9, &counted, LONG) };
        granted(if number % 3 == 0 { &cx.backend } else { &cx.peer }, &wanted).await;
        expected.insert(wanted.lock_id.expose().to_owned(), live_record(cx, &wanted).await);
    }
    let exclusive = request(&alone, LONG);
    granted(&cx.backend, &exclusive).await;
    expected.insert(exclusive.lock_id.expose().to_owned(), live_record(cx, &exclusive).await);
    for limit in [1, 3, 5, 12, 100] {
        let (mut shown, mut count) = (BTreeMap::new(), 0);
        let mut wanted = ListRequest::new(cx.namespace()).with_page_size(limit);
        loop {
            let page = cx.backend.list(&wanted).await.expect("list answers");
            assert!(page.records.len() <= limit, "{} records on a page for {limit}", page.records.len());
            count += page.records.len();
            shown.extend(page.records.into_iter().map(|record| (record.lock_id.expose().to_owned(), record)));
            assert!(count <= expected.len(), "in pages of {limit} some are shown twice");
            let Some(next) = page.next else { break };
            wanted = wanted.with_cursor(next);
        }
        assert_eq!(shown, expected, "in pages of {limit}");
    }
    assert!(expected.values().any(|record| record.mode == one_of(9)));
}
