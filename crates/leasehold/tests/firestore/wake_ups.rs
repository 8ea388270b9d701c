//! The stream that tells of changes.

use std::time::Duration;

use leasehold::backend::{Backend, Event, Topic};
use leasehold::{Holder, Loss};
use test_servers::Firestore;
use test_support::{connect, eventually, granted, id, key, locks, request, soon, stealing, ttl};

/// Longer than news takes, and shorter than anybody waits without.
const QUIET: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a_release_of_the_other_library_wakes_those_who_wait() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    granted(&*store, &request("order:42")).await;
    let mut freed = store.subscribe(Topic::Freed(&key("order:42"))).await.unwrap();
    assert!(tokio::time::timeout(QUIET, freed.next()).await.is_err());
    server.delete_document("locks/order:42");
    assert_eq!(soon("the release", freed.next()).await, Some(Event::Freed));
}

#[tokio::test]
async fn what_was_there_before_is_no_news() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let stolen = request("stolen");
    granted(&*store, &stolen).await;
    store.force_release(&stolen.key, None).await.unwrap();
    granted(&*store, &request("order:42")).await;
    // A key that nobody holds, a lock that was taken a moment ago, and one that was granted.
    let mut subscriptions = vec![
        store.subscribe(Topic::Freed(&key("free"))).await.unwrap(),
        store.subscribe(Topic::Taken).await.unwrap(),
        store.subscribe(Topic::Granted).await.unwrap(),
    ];
    for subscription in &mut subscriptions {
        let early = tokio::time::timeout(QUIET, subscription.next()).await;
        assert!(early.is_err(), "{early:?}");
    }
}

#[tokio::test]
async fn an_extend_is_no_news_to_anybody() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let held = request("order:42");
    let mut granted_events = store.subscribe(Topic::Granted).await.unwrap();
    let mut freed = store.subscribe(Topic::Freed(&held.key)).await.unwrap();
    let fence = granted(&*store, &held).await.fence;
    let holder = Some(Holder::default());
    let event = Event::Granted { key: held.key.clone(), fence, holder };
    assert_eq!(soon("the grant", granted_events.next()).await, Some(event));
    for _ in 0..3 {
        store.extend(&held.lock_id, ttl(60_000)).await.unwrap();
    }
    assert!(tokio::time::timeout(QUIET, granted_events.next()).await.is_err());
    assert!(tokio::time::timeout(QUIET, freed.next()).await.is_err());
}

#[tokio::test]
async fn losses_are_told_with_key_and_fence_and_later_grants_of_the_key_are_not() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let mut taken = store.subscribe(Topic::Taken).await.unwrap();
    let held = request("order/42");
    let fence = granted(&*store, &held).await.fence;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let thief = stealing("order/42", 1);
    let stolen = granted(&*store, &thief).await.fence;
    let event = Event::Taken { key: held.key.clone(), fence, how: Loss::Stolen };
    assert_eq!(soon("the steal", taken.next()).await, Some(event));
    store.force_release(&held.key, None).await.unwrap();
    let event = Event::Taken { key: held.key.clone(), fence: stolen, how: Loss::ForceReleased };
    assert_eq!(soon("the force", taken.next()).await, Some(event.clone()));
    // The counter goes on to tell of it for a minute: the same lock, which is dead all the same.
    granted(&*store, &request("order/42")).await;
    if let Ok(again) = tokio::time::timeout(QUIET, taken.next()).await {
        assert_eq!(again, Some(event));
    }
}

#[tokio::test]
async fn a_counter_that_tells_of_an_old_loss_is_cleared_by_the_next_grant() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let path = "fence_counters/fence:order:42";
    let old = serde_json::json!({
        "fence": {"stringValue": "000000000000007"}, "keyDebug": {"stringValue": "order:42"},
        "takenFence": {"stringValue": "000000000000006"}, "takenHow": {"stringValue": "stolen"},
        "takenAtMs": {"integerValue": "1700000000000"}, "somebodyElses": {"stringValue": "stays"},
    });
    server.set_document(path, &old);
    granted(&*store, &request("order:42")).await;
    let fields = server.document(path).unwrap().fields;
    let names: Vec<_> = fields.as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["fence", "keyDebug", "somebodyElses"]);
}

#[tokio::test]
async fn a_stream_that_ends_for_any_reason_is_made_again_and_what_was_missed_is_told() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let held = request("order:42");
    let mut freed = store.subscribe(Topic::Freed(&held.key)).await.unwrap();
    for code in ["OK", "UNAVAILABLE", "INTERNAL", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "ABORTED"] {
        granted(&*store, &held).await;
        assert_eq!(server.close_streams(code), 1, "{code}");
        server.delete_document("locks/order:42");
        let first = soon("news", freed.next()).await.unwrap();
        assert!(matches!(first, Event::Missed | Event::Freed), "{code}: {first:?}");
        // Both are one look, and one of them may be told as the other.
        while tokio::time::timeout(QUIET, freed.next()).await.is_ok() {}
    }
}

#[tokio::test]
async fn a_hundred_waiters_share_one_stream_and_leave_no_target() {
    let server = Firestore::start();
    let handle = locks(&server.url()).await;
    let store = connect(&server.url()).await;
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..100 {
        let name = format!("order:{number}");
        granted(&*store, &request(&name)).await;
        let handle = handle.clone();
        waiting.spawn(async move { handle.lock(name.as_str()).wait_forever().acquire().await.unwrap() });
    }
    eventually("all of them wait", async || server.listened_documents().len() == 100).await;
    assert_eq!(server.streams(), 1);
    for number in 0..100 {
        store.force_release(&key(&format!("order:{number}")), None).await.unwrap();
    }
    for guard in soon("all locks", waiting.join_all()).await {
        guard.release().await.unwrap();
    }
    eventually("nobody waits", async || server.listened_documents().is_empty()).await;
}

#[tokio::test]
async fn a_flood_of_changes_neither_grows_nor_stops_a_listener() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let mut freed = store.subscribe(Topic::Freed(&key("order:42"))).await.unwrap();
    let lock = |number: u64| serde_json::json!({"lockId": {"stringValue": id().expose()}, "n": {"integerValue": number.to_string()}});
    for number in 0..500 {
        server.set_document("locks/order:42", &lock(number));
    }
    assert!(tokio::time::timeout(QUIET, freed.next()).await.is_err(), "none of them was a release");
    server.delete_document("locks/order:42");
    assert_eq!(soon("the release", freed.next()).await, Some(Event::Freed));
}
