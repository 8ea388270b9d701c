//! Others in the way, and commits whose outcome nobody knows.

use std::sync::Arc;
use std::time::Duration;

use leasehold::ErrorCode;
use leasehold::backend::{Acquire, Backend, Extend, Release};
use test_servers::{Firestore, FirestoreFault};
use test_support::{connect, eventually, granted, id, key, locks, request, ttl};

const COMMIT: &str = "Commit";

#[tokio::test]
async fn a_transaction_that_was_in_the_way_of_another_is_tried_again() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let held = request("order:42");
    for step in ["acquire", "extend", "release", "force"] {
        server.inject(FirestoreFault::status("ABORTED").on(COMMIT).times(3));
        match step {
            "acquire" => assert!(matches!(store.acquire(&held).await, Ok(Acquire::Granted(_)))),
            "extend" => assert!(matches!(store.extend(&held.lock_id, ttl(9000)).await, Ok(Extend::Extended { .. }))),
            "release" => assert_eq!(store.release(&held.lock_id).await.unwrap(), Release::Released),
            _ => {
                granted(&*store, &held).await;
                store.force_release(&held.key, None).await.unwrap();
            }
        }
        assert_eq!(server.fault_hits(), 3, "{step}");
        server.clear_faults();
    }
}

#[tokio::test]
async fn conflicts_without_end_are_given_up_in_time_and_say_that_nothing_was_done() {
    let server = Firestore::start();
    let store = connect(&format!("{}&timeout=1s", server.url())).await;
    server.inject(FirestoreFault::status("ABORTED").on(COMMIT));
    // The end of the time may come in the middle of a commit, of which nobody can say anything.
    let certain = async || store.acquire(&request("order:42")).await.unwrap_err();
    let mut error = certain().await;
    while error.outcome_unknown() {
        error = certain().await;
    }
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error:?}");
    assert!(error.is_retryable() && !error.outcome_unknown() && error.hint().is_some(), "{error:?}");
    let tries = server.calls(COMMIT);
    assert!((2..400).contains(&tries), "{tries} tries: a pause that grows lies between them");
}

#[tokio::test]
async fn a_commit_of_unknown_outcome_says_so_and_the_repeated_request_finds_its_own_grant() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    for (number, code) in ["UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN", "CANCELLED"].iter().enumerate() {
        let held = request(&format!("order:{number}"));
        server.inject(FirestoreFault::status(code).on(COMMIT).after().times(1));
        let error = store.acquire(&held).await.unwrap_err();
        assert!(error.outcome_unknown() && error.is_retryable(), "{code}: {error:?}");
        let document = server.document(&format!("locks/order:{number}")).unwrap();
        let grant = granted(&*store, &held).await;
        assert_eq!(document.fields["fence"]["stringValue"], grant.fence.to_string(), "{code}");
        // The same before the commit: nothing is there, and the error cannot know.
        let held = request(&format!("other:{number}"));
        server.inject(FirestoreFault::status(code).on(COMMIT).times(1));
        assert!(store.acquire(&held).await.unwrap_err().outcome_unknown(), "{code}");
        assert!(server.document(&format!("locks/other:{number}")).is_none());
        granted(&*store, &held).await;
    }
}

#[tokio::test]
async fn an_error_before_the_commit_leaves_no_doubt() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    for method in ["BatchGetDocuments", "BeginTransaction", "RunQuery"] {
        server.inject(FirestoreFault::status("UNAVAILABLE").on(method).times(1));
        let error = store.acquire(&request("order:42")).await.unwrap_err();
        assert!(error.is_retryable() && !error.outcome_unknown(), "{method}: {error:?}");
        server.clear_faults();
        assert!(!store.is_locked(&key("order:42")).await.unwrap());
    }
}

#[tokio::test]
async fn a_guard_survives_commits_of_unknown_outcome_and_leaves_nothing() {
    let server = Firestore::start();
    let locks = locks(&server.url()).await;
    server.inject(FirestoreFault::status("UNAVAILABLE").on(COMMIT).after().at_random(0.5, 7));
    for round in 0..10 {
        let key = format!("order:{round}");
        let guard = locks.lock(key.as_str()).ttl(Duration::from_secs(9)).acquire().await.unwrap();
        while guard.extend(Duration::from_secs(9)).await.is_err() {}
        // A release whose answer was lost finds nothing left to release.
        let _ = guard.release().await;
    }
    assert_ne!(server.fault_hits(), 0);
    server.clear_faults();
    locks.shutdown().await.unwrap();
    eventually("no lock is left", async || !server.documents().keys().any(|path| path.starts_with("locks/"))).await;
}

#[tokio::test]
async fn a_cancelled_acquire_leaves_neither_a_lock_nor_an_open_transaction() {
    for method in ["BatchGetDocuments", "RunQuery", COMMIT] {
        for fault in [FirestoreFault::delay(Duration::from_millis(300)), FirestoreFault::silence().after()] {
            // Its own, so that what is still sent for another does not get its fault.
            let server = Firestore::start();
            let locks = locks(&server.url()).await;
            server.inject(fault.on(method).times(1));
            let given_up = locks.lock("order:42").acquire();
            assert!(tokio::time::timeout(Duration::from_millis(100), given_up).await.is_err(), "{method}");
            eventually("nothing is left", async || {
                server.document("locks/order:42").is_none() && server.transactions() == 0
            })
            .await;
        }
    }
}

/// A lock whose holder is gone.
fn dead() -> serde_json::Value {
    serde_json::json!({
        "lockId": {"stringValue": id().expose()}, "key": {"stringValue": "order:42"},
        "fence": {"stringValue": "000000000000007"},
        "acquiredAtMs": {"integerValue": "1700000000000"}, "expiresAtMs": {"integerValue": "1700000001000"},
    })
}

/// Also where transactions are none, and only the preconditions of the writes are left.
#[tokio::test]
async fn of_many_at_once_one_gets_the_lock_by_either_mechanism() {
    for mode in ["pessimistic", "optimistic", "preconditions alone"] {
        let server = Firestore::start();
        match mode {
            "pessimistic" => server.set_optimistic(false),
            "optimistic" => server.set_optimistic(true),
            _ => server.ignore_transactions(),
        }
        let store = connect(&server.url()).await;
        for round in 0..6 {
            if round % 2 == 1 {
                server.set_document("locks/order:42", &dead());
            }
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..16 {
                let store: Arc<dyn Backend> = store.clone();
                tasks.spawn(async move { store.acquire(&request("order:42")).await.unwrap() });
            }
            let answers = tasks.join_all().await;
            let granted: Vec<_> = answers.iter().filter(|answer| matches!(answer, Acquire::Granted(_))).collect();
            assert_eq!(granted.len(), 1, "round {round}, {mode}: {granted:?}");
            store.force_release(&key("order:42"), None).await.unwrap();
        }
    }
}

#[tokio::test]
async fn one_id_gets_no_two_keys_however_close_the_requests_are() {
    for optimistic in [false, true] {
        let server = Firestore::start();
        server.set_optimistic(optimistic);
        let store = connect(&server.url()).await;
        for round in 0..10 {
            let first = request("a");
            let second = first.clone().with_key(key("b"));
            let (one, other) = tokio::join!(store.acquire(&first), store.acquire(&second));
            let granted = [&one, &other].iter().filter(|answer| matches!(answer, Ok(Acquire::Granted(_)))).count();
            let refused = [&one, &other].into_iter().filter_map(|answer| answer.as_ref().err());
            let codes: Vec<_> = refused.map(leasehold::Error::code).collect();
            assert_eq!((granted, codes), (1, vec![ErrorCode::InvalidArgument]), "round {round}: {one:?} {other:?}");
            store.release(&first.lock_id).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_lock_that_changes_hands_before_an_extend_or_a_release_is_written_is_left_alone() {
    let server = Firestore::start();
    let (store, others) = (connect(&server.url()).await, connect(&server.url()).await);
    for step in ["extend", "release"] {
        let (mine, theirs) = (request("order:42"), request("order:42"));
        granted(&*store, &mine).await;
        server.inject(FirestoreFault::delay(Duration::from_millis(500)).after().on("RunQuery").times(1));
        let late = async {
            match step {
                "extend" => matches!(store.extend(&mine.lock_id, ttl(60_000)).await.unwrap(), Extend::Absent(_)),
                _ => matches!(store.release(&mine.lock_id).await.unwrap(), Release::Absent(_)),
            }
        };
        let in_between = async {
            eventually("the lock has been read", async || server.fault_hits() == 1).await;
            others.force_release(&mine.key, None).await.unwrap();
            granted(&*others, &theirs).await;
            server.document("locks/order:42").unwrap().fields
        };
        let (absent, document) = tokio::join!(late, in_between);
        assert!(absent, "{step}");
        assert_eq!(server.document("locks/order:42").unwrap().fields, document, "{step}");
        server.clear_faults();
        assert_eq!(others.release(&theirs.lock_id).await.unwrap(), Release::Released);
    }
}
