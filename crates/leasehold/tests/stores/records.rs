//! What is stored changes only when it has to.

use leasehold::ListRequest;
use leasehold::backend::{Acquire, Backend, Extend, LookupBy, Release};
use test_support::{Case, cases, connect, granted, key, request, ttl};

use crate::Store;

pub(crate) const CASES: &[Case] = cases![
    a_release_leaves_nothing_but_the_counter,
    an_extend_changes_the_expiry_alone,
    a_repeated_acquire_changes_nothing,
    looking_and_a_refused_acquire_change_nothing,
];

async fn a_release_leaves_nothing_but_the_counter(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    let held = request("order:42");
    let grant = granted(&*store, &held).await;
    let locked = server.snapshot();
    assert!(locked.len() > 1, "{locked:?}");
    assert_eq!(store.release(&held.lock_id).await.unwrap(), Release::Released);
    assert_eq!(server.fence_counter("order:42"), grant.fence.get().to_string());
    assert_eq!(server.snapshot().len(), 1, "{:?}", server.snapshot());

    let grant = granted(&*store, &held).await;
    store.force_release(&held.key, None).await.unwrap();
    assert_eq!(server.fence_counter("order:42"), grant.fence.get().to_string());
    assert_eq!(server.snapshot().len(), 1, "{:?}", server.snapshot());
}

async fn an_extend_changes_the_expiry_alone(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    let held = request("order:42");
    let grant = granted(&*store, &held).await;
    let counter = server.fence_counter("order:42");
    let mut record = store.lookup(LookupBy::Key(&held.key)).await.unwrap().unwrap();
    assert_eq!(record.expires_at, grant.expires_at);
    for millis in [90_000, 5_000] {
        let before = server.now();
        let Extend::Extended { expires_at } = store.extend(&held.lock_id, ttl(millis)).await.unwrap() else {
            panic!("not extended");
        };
        assert!((before + millis..=server.now() + millis).contains(&expires_at.as_millis()));
        record.expires_at = expires_at;
        assert_eq!(store.lookup(LookupBy::Key(&held.key)).await.unwrap().unwrap(), record);
        assert_eq!(server.fence_counter("order:42"), counter);
    }
}

async fn a_repeated_acquire_changes_nothing(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    let held = request("order:42");
    let grant = granted(&*store, &held).await;
    let before = server.snapshot();
    assert_eq!(granted(&*store, &held).await, grant);
    assert_eq!(server.snapshot(), before);
}

async fn looking_and_a_refused_acquire_change_nothing(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    let held = request("order:42");
    granted(&*store, &held).await;
    let before = server.snapshot();
    assert!(store.is_locked(&held.key).await.unwrap());
    assert!(!store.is_locked(&key("order:43")).await.unwrap());
    assert!(store.lookup(LookupBy::Key(&held.key)).await.unwrap().is_some());
    assert!(store.lookup(LookupBy::Id(&held.lock_id)).await.unwrap().is_some());
    assert_eq!(store.list(&ListRequest::new("")).await.unwrap().records.len(), 1);
    assert!(matches!(store.acquire(&request("order:42")).await.unwrap(), Acquire::Held(_)));
    assert_eq!(server.snapshot(), before);
}
