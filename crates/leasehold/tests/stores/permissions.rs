//! What a user of the server must be allowed.

use std::time::Duration;

use leasehold::backend::{Backend, Event, Extend, LookupBy, Release, Topic};
use leasehold::{ListRequest, Locks, Verdict};
use test_support::{Case, Setup, cases, check, connect, eventually, granted, key, request, soon, stealing, ttl};

use crate::Store;

pub(crate) const CASES: &[Case] = cases![the_least_permissions_are_enough_for_everything];

async fn the_least_permissions_are_enough_for_everything(store: Store) {
    const SECRET: &str = "hunter2secret";
    let server = store.server_with(&Setup { password: Some(SECRET), ..Setup::default() });
    let url = server.least_permissions(SECRET);
    let store = connect(&url).await;
    let mut freed = store.subscribe(Topic::Freed(&key("order:42"))).await.unwrap();
    let mut taken = store.subscribe(Topic::Taken).await.unwrap();
    let held = request("order:42");
    granted(&*store, &held).await;
    assert!(matches!(store.extend(&held.lock_id, ttl(60_000)).await.unwrap(), Extend::Extended { .. }));
    assert!(store.is_locked(&held.key).await.unwrap());
    assert!(store.lookup(LookupBy::Key(&held.key)).await.unwrap().is_some());
    assert!(store.lookup(LookupBy::Id(&held.lock_id)).await.unwrap().is_some());
    assert_eq!(store.list(&ListRequest::new("")).await.unwrap().records.len(), 1);
    assert_eq!(store.release(&held.lock_id).await.unwrap(), Release::Released);
    assert_eq!(soon("the notification", freed.next()).await, Some(Event::Freed));
    granted(&*store, &held).await;
    let since = server.now();
    eventually("it is old enough to be stolen", async || server.now() > since + 2).await;
    granted(&*store, &stealing("order:42", 1)).await;
    assert!(matches!(soon("the notification", taken.next()).await, Some(Event::Taken { .. })));
    assert!(!store.force_release(&held.key, None).await.unwrap().is_empty());
    let checks = Locks::examine(&url).await.unwrap();
    assert_eq!(check(&checks, "permissions").verdict, Verdict::Ok, "{checks:?}");

    let locks = Locks::new(store);
    let guard = locks.lock("guarded").ttl(Duration::from_secs(9)).acquire().await.unwrap();
    let first = guard.expires_at();
    eventually("a renewal", async || guard.expires_at() > first).await;
    guard.release().await.unwrap();
}
