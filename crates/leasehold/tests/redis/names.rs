//! What is called what, and what is kept apart by it.

use leasehold::backend::{Acquire, Backend, LookupBy, Topic};
use leasehold::redis::Redis;
use leasehold::{ErrorCode, Key, ListRequest, Locks};
use serde_json::Value;
use test_servers::Redis as Server;
use test_support::redis::{exists, snapshot};
use test_support::{StoreServer, eventually, everything_said, granted, key, request};

use crate::support::connect;

#[tokio::test]
async fn locks_and_counters_have_the_names_that_the_shared_vectors_say() {
    let server = Server::start();
    let store = connect(&server).await;
    let vectors: Value = serde_json::from_str(include_str!("../data/storage-keys.json")).unwrap();
    let is_ours = |vector: &&Value| {
        vector["prefix"] == "syncguard"
            && vector["limit"] == 1000
            && vector["reserve"] == 26
            && vector["error"].is_null()
    };
    let mut seen = 0;
    for vector in vectors["storage"].as_array().unwrap().iter().filter(is_ours) {
        // Longer keys than ours may be are somebody else's.
        let Ok(key) = Key::new(vector["key"].as_str().unwrap()) else { continue };
        server.cli(&["FLUSHALL"]);
        granted(&store, &request(key.as_str())).await;
        for name in ["storageKey", "fenceKey"] {
            assert!(exists(&server, vector[name].as_str().unwrap()), "{name} of {vector}: {:?}", snapshot(&server));
        }
        seen += 1;
    }
    assert!(seen >= 10, "only {seen} vectors");
}

#[tokio::test]
async fn names_too_long_for_the_layout_are_hashed_and_found_again() {
    let server = Server::start();
    let prefix = "p".repeat(600);
    let store = Redis::connect(&format!("{}?prefix={prefix}", server.url())).await.unwrap();
    let long = "k".repeat(500);
    let held = request(&long);
    granted(&store, &held).await;
    // The hashed name is the prefix, a colon and 22 characters.
    let lock = server.cli(&["GET", &format!("{prefix}:id:{}", held.lock_id.expose())]);
    assert_eq!(lock.len(), 600 + 1 + 22);
    assert!(exists(&server, &lock));
    let listed = store.list(&ListRequest::new("kkk")).await.unwrap();
    assert_eq!(listed.records[0].key.as_str(), long);
    assert!(store.lookup(LookupBy::Id(&held.lock_id)).await.unwrap().is_some());
    assert!(matches!(store.acquire(&request(&long)).await.unwrap(), Acquire::Held(_)));
}

#[tokio::test]
async fn a_name_is_hashed_from_the_byte_on_that_the_layout_says() {
    let server = Server::start();
    let prefix = "p".repeat(500);
    let store = Redis::connect(&format!("{}?prefix={prefix}", server.url())).await.unwrap();
    // 1000 bytes less 26 are left for the prefix, a colon and the key.
    for (length, name_length) in [(473, 974), (474, 500 + 1 + 22)] {
        let held = request(&"k".repeat(length));
        granted(&store, &held).await;
        let lock = server.cli(&["GET", &format!("{prefix}:id:{}", held.lock_id.expose())]);
        assert_eq!(lock.len(), name_length, "a key of {length} bytes");
    }
}

#[tokio::test]
async fn characters_that_mean_something_in_patterns_mean_themselves_in_keys_and_prefixes() {
    let server = Server::start();
    for prefix in ["app", "a[p]p", "a?p", "a*p", "a%5Cp"] {
        let store = Redis::connect(&format!("{}?prefix={prefix}", server.url())).await.unwrap();
        for name in ["order[1]:x", "order1:x", "order?:x", "order*:x", "order\\:x"] {
            granted(&store, &request(name)).await;
        }
        for start in ["order[1]", "order1", "order?", "order*", "order\\"] {
            let records = store.list(&ListRequest::new(start)).await.unwrap().records;
            let keys: Vec<_> = records.iter().map(|record| record.key.as_str()).collect();
            assert_eq!(keys, [format!("{start}:x")], "with the prefix {prefix}");
        }
    }
}

#[tokio::test]
async fn databases_keep_locks_apart() {
    let server = Server::start();
    let stores = [0, 1, 5].map(|number| format!("{}/{number}", server.url()));
    let mut held = Vec::new();
    for url in &stores {
        let store = Redis::connect(url).await.unwrap();
        let wanted = request("order:42");
        granted(&store, &wanted).await;
        held.push((store, wanted));
    }
    for (store, wanted) in &held {
        assert_eq!(store.list(&ListRequest::new("")).await.unwrap().records.len(), 1);
        for (_, other) in held.iter().filter(|(_, other)| other.lock_id != wanted.lock_id) {
            assert!(store.lookup(LookupBy::Id(&other.lock_id)).await.unwrap().is_none());
        }
        store.release(&wanted.lock_id).await.unwrap();
    }
    let error = Redis::connect(&format!("{}/99", server.url())).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
}

#[tokio::test]
async fn prefixes_keep_locks_apart() {
    let server = Server::start();
    let store = |prefix: &str| {
        let url = format!("{}?prefix={prefix}", server.url());
        async move { Redis::connect(&url).await.unwrap() }
    };
    let stores = [store("app").await, store("application").await, store("app*").await, store("").await];
    for store in &stores {
        granted(store, &request("order:42")).await;
    }
    for (index, store) in stores.iter().enumerate() {
        let keys: Vec<_> = store.list(&ListRequest::new("order")).await.unwrap().records;
        assert_eq!(keys.len(), 1, "{index}");
    }
    // A colon at the end of a prefix makes no difference.
    assert!(store("app::").await.is_locked(&key("order:42")).await.unwrap());
    assert!(exists(&server, "app:order:42") && exists(&server, "order:42") && exists(&server, "fence:order:42"));
}

#[tokio::test]
async fn reserved_names_are_refused_before_anything_is_sent() {
    let server = Server::start();
    let store = connect(&server).await;
    let locks = Locks::new(connect(&server).await);
    // Whatever a handle does when it is new is done: its keeper has subscribed as well.
    locks.lock("warm").acquire().await.unwrap().release().await.unwrap();
    eventually("the keeper listens", async || server.listeners() == 1).await;
    granted(&store, &request("warm")).await;
    let before = snapshot(&server);
    server.cli(&["CONFIG", "RESETSTAT"]);
    for name in ["id:abcdefghijklmnopqrstuv", "fence:syncguard:order:42", "fence:syncguard:"] {
        let (reserved, wanted) = (key(name), request(name));
        let errors = [
            store.acquire(&wanted).await.map(drop).unwrap_err(),
            store.is_locked(&reserved).await.map(drop).unwrap_err(),
            store.lookup(LookupBy::Key(&reserved)).await.map(drop).unwrap_err(),
            store.force_release(&reserved, None).await.map(drop).unwrap_err(),
            store.subscribe(Topic::Freed(&reserved)).await.map(drop).unwrap_err(),
            locks.lock(name).acquire().await.map(drop).unwrap_err(),
            locks.lock(name).try_acquire().await.map(drop).unwrap_err(),
            locks.force_release(&reserved).await.map(drop).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{name}: {error}");
            assert!(error.hint().is_some() && !everything_said(&error).contains(name));
        }
    }
    assert_eq!((server.calls("evalsha"), server.calls("eval"), server.calls("subscribe")), (0, 0, 0));
    assert_eq!(snapshot(&server), before);
    for prefix in ["fence", "my-fence", "a:fence:b"] {
        let error = Redis::connect(&format!("{}?prefix={prefix}", server.url())).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{prefix}");
    }
}
