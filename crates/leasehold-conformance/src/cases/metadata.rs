//! Whoever looks at a lock sees what its holder wrote down, exactly.

use leasehold::{Holder, Metadata, Steal};
use serde_json::json;

use super::context::{Context, LONG, extended, granted, holder, refused, released, request};
use super::group;

group!("metadata":
    holder_and_notes_are_kept,
    odd_values_come_back_exactly,
    survives_an_extend,
    each_grant_brings_its_own,
    a_thief_leaves_none_of_the_victims,
    the_largest_works,
    a_forced_release_shows_what_was_ended,
);

fn notes(value: serde_json::Value) -> Metadata {
    Metadata::new(value).expect("valid metadata")
}

/// Values that a careless re-encoding changes.
fn odd_values() -> Metadata {
    notes(json!({
        "big": 9_007_199_254_740_993_u64,
        "negative": -9_007_199_254_740_993_i64,
        "fraction": 0.1,
        "empty list": [],
        "empty object": {},
        "null": null,
        "false": false,
        "": "an empty name",
        "text": "quote\" back\\slash / \n \u{1} \u{e9} e\u{301} \u{1f512} {{x}} %s $1 \u{2028}",
        "digits": "007",
        "deep": [[[[[{"a": [1, "1", 1.5, null]}]]]]],
    }))
}

async fn holder_and_notes_are_kept(cx: &Context) {
    let wanted = request(&cx.key("noted"), LONG)
        .with_holder(holder("web-1/worker \u{1f512} \"3\""))
        .with_metadata(notes(json!({"job": "nightly", "attempt": 2})));
    granted(&cx.backend, &wanted).await;
    let record = cx.record(&wanted.key).await.expect("the lock is held");
    assert_eq!(record.holder.as_ref(), Some(&wanted.holder));
    assert_eq!(record.metadata, wanted.metadata);
    let contention = refused(&cx.peer, &request(&wanted.key, LONG)).await;
    assert_eq!(contention.holder, Some(wanted.holder));
}

async fn odd_values_come_back_exactly(cx: &Context) {
    let wanted = request(&cx.key("odd"), LONG).with_metadata(odd_values());
    granted(&cx.backend, &wanted).await;
    assert_eq!(cx.record(&wanted.key).await.map(|record| record.metadata), Some(odd_values()));
    assert_eq!(cx.record_of(&wanted.lock_id).await.map(|record| record.metadata), Some(odd_values()));
}

async fn survives_an_extend(cx: &Context) {
    let wanted = request(&cx.key("extended"), LONG).with_metadata(odd_values());
    granted(&cx.backend, &wanted).await;
    for _ in 0..3 {
        extended(&cx.peer, &wanted.lock_id, LONG).await;
    }
    let record = cx.record(&wanted.key).await.expect("the lock is held");
    assert_eq!(record.metadata, odd_values());
    assert_eq!(record.holder, Some(wanted.holder));
}

async fn each_grant_brings_its_own(cx: &Context) {
    let key = cx.key("reused");
    let first = request(&key, LONG).with_metadata(notes(json!({"first": true})));
    granted(&cx.backend, &first).await;
    released(&cx.backend, &first.lock_id).await;
    granted(&cx.peer, &request(&key, LONG).with_holder(holder("second"))).await;
    let record = cx.record(&key).await.expect("the lock is held");
    assert!(record.metadata.is_empty(), "notes of the holder before: {:?}", record.metadata);
    assert_eq!(record.holder, Some(holder("second")));
}

async fn a_thief_leaves_none_of_the_victims(cx: &Context) {
    let key = cx.key("stolen");
    let victim = request(&key, LONG).with_metadata(notes(json!({"victim": true})));
    granted(&cx.backend, &victim).await;
    let thief =
        request(&key, LONG).with_metadata(notes(json!({"thief": true}))).with_steal(Steal::NEVER.with_same_holder());
    granted(&cx.peer, &thief).await;
    assert_eq!(cx.record(&key).await.map(|record| record.metadata), Some(thief.metadata));
}

async fn the_largest_works(cx: &Context) {
    let room = Metadata::MAX_BYTES - json!({"n": ""}).to_string().len();
    let wanted = request(&cx.key("large"), LONG)
        .with_holder(holder(&"h".repeat(Holder::MAX_BYTES)))
        .with_metadata(notes(json!({"n": "x".repeat(room)})));
    assert_eq!(wanted.metadata.to_json().len(), Metadata::MAX_BYTES);
    granted(&cx.backend, &wanted).await;
    extended(&cx.backend, &wanted.lock_id, LONG).await;
    let record = cx.record(&wanted.key).await.expect("the lock is held");
    assert_eq!((record.holder, record.metadata), (Some(wanted.holder), wanted.metadata));
}

async fn a_forced_release_shows_what_was_ended(cx: &Context) {
    let wanted = request(&cx.key("forced"), LONG).with_metadata(odd_values());
    granted(&cx.backend, &wanted).await;
    let before = cx.record(&wanted.key).await.expect("the lock is held");
    let forced = cx.peer.force_release(&wanted.key, None).await.expect("force_release answers");
    assert_eq!(forced, [before]);
    assert!(!cx.is_locked(&wanted.key).await);
}
