use std::time::Duration;

use leasehold::ListRequest;
use leasehold::backend::{Acquire, Backend, LookupBy};

use crate::{granted, request, stealing, ttl};

/// Each operation in each of its ways, on a store without locks, which has none afterwards either.
/// Says after each what it was.
pub async fn every_operation(store: &dyn Backend, mut after: impl FnMut(&str)) {
    let held = request("order:42");
    granted(store, &held).await;
    after("acquire");
    granted(store, &held).await;
    after("a repeated acquire");
    assert!(matches!(store.acquire(&request("order:42")).await.unwrap(), Acquire::Held(_)));
    after("a refused acquire");
    store.extend(&held.lock_id, ttl(60_000)).await.unwrap();
    after("extend");
    assert!(store.is_locked(&held.key).await.unwrap());
    after("is_locked");
    assert!(store.lookup(LookupBy::Key(&held.key)).await.unwrap().is_some());
    after("lookup by key");
    assert!(store.lookup(LookupBy::Id(&held.lock_id)).await.unwrap().is_some());
    after("lookup by id");
    assert_eq!(store.list(&ListRequest::new("")).await.unwrap().records.len(), 1);
    after("a list of one page");
    tokio::time::sleep(Duration::from_millis(5)).await;
    granted(store, &stealing("order:42", 1)).await;
    after("a steal");
    assert!(!store.force_release(&held.key, None).await.unwrap().is_empty());
    after("a forced release");
    granted(store, &held).await;
    after("acquire");
    store.release(&held.lock_id).await.unwrap();
    after("release");
}
