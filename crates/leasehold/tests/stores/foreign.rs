//! Locks that the other library wrote are locks like ours, in whichever way it wrote them.

use leasehold::ListRequest;
use leasehold::backend::{Absence, Backend, Extend, LookupBy, Release};
use test_support::{Case, cases, connect, granted, held, id, key, request, stealing, ttl};

use crate::Store;

pub(crate) const CASES: &[Case] = cases![
    they_are_held_against_us_by_somebody_without_a_name,
    they_are_found_by_key_by_id_and_in_a_listing,
    they_can_be_extended_and_released_by_their_id,
    they_can_be_ended_by_force,
    they_can_be_stolen_by_age_and_only_by_age,
    they_are_dead_a_second_after_their_expiry_and_not_before,
];

async fn they_are_held_against_us_by_somebody_without_a_name(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    for style in 0..server.foreign_styles() {
        let foreign = server.write_foreign(&format!("order:{style}"), 5_000, 30_000, style);
        let contention = held(&*store, &request(&foreign.key)).await;
        assert_eq!(contention.holder, None);
        assert_eq!(contention.acquired_at.as_millis(), foreign.acquired_at);
        assert_eq!(contention.expires_at.as_millis(), foreign.expires_at);
        assert!(store.is_locked(&key(&foreign.key)).await.unwrap());
    }
}

async fn they_are_found_by_key_by_id_and_in_a_listing(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    let write = |number: usize| {
        server.write_foreign(&format!("order:{number}"), 5_000, 30_000, number % server.foreign_styles())
    };
    let written: Vec<_> = (0..5).map(write).collect();
    server.write_foreign("unrelated", 5_000, 30_000, 0);
    server.write_foreign("order:dead", 5_000, -1_001, 0);
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

async fn they_can_be_extended_and_released_by_their_id(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    for style in 0..server.foreign_styles() {
        let foreign = server.write_foreign("order:42", 5_000, 30_000, style);
        let before = server.snapshot();
        let Extend::Extended { expires_at } = store.extend(&foreign.id, ttl(90_000)).await.unwrap() else {
            panic!("not extended");
        };
        assert!(expires_at.as_millis() > foreign.expires_at);
        let record = store.lookup(LookupBy::Id(&foreign.id)).await.unwrap().unwrap();
        assert_eq!((record.lock_id, record.expires_at), (foreign.id, expires_at));
        assert_eq!((record.fence.get(), record.acquired_at.as_millis()), (foreign.fence, foreign.acquired_at));
        assert_eq!(server.snapshot().len(), before.len(), "an extend makes nothing");
        assert_eq!(store.release(&id()).await.unwrap(), Release::Absent(Absence::NotFound));
        assert_eq!(store.release(&foreign.id).await.unwrap(), Release::Released);
        assert_eq!(store.release(&foreign.id).await.unwrap(), Release::Absent(Absence::NotFound));
        assert_eq!(store.extend(&foreign.id, ttl(1000)).await.unwrap(), Extend::Absent(Absence::NotFound));
        assert_eq!(server.snapshot().len(), 1, "only the last fence is left");
    }
    granted(&*store, &request("order:42")).await;
}

async fn they_can_be_ended_by_force(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    for style in 0..server.foreign_styles() {
        let foreign = server.write_foreign("order:42", 5_000, 30_000, style);
        let Some(record) = store.force_release(&key("order:42"), None).await.unwrap().pop() else {
            panic!("not released");
        };
        assert_eq!((record.lock_id, record.fence.get()), (foreign.id, foreign.fence));
        assert_eq!(store.force_release(&key("order:42"), None).await.unwrap(), []);
        assert_eq!(store.extend(&foreign.id, ttl(1)).await.unwrap(), Extend::Absent(Absence::NotFound));
        assert_eq!(server.snapshot().len(), 1, "only the last fence is left");
    }
}

async fn they_can_be_stolen_by_age_and_only_by_age(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    for style in 0..server.foreign_styles() {
        let foreign = server.write_foreign("order:42", 60_000, 30_000, style);
        held(&*store, &request("order:42")).await;
        held(&*store, &stealing("order:42", 600_000)).await;
        let thief = stealing("order:42", 59_000);
        assert!(granted(&*store, &thief).await.fence.get() > foreign.fence);
        assert_eq!(store.release(&foreign.id).await.unwrap(), Release::Absent(Absence::NotFound));
        assert_eq!(store.release(&thief.lock_id).await.unwrap(), Release::Released);
    }
}

async fn they_are_dead_a_second_after_their_expiry_and_not_before(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    for style in 0..server.foreign_styles() {
        server.write_foreign("late", 60_000, -100, style);
        let late = held(&*store, &request("late")).await;
        assert!(late.expires_at < late.now, "{late:?}");
        let dead = server.write_foreign("dead", 60_000, -1_001, style);
        assert!(!store.is_locked(&key("dead")).await.unwrap());
        assert_eq!(store.lookup(LookupBy::Id(&dead.id)).await.unwrap(), None);
        assert_eq!(store.extend(&dead.id, ttl(60_000)).await.unwrap(), Extend::Absent(Absence::Expired));
        assert_eq!(store.release(&dead.id).await.unwrap(), Release::Absent(Absence::Expired));
        assert_eq!(store.force_release(&key("dead"), None).await.unwrap(), []);
        let dead = server.write_foreign("dead", 60_000, -1_001, style);
        let mine = request("dead");
        assert!(granted(&*store, &mine).await.fence.get() > dead.fence);
        assert_eq!(store.release(&dead.id).await.unwrap(), Release::Absent(Absence::NotFound));
        assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released);
    }
}
