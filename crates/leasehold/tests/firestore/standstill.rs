//! Transactions that stand still, as those of processes that were stopped.

use std::time::Duration;

use leasehold::backend::{Acquire, Backend, Extend};
use leasehold::{ErrorCode, LockState};
use test_servers::{Firestore, FirestoreFault};
use test_support::{StoreServer, connect, eventually, granted, held, id, locks, request, soon, ttl};

#[tokio::test]
async fn those_who_are_refused_never_hold_up_the_holder() {
    let server = Firestore::start();
    let (holder, others) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = request("order:42");
    granted(&*holder, &held).await;
    // Nobody who asks for the lock gets further than its first read, as if all of them were stopped.
    server.inject(FirestoreFault::silence().after().on("BatchGetDocuments").about("order:42"));
    let mut stopped = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let others = others.clone();
        stopped.spawn(async move { others.acquire(&request("order:42")).await });
    }
    eventually("all of them have read", async || server.fault_hits() >= 20).await;
    assert!(matches!(holder.extend(&held.lock_id, ttl(60_000)).await.unwrap(), Extend::Extended { .. }));
    assert!(server.calls("Commit") >= 2);
}

#[tokio::test]
async fn a_holder_that_another_librarys_transaction_holds_up_for_a_while_keeps_its_lock() {
    let server = Firestore::start();
    server.set_lock_wait(Duration::from_millis(200));
    let store = locks(&server.url()).await;
    let guard = store.lock("order:42").ttl(Duration::from_secs(3)).acquire().await.unwrap();
    // One that reads the lock in a transaction and is stopped, for longer than a heartbeat waits.
    server.set_transaction_lifetime(Duration::from_millis(1500), Duration::from_secs(60));
    eventually("nobody else is in a transaction", async || server.transactions() == 0).await;
    let mut other = server.other_library().await;
    server.inject(FirestoreFault::silence().after().on("BatchGetDocuments").times(1));
    let theirs = id();
    let stopped = other.acquire("order:42", &theirs, 30_000);
    let held = async {
        eventually("it has read", async || server.fault_hits() == 1).await;
        assert_eq!(server.transactions(), 1);
        let (first, commits) = (guard.expires_at(), server.calls("Commit") + server.calls("BatchWrite"));
        eventually("it is extended", async || guard.expires_at() > first).await;
        assert!(server.calls("Commit") + server.calls("BatchWrite") > commits + 1, "not at the first try");
        assert_eq!(guard.state(), LockState::Held);
    };
    tokio::select! {
        _ = stopped => panic!("it was to stand still"),
        () = held => {}
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_transaction_that_the_server_gave_up_is_an_error_that_passes() {
    let server = Firestore::start();
    server.set_transaction_lifetime(Duration::from_millis(50), Duration::from_millis(50));
    server.inject(FirestoreFault::delay(Duration::from_millis(200)).on("Commit").times(1));
    let store = connect(&server.url()).await;
    let held = request("order:42");
    match store.acquire(&held).await {
        // A server may say that it was aborted, and then it was tried again.
        Ok(answer) => assert!(matches!(answer, Acquire::Granted(_))),
        Err(error) => assert_eq!((error.code(), error.is_retryable()), (ErrorCode::ServiceUnavailable, true)),
    }
    server.set_transaction_lifetime(Duration::from_secs(60), Duration::from_secs(270));
    granted(&*store, &held).await;
}

#[tokio::test]
async fn a_refusal_does_not_wait_for_the_transaction_that_it_does_not_need() {
    let server = Firestore::start();
    let store = connect(&format!("{}&timeout=60s", server.url())).await;
    granted(&*store, &request("order:42")).await;
    server.inject(FirestoreFault::silence().on("BeginTransaction"));
    soon("the refusal", held(&*store, &request("order:42"))).await;
}

#[tokio::test]
async fn an_acquire_that_fails_has_ended_its_transaction() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    for (method, code) in [("RunQuery", "RESOURCE_EXHAUSTED"), ("Commit", "PERMISSION_DENIED")] {
        eventually("nobody is in a transaction", async || server.transactions() == 0).await;
        server.inject(FirestoreFault::status(code).on(method));
        server.inject(FirestoreFault::delay(Duration::from_millis(200)).on("Rollback"));
        store.acquire(&request("order:42")).await.unwrap_err();
        assert_eq!(server.transactions(), 0, "{method}");
        server.clear_faults();
    }
}

#[test]
fn an_acquire_that_is_dropped_outside_of_its_runtime_leaves_no_transaction() {
    let server = Firestore::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(connect(&server.url()));
    server.inject(FirestoreFault::silence().on("Commit"));
    let request = request("order:42");
    let mut acquire = store.acquire(&request);
    runtime.block_on(async {
        tokio::select! {
            answer = &mut acquire => panic!("{answer:?}"),
            () = eventually("it commits", async || server.fault_hits() == 1) => {}
        }
    });
    drop(acquire);
    runtime.block_on(eventually("nothing is left", async || server.transactions() == 0));
}

#[tokio::test]
async fn a_rollback_is_over_with_any_answer_and_is_not_sent_without_a_reason() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    granted(&*store, &request("order:42")).await;
    server.take_counts();
    for _ in 0..5 {
        held(&*store, &request("order:42")).await;
    }
    // The emulator says so of a transaction that is over.
    server.inject(FirestoreFault::status("UNKNOWN").on("Rollback"));
    server.inject(FirestoreFault::status("PERMISSION_DENIED").on("Commit"));
    for number in 0..5 {
        store.acquire(&request(&format!("other:{number}"))).await.unwrap_err();
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(server.calls("Rollback"), 5);
}
