//! Errors are errors; everything else is an answer.

use leasehold::backend::{Absence, Extend, LookupBy, Release};
use leasehold::{ErrorCode, ListRequest};

use super::context::{Context, LONG, granted, new_id, refused, request, ttl};
use super::group;

group!("errors":
    absence_is_a_value,
    contention_is_a_value,
    a_strange_cursor_is_no_worse_than_an_invalid_argument,
    handles_agree_on_what_the_store_can_do,
    debug_shows_no_keys_and_no_lock_ids,
    one_id_cannot_hold_two_keys,
);

async fn absence_is_a_value(cx: &Context) {
    let (key, id) = (cx.key("never-held"), new_id());
    assert_eq!(cx.backend.release(&id).await.expect("an answer"), Release::Absent(Absence::NotFound));
    assert_eq!(cx.backend.extend(&id, ttl(LONG)).await.expect("an answer"), Extend::Absent(Absence::NotFound));
    assert_eq!(cx.backend.lookup(LookupBy::Id(&id)).await.expect("an answer"), None);
    assert_eq!(cx.backend.lookup(LookupBy::Key(&key)).await.expect("an answer"), None);
    assert_eq!(cx.backend.force_release(&key, None).await.expect("an answer"), []);
    assert!(!cx.backend.is_locked(&key).await.expect("an answer"));
    let page = cx.backend.list(&ListRequest::new(key.as_str())).await.expect("an answer");
    assert!(page.records.is_empty());
}

async fn contention_is_a_value(cx: &Context) {
    let key = cx.key("contended");
    cx.take(&key, LONG).await;
    for _ in 0..5 {
        refused(&cx.backend, &request(&key, LONG)).await;
        refused(&cx.peer, &request(&key, LONG)).await;
    }
}

async fn a_strange_cursor_is_no_worse_than_an_invalid_argument(cx: &Context) {
    cx.take(&cx.key("listed"), LONG).await;
    for cursor in ["", "!", "-1", "99999999999999999999", "\u{1f512}", "' or 1=1 --"] {
        if let Err(error) = cx.backend.list(&ListRequest::new(cx.namespace()).with_cursor(cursor)).await {
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "for the cursor {cursor:?}");
        }
    }
}

async fn handles_agree_on_what_the_store_can_do(cx: &Context) {
    assert_eq!(cx.peer.capabilities(), cx.backend.capabilities());
    let key = cx.key("shared");
    granted(&cx.peer, &request(&key, LONG)).await;
    refused(&cx.backend, &request(&key, LONG)).await;
}

async fn debug_shows_no_keys_and_no_lock_ids(cx: &Context) {
    let key = cx.key("secret-key");
    let grant = cx.take(&key, LONG).await;
    let record = cx.record(&key).await;
    for shown in [format!("{:?}", cx.backend), format!("{grant:?}"), format!("{record:?}")] {
        assert!(!shown.contains("secret-key"), "a key in {shown}");
        assert!(!shown.contains(grant.lock_id.expose()), "a lock id in a debug text");
    }
}

async fn one_id_cannot_hold_two_keys(cx: &Context) {
    let (key, other) = (cx.key("first"), cx.key("second"));
    let first = request(&key, LONG);
    let grant = granted(&cx.backend, &first).await;
    let second = first.with_key(other.clone());
    let error = cx.backend.acquire(&second).await.expect_err("the id belongs to another lock");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(!cx.is_locked(&other).await);
    assert_eq!(cx.record_of(&grant.lock_id).await.map(|record| record.key), Some(key));
}
