//! Looking at locks.

use leasehold::{ListRequest, Operation};
use test_support::key;

use crate::support::World;

#[tokio::test]
async fn lookups_return_hashes_and_raw_values_only_when_asked_for() {
    let world = World::new();
    let locks = world.locks();
    let guard = locks.lock("user:alice").holder("web-1").metadata([("job", "nightly")]).acquire().await.unwrap();
    let key = key("user:alice");

    let by_key = locks.get_by_key(&key).await.unwrap().unwrap();
    let by_id = locks.get_by_id(guard.lock_id()).await.unwrap().unwrap();
    assert_eq!(by_key, by_id);
    assert_eq!((by_key.key_hash, by_key.lock_id_hash), (key.hash_id(), guard.lock_id().hash_id()));
    assert_eq!(
        (by_key.fence, by_key.acquired_at, by_key.expires_at),
        (guard.fence(), guard.acquired_at(), guard.expires_at())
    );
    assert_eq!(by_key.holder.as_ref().unwrap().as_str(), "web-1");
    assert_eq!(by_key.metadata.get("job").unwrap(), "nightly");
    let shown = format!("{by_key:?} {}", serde_json::to_string(&by_key).unwrap());
    assert!(!shown.contains("alice") && !shown.contains(guard.lock_id().expose()));

    let raw = locks.get_by_key_raw(&key).await.unwrap().unwrap();
    assert_eq!((&raw.key, &raw.lock_id), (&key, guard.lock_id()));
    assert_eq!(locks.get_by_id_raw(guard.lock_id()).await.unwrap().unwrap(), raw);
    assert!(locks.owns(guard.lock_id()).await.unwrap());

    let id = *guard.lock_id();
    guard.release().await.unwrap();
    assert!(locks.get_by_key(&key).await.unwrap().is_none());
    assert!(locks.get_by_id(&id).await.unwrap().is_none());
    assert!(!locks.owns(&id).await.unwrap());
}

#[tokio::test]
async fn a_listing_shows_keys_but_never_lock_ids() {
    let world = World::new();
    let locks = world.locks();
    let mut guards = Vec::new();
    for n in 0..25 {
        guards.push(locks.lock(format!("job:{n:02}")).acquire().await.unwrap());
    }
    guards.push(locks.lock("other").acquire().await.unwrap());
    let mut request = ListRequest::new("job:").with_page_size(10);
    let mut seen = Vec::new();
    loop {
        let page = locks.list(&request).await.unwrap();
        assert!(page.locks.len() <= 10);
        let shown = format!("{page:?} {}", serde_json::to_string(&page).unwrap());
        assert!(guards.iter().all(|guard| !shown.contains(guard.lock_id().expose())));
        seen.extend(page.locks.into_iter().map(|lock| lock.key.as_str().to_owned()));
        match page.next {
            Some(next) => request = request.with_cursor(next),
            None => break,
        }
    }
    seen.sort();
    assert_eq!(seen, (0..25).map(|n| format!("job:{n:02}")).collect::<Vec<_>>());
    assert_eq!(world.faults.calls(Operation::List), 3);
}
