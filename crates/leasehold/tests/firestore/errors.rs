//! What the server says, in our words.

use leasehold::backend::Backend;
use leasehold::{ErrorCode, Locks};
use test_servers::{Firestore, FirestoreFault};
use test_support::{connect, everything_said, granted, key, locks, request};

#[tokio::test]
async fn every_status_of_a_read_is_its_error_and_leaves_no_doubt() {
    use ErrorCode::{AuthFailed, Internal, InvalidArgument, NetworkTimeout, RateLimited, ServiceUnavailable};
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    for (status, code) in [
        ("CANCELLED", ServiceUnavailable),
        ("UNKNOWN", ServiceUnavailable),
        ("INVALID_ARGUMENT", InvalidArgument),
        ("DEADLINE_EXCEEDED", NetworkTimeout),
        ("NOT_FOUND", InvalidArgument),
        ("ALREADY_EXISTS", ServiceUnavailable),
        ("PERMISSION_DENIED", AuthFailed),
        ("RESOURCE_EXHAUSTED", RateLimited),
        ("FAILED_PRECONDITION", ServiceUnavailable),
        ("OUT_OF_RANGE", InvalidArgument),
        ("UNIMPLEMENTED", InvalidArgument),
        ("INTERNAL", ServiceUnavailable),
        ("UNAVAILABLE", ServiceUnavailable),
        ("DATA_LOSS", Internal),
        ("UNAUTHENTICATED", AuthFailed),
    ] {
        server.inject(FirestoreFault::status(status).on("BatchGetDocuments"));
        let error = store.is_locked(&key("order:42")).await.unwrap_err();
        assert_eq!((error.code(), error.outcome_unknown()), (code, false), "{status}: {error:?}");
        assert!(!everything_said(&error).contains("order:42"), "{error:?}");
        server.clear_faults();
    }
}

#[tokio::test]
async fn a_database_that_is_not_there_is_told_with_the_command_that_creates_it() {
    let server = Firestore::start();
    let url = format!("firestore://{}/eu?emulator={}", server.project(), server.address());
    let error = Locks::connect(&url).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
    assert!(error.hint().unwrap().contains("gcloud firestore databases create"), "{error:?}");
    server.add_database("eu");
    let handle = locks(&url).await;
    handle.lock("order:42").acquire().await.unwrap().release().await.unwrap();
    // One that is removed while it is used, also at the commit.
    let store = connect(&url).await;
    server.remove_database("eu");
    let error = store.acquire(&request("order:42")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
}

#[tokio::test]
async fn a_missing_index_is_told_with_the_command_that_makes_it() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let held = request("order:42");
    granted(&*store, &held).await;
    for field in ["lockId", "ids"] {
        server.exempt_fields(&[&format!("locks.{field}")]);
        let error = store.release(&held.lock_id).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
        let hint = error.hint().unwrap();
        assert!(hint.contains("gcloud firestore indexes") && hint.contains(field), "{error:?}");
    }
}

#[tokio::test]
async fn a_limit_that_is_reached_is_waited_for() {
    let server = Firestore::start();
    let handle = locks(&server.url()).await;
    server.inject(FirestoreFault::status("RESOURCE_EXHAUSTED").on("BatchGetDocuments").times(3));
    handle.lock("order:42").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(server.fault_hits(), 3);
}
