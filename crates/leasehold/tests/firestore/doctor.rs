//! What `leasehold doctor` finds.

use leasehold::{ErrorCode, Locks, Verdict};
use test_servers::{Firestore, FirestoreFault, FirestoreRole};
use test_support::{check, complaints, connect, granted, request};

#[tokio::test]
async fn a_good_database_is_told_with_its_clock_its_index_and_its_counters() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    for number in 0..3 {
        granted(&*store, &request(&format!("order:{number}"))).await;
    }
    let before = server.documents().len();
    let checks = Locks::examine(&server.url()).await.unwrap();
    assert_eq!(complaints(&checks), [], "{checks:?}");
    for name in ["database", "permissions", "index", "clock", "listening", "round trip"] {
        assert_eq!(check(&checks, name).verdict, Verdict::Ok, "{name}");
    }
    assert!(check(&checks, "clock").detail.contains("0 ms"), "{checks:?}");
    assert!(check(&checks, "counters").detail.starts_with('4'), "and that of the examination: {checks:?}");
    assert_eq!(server.documents().len(), before, "nothing is left");
}

#[tokio::test]
async fn a_clock_that_is_off_is_told_with_the_figure() {
    let server = Firestore::start();
    server.set_clock_offset(800);
    let checks = Locks::examine(&server.url()).await.unwrap();
    let clock = check(&checks, "clock");
    assert_eq!(clock.verdict, Verdict::Warn, "{clock:?}");
    assert!(clock.detail.contains(" ms behind the server") && clock.hint.is_some(), "{clock:?}");
    server.set_clock_offset(5_000);
    let checks = Locks::examine(&server.url()).await.unwrap();
    assert_eq!(check(&checks, "clock").verdict, Verdict::Fail, "{checks:?}");
    assert!(check(&checks, "operations").detail.contains("clock"), "{checks:?}");
}

#[tokio::test]
async fn a_missing_role_is_named_with_the_command_that_grants_it() {
    let server = Firestore::builder().tls().credentials().start();
    let checks = Locks::examine(&server.url_for(FirestoreRole::Reader)).await.unwrap();
    let permissions = check(&checks, "permissions");
    assert_eq!((permissions.verdict, permissions.error), (Verdict::Fail, Some(ErrorCode::AuthFailed)), "{checks:?}");
    assert!(permissions.detail.contains("not write") && permissions.detail.contains("roles/datastore.user"));
    let hint = permissions.hint.as_deref().unwrap();
    assert!(hint.contains("add-iam-policy-binding") && hint.contains(server.project()), "{hint}");
}

#[tokio::test]
async fn a_missing_index_and_a_deaf_stream_are_told() {
    let server = Firestore::start();
    server.exempt_fields(&["locks.lockId"]);
    server.inject(FirestoreFault::status("UNAVAILABLE").on("Listen"));
    let checks = Locks::examine(&server.url()).await.unwrap();
    let index = check(&checks, "index");
    assert_eq!(index.verdict, Verdict::Fail, "{checks:?}");
    assert!(index.hint.as_deref().unwrap().contains("gcloud firestore indexes"), "{index:?}");
    assert_eq!(check(&checks, "listening").verdict, Verdict::Warn, "{checks:?}");
}
