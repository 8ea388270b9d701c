//! A store without all of this says so, and does nothing by halves.

use leasehold::ErrorCode;

use super::context::LONG;
use super::{Context, granted, group, heeding, joining, permit, reader, request};

group!("kinds":
    kinds_refused_where_not_supported needs NoLines,
    several_locks_refused_where_not_supported needs NoLines,
);

async fn kinds_refused_where_not_supported(cx: &Context) {
    let key = cx.key("plain");
    let wanted =
        [reader(&key, LONG), permit(2, &key, LONG), heeding(request(&key, LONG)), joining(request(&key, LONG), LONG)];
    for wanted in &wanted {
        for store in [&cx.backend, &cx.peer] {
            let error = store.acquire(wanted).await.expect_err("the store has nothing but exclusive locks");
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            assert!(!error.outcome_unknown(), "nothing was done");
        }
    }
    assert!(!cx.is_locked(&key).await);
    granted(&cx.peer, &request(&key, LONG)).await;
}

async fn several_locks_refused_where_not_supported(cx: &Context) {
    let keys = [cx.key("first"), cx.key("second")];
    let wanted = keys.each_ref().map(|key| request(key, LONG));
    for store in [&cx.backend, &cx.peer] {
        let error = store.acquire_all(&wanted).await.expect_err("the store takes one lock at a time");
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
    }
    assert!(!cx.is_locked(&keys[0]).await && !cx.is_locked(&keys[1]).await);
}
