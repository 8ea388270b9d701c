//! Different keys are different locks, and every valid key works.

use leasehold::Key;

use super::context::{Context, LONG, extended, granted, refused, released, request};
use super::group;

group!("keys":
    normalised_spellings_are_one_key,
    longest_key_works,
    long_keys_that_differ_at_the_end_are_distinct,
    odd_characters_do_not_collide,
    prefix_of_each_other_are_distinct,
    names_a_store_might_reserve_are_ordinary,
    come_back_as_they_were,
);

/// Takes all keys at once: possible only if no two are the same to the store. Then checks that each
/// has a life of its own.
async fn all_distinct(cx: &Context, keys: &[Key]) {
    let mut grants = Vec::new();
    for key in keys {
        grants.push(cx.take(key, LONG).await);
    }
    for (key, grant) in keys.iter().zip(&grants) {
        let record = cx.record(key).await.expect("the lock is held");
        assert_eq!(record.lock_id, grant.lock_id, "another lock is on record for {:?}", key.as_str());
        assert_eq!(record.key, *key, "another key is on record for {:?}", key.as_str());
    }
    for (done, (key, grant)) in keys.iter().zip(&grants).enumerate() {
        extended(&cx.backend, &grant.lock_id, LONG).await;
        released(&cx.backend, &grant.lock_id).await;
        assert!(!cx.is_locked(key).await, "{:?} was released", key.as_str());
        for other in &keys[done + 1..] {
            assert!(cx.is_locked(other).await, "{:?} went with {:?}", other.as_str(), key.as_str());
        }
    }
}

/// A key of exactly the longest length that ends in `end`.
fn longest(cx: &Context, end: &str) -> Key {
    let filling = "k".repeat(Key::MAX_BYTES - cx.namespace().len() - end.len());
    cx.key(&format!("{filling}{end}"))
}

async fn normalised_spellings_are_one_key(cx: &Context) {
    let grant = cx.take(&cx.key("cafe\u{301}"), LONG).await;
    let composed = cx.key("caf\u{e9}");
    refused(&cx.peer, &request(&composed, LONG)).await;
    assert!(cx.is_locked(&composed).await);
    released(&cx.backend, &grant.lock_id).await;
    granted(&cx.peer, &request(&composed, LONG)).await;
}

async fn longest_key_works(cx: &Context) {
    let key = longest(cx, "");
    assert_eq!(key.as_str().len(), Key::MAX_BYTES);
    let first = cx.take(&key, LONG).await;
    refused(&cx.peer, &request(&key, LONG)).await;
    assert_eq!(cx.record(&key).await.expect("the lock is held").key, key);
    extended(&cx.backend, &first.lock_id, LONG).await;
    released(&cx.backend, &first.lock_id).await;
    let second = granted(&cx.peer, &request(&key, LONG)).await;
    assert!(second.fence > first.fence);
}

async fn long_keys_that_differ_at_the_end_are_distinct(cx: &Context) {
    let keys = ["a", "b", "ab", "ba", "\u{e9}", "\u{1f512}"].map(|end| longest(cx, end));
    all_distinct(cx, &keys).await;
}

async fn odd_characters_do_not_collide(cx: &Context) {
    let names = [
        "a",
        "A",
        " a",
        "a ",
        "a\t",
        "a\n",
        "a\r\n",
        "/a",
        "a/",
        "a/b",
        "a\\b",
        ".",
        "..",
        "__a__",
        "a'b",
        "a\"b",
        "a`b",
        "a;b",
        "a--b",
        "a%b",
        "a_b",
        "a*b",
        "a?b",
        "a[b]",
        "{a}",
        "{b}",
        "a:b",
        "a::b",
        "a#b",
        "a\u{7f}b",
        "a\u{1}b",
        "\u{e4}",
        "\u{df}",
        "ss",
        "\u{1f512}",
        "\u{200b}a",
        "a\u{feff}",
        "%00",
        "\\0",
        "$1",
        "\u{ffff}",
        "\u{10ffff}",
    ];
    all_distinct(cx, &names.map(|name| cx.key(name))).await;
}

async fn prefix_of_each_other_are_distinct(cx: &Context) {
    all_distinct(cx, &["p", "pp", "p:", "p:p", "p:p:p", "p:pp"].map(|name| cx.key(name))).await;
}

async fn names_a_store_might_reserve_are_ordinary(cx: &Context) {
    let plain = cx.key("order");
    let first = cx.take(&plain, LONG).await;
    let names = ["fence:order", "order:fence", "id:order", "lock:order", "locks", "order:meta", "order.lock"];
    let keys: Vec<Key> = names.iter().map(|name| cx.key(name)).collect();
    all_distinct(cx, &keys).await;
    released(&cx.backend, &first.lock_id).await;
    assert!(cx.take(&plain, LONG).await.fence > first.fence, "the fence of the plain key was disturbed");
}

async fn come_back_as_they_were(cx: &Context) {
    for name in ["tab\there", "line\nbreak", "quote\"s'", "{\"json\": [1]}", "\u{e9}\u{1f512}", " spaces "] {
        let key = cx.key(name);
        let grant = cx.take(&key, LONG).await;
        assert_eq!(cx.record(&key).await.map(|record| record.key), Some(key.clone()));
        assert_eq!(cx.record_of(&grant.lock_id).await.map(|record| record.key), Some(key.clone()));
        let page = cx.backend.list(&leasehold::ListRequest::new(key.as_str())).await.expect("list answers");
        assert!(page.records.iter().any(|record| record.key == key), "{name:?} is not listed");
    }
}
