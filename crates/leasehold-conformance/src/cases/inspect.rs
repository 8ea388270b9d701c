//! Reads tell the truth and change nothing.

use std::collections::BTreeMap;

use leasehold::backend::Record;
use leasehold::{Key, ListRequest, TIME_TOLERANCE};

use super::context::{Context, LONG, SHORT, granted, new_id, released, request};
use super::group;

group!("inspect":
    is_locked_follows_the_lock,
    lookup_by_key_shows_the_record,
    lookup_by_id_shows_only_its_own_lock,
    reads_never_write_or_prolong,
    reads_leave_an_expired_lock_to_its_holder,
    list_pages_show_every_lock_once,
    list_shows_only_the_prefix,
    list_takes_the_prefix_literally,
);

async fn is_locked_follows_the_lock(cx: &Context) {
    let key = cx.key("followed");
    assert!(!cx.is_locked(&key).await);
    let grant = cx.take(&key, LONG).await;
    assert!(cx.is_locked(&key).await);
    assert!(cx.peer.is_locked(&key).await.expect("is_locked answers"));
    released(&cx.peer, &grant.lock_id).await;
    assert!(!cx.is_locked(&key).await);
}

async fn lookup_by_key_shows_the_record(cx: &Context) {
    let wanted = request(&cx.key("shown"), LONG);
    let grant = granted(&cx.peer, &wanted).await;
    let record = cx.record(&wanted.key).await.expect("the lock is held");
    assert_eq!(record.grant(), grant);
    assert_eq!(record.key, wanted.key);
    assert_eq!(record.holder, Some(wanted.holder));
    assert_eq!(cx.record(&cx.key("another")).await, None);
}

async fn lookup_by_id_shows_only_its_own_lock(cx: &Context) {
    let key = cx.key("shown");
    let old = cx.take(&key, LONG).await;
    assert_eq!(cx.record_of(&old.lock_id).await, cx.record(&key).await);
    released(&cx.backend, &old.lock_id).await;
    let new = granted(&cx.peer, &request(&key, LONG)).await;
    assert_eq!(cx.record_of(&old.lock_id).await, None);
    assert_eq!(cx.record_of(&new_id()).await, None);
    assert_eq!(cx.record_of(&new.lock_id).await.map(|record| record.grant()), Some(new));
}

async fn read_everything(cx: &Context, key: &Key, record: Option<&Record>) {
    cx.is_locked(key).await;
    cx.record(key).await;
    if let Some(record) = record {
        cx.record_of(&record.lock_id).await;
    }
    cx.backend.list(&ListRequest::new(cx.namespace())).await.expect("list answers");
}

async fn reads_never_write_or_prolong(cx: &Context) {
    let key = cx.key("read");
    cx.take(&key, SHORT).await;
    let before = cx.record(&key).await;
    for _ in 0..3 {
        read_everything(cx, &key, before.as_ref()).await;
    }
    assert_eq!(cx.record(&key).await, before);
    // Reads until the end do not put off the end.
    cx.pass(SHORT).await;
    read_everything(cx, &key, before.as_ref()).await;
    cx.until_free(0).await;
    assert!(!cx.is_locked(&key).await);
    granted(&cx.peer, &request(&key, LONG)).await;
}

async fn reads_leave_an_expired_lock_to_its_holder(cx: &Context) {
    for round in 0..10 {
        let key = cx.key(&format!("read-{round}"));
        let grant = cx.take(&key, 100).await;
        let before = cx.record(&key).await;
        cx.pass(300).await;
        read_everything(cx, &key, before.as_ref()).await;
        let after = cx.record(&key).await;
        if cx.latest() + TIME_TOLERANCE / 2 < grant.expires_at + TIME_TOLERANCE {
            assert_eq!(after, before, "within the tolerance the record is as it was");
            released(&cx.backend, &grant.lock_id).await;
            return;
        }
    }
    panic!("ten attempts were all too slow");
}

/// Follows the pages to the end; how often each key was shown.
async fn list(cx: &Context, prefix: &str, limit: usize) -> BTreeMap<Key, u32> {
    let mut shown = BTreeMap::new();
    let mut wanted = ListRequest::new(prefix).with_page_size(limit);
    for _ in 0..1000 {
        let page = cx.backend.list(&wanted).await.expect("list answers");
        assert!(page.records.len() <= limit, "{} records on a page for {limit}", page.records.len());
        for record in page.records {
            *shown.entry(record.key).or_default() += 1;
        }
        let Some(next) = page.next else { return shown };
        wanted = wanted.with_cursor(next);
    }
    panic!("the pages never end");
}

async fn list_pages_show_every_lock_once(cx: &Context) {
    let mut expected = BTreeMap::new();
    for name in 0..23 {
        let key = cx.key(&format!("lock-{name}"));
        granted(if name % 2 == 0 { &cx.backend } else { &cx.peer }, &request(&key, LONG)).await;
        expected.insert(key, 1);
    }
    let gone = cx.take(&cx.key("lock-gone"), LONG).await;
    released(&cx.backend, &gone.lock_id).await;
    for limit in [1, 4, 23, 100] {
        assert_eq!(list(cx, cx.namespace(), limit).await, expected, "in pages of {limit}");
    }
}

async fn list_shows_only_the_prefix(cx: &Context) {
    let (inside, outside) = (cx.key("in:a"), cx.key("out:a"));
    cx.take(&inside, LONG).await;
    cx.take(&outside, LONG).await;
    let shown = list(cx, cx.key("in:").as_str(), 10).await;
    assert_eq!(shown, BTreeMap::from([(inside, 1)]));
    assert!(list(cx, cx.key("nothing").as_str(), 10).await.is_empty());
}

async fn list_takes_the_prefix_literally(cx: &Context) {
    for (wild, name, other) in
        [("%", "%a", "xa"), ("_", "_a", "xa"), ("*", "*a", "xa"), ("[ab]", "[ab]a", "aa"), ("\\", "\\a", "xa")]
    {
        let name = cx.key(&format!("literal-{name}"));
        cx.take(&name, LONG).await;
        let other = cx.take(&cx.key(&format!("literal-{other}")), LONG).await;
        let shown = list(cx, cx.key(&format!("literal-{wild}")).as_str(), 10).await;
        assert_eq!(shown, BTreeMap::from([(name, 1)]), "the prefix ends in {wild}");
        released(&cx.backend, &other.lock_id).await;
    }
}
