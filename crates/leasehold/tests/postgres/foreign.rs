//! Rows that the other library wrote are locks like ours.

use leasehold::{Absence, Backend, Extend, ForceRelease, ListRequest, LookupBy, Postgres, Release};
use test_servers::Postgres as Server;

use crate::other::{self, TABLES};
use crate::support::{granted, held, id, key, migrated, request, row, stealing, ttl};

/// A server whose tables the other library made.
async fn shared() -> (Server, Postgres) {
    let server = Server::start();
    server.sql(TABLES);
    let store = migrated(&server).await;
    (server, store)
}

#[tokio::test]
async fn they_are_held_against_us_by_somebody_without_a_name() {
    let (server, store) = shared().await;
    let foreign = other::write(&server, "order:42", 5_000, 30_000);
    let contention = held(&store, &request("order:42")).await;
    assert_eq!(contention.holder, None);
    assert_eq!(contention.acquired_at.as_millis(), foreign.acquired_at);
    assert_eq!(contention.expires_at.as_millis(), foreign.expires_at);
    assert!(store.is_locked(&key("order:42")).await.unwrap());
}

#[tokio::test]
async fn they_are_found_by_key_by_id_and_in_a_listing() {
    let (server, store) = shared().await;
    let written: Vec<_> =
        (0..3).map(|number| other::write(&server, &format!("order:{number}"), 5_000, 30_000)).collect();
    other::write(&server, "unrelated", 5_000, 30_000);
    other::write(&server, "order:dead", 5_000, -1_001);
    let listed = store.list(&ListRequest::new("order:")).await.unwrap();
    assert_eq!(listed.records.len(), written.len());
    for foreign in &written {
        let record = store.lookup(LookupBy::Key(&key(&foreign.key))).await.unwrap().unwrap();
        assert_eq!(record.key.as_str(), foreign.key);
        assert_eq!((record.lock_id, record.fence.get()), (foreign.id, foreign.fence));
        assert_eq!(record.acquired_at.as_millis(), foreign.acquired_at);
        assert_eq!(record.expires_at.as_millis(), foreign.expires_at);
        assert_eq!((&record.holder, record.metadata.is_empty()), (&None, true));
        assert_eq!(store.lookup(LookupBy::Id(&foreign.id)).await.unwrap().unwrap(), record);
        assert!(listed.records.contains(&record));
    }
}

#[tokio::test]
async fn they_can_be_extended_and_released_by_their_id() {
    let (server, store) = shared().await;
    let foreign = other::write(&server, "order:42", 5_000, 30_000);
    let before = row(&server, "order:42");
    let Extend::Extended { expires_at } = store.extend(&foreign.id, ttl(90_000)).await.unwrap() else {
        panic!("not extended");
    };
    assert!(expires_at.as_millis() > foreign.expires_at);
    let expected = before.replace(&foreign.expires_at.to_string(), &expires_at.as_millis().to_string());
    assert_eq!(row(&server, "order:42"), expected);
    assert_eq!(store.release(&id()).await.unwrap(), Release::Absent(Absence::NotFound));
    assert_eq!(store.release(&foreign.id).await.unwrap(), Release::Released);
    assert_eq!(store.release(&foreign.id).await.unwrap(), Release::Absent(Absence::NotFound));
    assert_eq!(row(&server, "order:42"), "");
    granted(&store, &request("order:42")).await;
}

#[tokio::test]
async fn they_can_be_released_by_force() {
    let (server, store) = shared().await;
    let foreign = other::write(&server, "order:42", 5_000, 30_000);
    let ForceRelease::Released(record) = store.force_release(&key("order:42")).await.unwrap() else {
        panic!("not released");
    };
    assert_eq!((record.lock_id, record.fence.get()), (foreign.id, foreign.fence));
    assert_eq!(store.force_release(&key("order:42")).await.unwrap(), ForceRelease::Absent);
    assert_eq!(store.extend(&foreign.id, ttl(1)).await.unwrap(), Extend::Absent(Absence::NotFound));
}

#[tokio::test]
async fn they_can_be_stolen_by_age_and_only_by_age() {
    let (server, store) = shared().await;
    let foreign = other::write(&server, "order:42", 60_000, 30_000);
    held(&store, &request("order:42")).await;
    held(&store, &stealing("order:42", 600_000)).await;
    let thief = stealing("order:42", 59_000);
    assert!(granted(&store, &thief).await.fence.get() > foreign.fence);
    assert_eq!(store.release(&foreign.id).await.unwrap(), Release::Absent(Absence::NotFound));
    assert_eq!(store.release(&thief.lock_id).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn they_are_dead_a_second_after_their_expiry_and_not_before() {
    let (server, store) = shared().await;
    other::write(&server, "late", 60_000, -100);
    let dead = other::write(&server, "dead", 60_000, -1_001);
    let late = held(&store, &request("late")).await;
    assert!(late.expires_at < late.now, "{late:?}");
    assert!(!store.is_locked(&key("dead")).await.unwrap());
    assert_eq!(store.lookup(LookupBy::Id(&dead.id)).await.unwrap(), None);
    assert_eq!(store.extend(&dead.id, ttl(60_000)).await.unwrap(), Extend::Absent(Absence::Expired));
    assert_eq!(store.force_release(&key("dead")).await.unwrap(), ForceRelease::Absent);
    let grant = granted(&store, &request("dead")).await;
    assert!(grant.fence.get() > dead.fence);
    assert_eq!(store.release(&dead.id).await.unwrap(), Release::Absent(Absence::NotFound));
    assert!(store.is_locked(&key("dead")).await.unwrap());
}
