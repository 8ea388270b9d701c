//! Documents, as they are shared with the Node.js library.

use leasehold::backend::{Absence, Acquire, Backend, Extend, LookupBy, Release};
use leasehold::{ErrorCode, Key, ListRequest};
use serde_json::{Value, json};
use test_servers::Firestore;
use test_support::{connect, eventually, granted, id, key, request, ttl};

/// A lock as the Node.js library writes it.
fn foreign(server: &Firestore, name: &str, id: &str, left: i64) -> Value {
    let now = server.now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let now = i64::try_from(now).unwrap();
    json!({
        "lockId": {"stringValue": id},
        "expiresAtMs": {"integerValue": (now + left).to_string()},
        "acquiredAtMs": {"integerValue": (now - 5000).to_string()},
        "key": {"stringValue": name},
        "fence": {"stringValue": "000000000000007"},
    })
}

#[tokio::test]
async fn documents_have_exactly_the_fields_and_types_of_the_shared_layout_and_ours() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let held = request("payment:42");
    let grant = granted(&*store, &held).await;
    let lock = server.document("locks/payment:42").unwrap().fields;
    let expected = json!({
        "lockId": {"stringValue": held.lock_id.expose()},
        "expiresAtMs": {"integerValue": grant.expires_at.as_millis().to_string()},
        "acquiredAtMs": {"integerValue": grant.acquired_at.as_millis().to_string()},
        "key": {"stringValue": "payment:42"},
        "fence": {"stringValue": grant.fence.to_string()},
        "holder": {"stringValue": held.holder.as_str()},
    });
    assert_eq!(lock, expected);
    assert_eq!(grant.expires_at.as_millis() - grant.acquired_at.as_millis(), held.ttl.as_millis());
    let counter = server.document("fence_counters/fence:payment:42").unwrap().fields;
    let expected = json!({
        "fence": {"stringValue": grant.fence.to_string()},
        "keyDebug": {"stringValue": "payment:42"},
    });
    assert_eq!(counter, expected);
    assert_eq!(server.documents().len(), 2);
}

#[tokio::test]
async fn documents_have_the_ids_that_the_shared_vectors_say() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let vectors: Value = serde_json::from_str(include_str!("../data/storage-keys.json")).unwrap();
    let is_ours = |vector: &&Value| {
        vector["prefix"] == "" && vector["limit"] == 1500 && vector["reserve"] == 0 && vector["error"].is_null()
    };
    let mut seen = 0;
    for vector in vectors["storage"].as_array().unwrap().iter().filter(is_ours) {
        let (name, counter) = (vector["storageKey"].as_str().unwrap(), vector["fenceKey"].as_str().unwrap());
        // Those that cannot be ids of documents have others.
        if name.contains('/') || name.starts_with("__") || matches!(name, "." | "..") {
            continue;
        }
        let Ok(key) = Key::new(vector["key"].as_str().unwrap()) else { continue };
        let held = request(key.as_str());
        granted(&*store, &held).await;
        for path in [format!("locks/{name}"), format!("fence_counters/{counter}")] {
            assert!(server.document(&path).is_some(), "{path}: {:?}", server.documents().keys());
        }
        store.release(&held.lock_id).await.unwrap();
        seen += 1;
    }
    assert!(seen >= 5, "only {seen} vectors");
}

#[tokio::test]
async fn keys_that_cannot_be_ids_of_documents_are_locked_found_and_listed_all_the_same() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    for name in ["a/b", "/", ".", "..", "__x__", "____"] {
        let held = request(name);
        let first = granted(&*store, &held).await;
        assert!(matches!(store.acquire(&request(name)).await.unwrap(), Acquire::Held(_)), "{name}");
        let found = store.lookup(LookupBy::Key(&key(name))).await.unwrap().unwrap();
        assert_eq!((found.key.as_str(), found.lock_id), (name, held.lock_id));
        assert_eq!(store.list(&ListRequest::new(name)).await.unwrap().records, [found]);
        assert_eq!(store.release(&held.lock_id).await.unwrap(), Release::Released);
        let again = granted(&*store, &held).await;
        assert!(again.fence > first.fence, "{name}");
        store.release(&held.lock_id).await.unwrap();
    }
}

#[tokio::test]
async fn locks_of_the_other_library_are_respected_extended_released_and_counted_on() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let theirs = id();
    server.set_document("locks/order:1", &foreign(&server, "order:1", theirs.expose(), 30_000));
    let counter = json!({"fence": {"stringValue": "000000000000007"}, "keyDebug": {"stringValue": "order:1"}});
    server.set_document("fence_counters/fence:order:1", &counter);
    assert!(matches!(store.acquire(&request("order:1")).await.unwrap(), Acquire::Held(_)));
    let Extend::Extended { expires_at } = store.extend(&theirs, ttl(60_000)).await.unwrap() else { panic!("lost") };
    let document = server.document("locks/order:1").unwrap().fields;
    assert_eq!(document["expiresAtMs"]["integerValue"], expires_at.as_millis().to_string());
    assert_eq!(document.as_object().unwrap().len(), 5, "nothing was added: {document}");
    assert_eq!(store.release(&theirs).await.unwrap(), Release::Released);
    assert!(server.document("locks/order:1").is_none());
    assert!(granted(&*store, &request("order:1")).await.fence.get() > 7);

    // A second after its end it is free, and its counter goes on, also if it is ahead of the clock.
    server.set_document("locks/order:2", &foreign(&server, "order:2", id().expose(), -1_500));
    let counter = json!({"fence": {"stringValue": "080000000000000"}, "keyDebug": {"stringValue": "order:2"}});
    server.set_document("fence_counters/fence:order:2", &counter);
    assert_eq!(granted(&*store, &request("order:2")).await.fence.to_string(), "080000000000001");
    let document = server.document("fence_counters/fence:order:2").unwrap().fields;
    assert_eq!(document["fence"]["stringValue"], "080000000000001");
}

#[tokio::test]
async fn a_counter_that_was_lost_is_no_reason_to_count_below_the_lock() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let mut dead = foreign(&server, "order:1", id().expose(), -1_500);
    dead["fence"]["stringValue"] = json!("080000000000000");
    server.set_document("locks/order:1", &dead);
    assert_eq!(granted(&*store, &request("order:1")).await.fence.to_string(), "080000000000001");
}

#[tokio::test]
async fn a_forced_release_does_not_forget_a_fence_that_only_the_lock_has() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let mut ahead = foreign(&server, "order:1", id().expose(), 30_000);
    ahead["fence"]["stringValue"] = json!("080000000000000");
    server.set_document("locks/order:1", &ahead);
    let counter = json!({"fence": {"stringValue": "000000000000007"}, "keyDebug": {"stringValue": "order:1"}});
    server.set_document("fence_counters/fence:order:1", &counter);
    store.force_release(&key("order:1"), None).await.unwrap();
    assert_eq!(granted(&*store, &request("order:1")).await.fence.to_string(), "080000000000001");
}

#[tokio::test]
async fn what_is_no_lock_is_never_granted_over() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let whole = foreign(&server, "odd", id().expose(), 30_000);
    for (field, value) in [
        ("lockId", json!({"integerValue": "1"})),
        ("expiresAtMs", json!({"stringValue": "never"})),
        ("expiresAtMs", json!({"doubleValue": 1.5})),
        ("acquiredAtMs", json!({"nullValue": null})),
        ("fence", json!({"integerValue": "7"})),
        ("key", json!({"mapValue": {"fields": {}}})),
    ] {
        let mut broken = whole.clone();
        broken[field] = value;
        server.set_document("locks/odd", &broken);
        let error = store.acquire(&request("odd")).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Internal, "{field}: {error:?}");
        assert!(error.hint().is_some() && !error.outcome_unknown());
        assert_eq!(server.document("locks/odd").unwrap().fields, broken, "and left as it was");
        assert!(store.list(&ListRequest::new("")).await.unwrap().records.is_empty());
    }
    server.set_document("locks/odd", &json!({}));
    assert_eq!(store.acquire(&request("odd")).await.unwrap_err().code(), ErrorCode::Internal);
}

#[tokio::test]
async fn a_counter_that_is_none_grants_nothing() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    for fence in [json!({"integerValue": "7"}), json!({"stringValue": "7"}), json!({"stringValue": "x"})] {
        eventually("nobody is in the way", async || server.transactions() == 0).await;
        server.set_document("fence_counters/fence:odd", &json!({"fence": fence}));
        let error = store.acquire(&request("odd")).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Internal, "{error:?}");
        assert!(server.document("locks/odd").is_none());
    }
}

#[tokio::test]
async fn two_locks_with_one_id_are_both_left_alone() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let twice = id();
    for name in ["a", "b"] {
        server.set_document(&format!("locks/{name}"), &foreign(&server, name, twice.expose(), 30_000));
    }
    for error in [
        store.release(&twice).await.unwrap_err(),
        store.extend(&twice, ttl(1000)).await.unwrap_err(),
        store.lookup(LookupBy::Id(&twice)).await.unwrap_err(),
    ] {
        assert_eq!(error.code(), ErrorCode::Internal, "{error:?}");
        assert!(error.hint().is_some());
    }
    assert_eq!(server.documents().len(), 2);
    // Of two of which one is dead, the other is meant.
    server.set_document("locks/b", &foreign(&server, "b", twice.expose(), -1_500));
    assert_eq!(store.release(&twice).await.unwrap(), Release::Released);
    assert!(server.document("locks/a").is_none() && server.document("locks/b").is_some());
    assert_eq!(store.release(&twice).await.unwrap(), Release::Absent(Absence::Expired));
}

#[tokio::test]
async fn collections_are_chosen_and_kept_apart() {
    let server = Firestore::start();
    let (one, other) = (connect(&server.url()).await, connect(&format!("{}&locks=l&fences=f", server.url())).await);
    granted(&*one, &request("order:42")).await;
    granted(&*other, &request("order:42")).await;
    let paths: Vec<_> = server.documents().into_keys().collect();
    assert_eq!(paths, ["f/fence:order:42", "fence_counters/fence:order:42", "l/order:42", "locks/order:42"]);
}
