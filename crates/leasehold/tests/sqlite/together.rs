//! Many who use it at once.

use std::time::{Duration, Instant};

use leasehold::backend::{Acquire, AcquireRequest, Backend, Topic};
use leasehold::sqlite::Sqlite;
use leasehold::{ErrorCode, Key};
use test_support::{eventually, granted, request};

use crate::support::{directory, raw};

#[tokio::test]
async fn many_operations_that_meet_share_transactions() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    // Another connection keeps the write lock until everybody is in the queue.
    let blocker = raw(&path);
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let tasks: Vec<_> = (0..200)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { granted(&store, &request(&format!("key-{n}"))).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    blocker.execute_batch("COMMIT").unwrap();
    let log_before = std::fs::metadata(path.with_extension("db-wal")).unwrap().len();
    for task in tasks {
        task.await.unwrap();
    }
    let log = std::fs::metadata(path.with_extension("db-wal")).unwrap().len() - log_before;
    // A transaction of its own would log at least three pages of 4 KiB for each of them.
    assert!(log < 200 * 3 * 4096 / 2, "{log} bytes of log");
}

#[tokio::test]
async fn one_wrong_request_does_not_spoil_the_transaction_of_the_others() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let taken = request("taken");
    granted(&store, &taken).await;
    let blocker = raw(&path);
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let good: Vec<_> = (0..10).map(|n| request(&format!("good-{n}"))).collect();
    let wrong = request("wrong").with_lock_id(taken.lock_id);
    let (first, second) = good.split_at(5);
    let spawn = |request: &AcquireRequest| {
        let (store, request) = (store.clone(), request.clone());
        tokio::spawn(async move { store.acquire(&request).await })
    };
    let tasks: Vec<_> = first.iter().map(spawn).collect();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let wrong = spawn(&wrong);
    let more: Vec<_> = second.iter().map(spawn).collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    blocker.execute_batch("COMMIT").unwrap();
    for task in tasks.into_iter().chain(more) {
        assert!(matches!(task.await.unwrap().unwrap(), Acquire::Granted(_)));
    }
    assert_eq!(wrong.await.unwrap().unwrap_err().code(), ErrorCode::InvalidArgument);
}

#[tokio::test]
async fn a_database_that_others_keep_busy_is_unavailable_after_a_while_and_works_again_afterwards() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let blocker = raw(&path);
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let request = request("k");
    let error = store.acquire(&request).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
    assert!(error.is_retryable() && error.to_string().contains("busy"), "{error:?}");
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(error.operation(), Some(leasehold::Operation::Acquire));
    blocker.execute_batch("COMMIT").unwrap();
    granted(&store, &request).await;
}

#[tokio::test]
async fn many_processes_may_make_the_file_at_once() {
    let (_directory, path) = directory();
    let opening: Vec<_> = (0..20)
        .map(|_| {
            let path = path.clone();
            tokio::spawn(async move { Sqlite::open(path).await })
        })
        .collect();
    let mut last = None;
    for store in opening {
        let store = store.await.unwrap().unwrap();
        let request = request("k");
        let fence = granted(&store, &request).await.fence;
        assert!(Some(fence) > last);
        last = Some(fence);
        store.release(&request.lock_id).await.unwrap();
    }
}

#[tokio::test]
async fn listeners_who_are_gone_are_struck_off() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let listeners = || raw(&path).query_row("SELECT count(*) FROM listeners", [], |row| row.get::<_, i64>(0)).unwrap();
    let key = Key::new("k").unwrap();
    let subscription = store.subscribe(Topic::Freed(&key)).await.unwrap();
    assert_eq!(listeners(), 1);
    drop(subscription);
    eventually("nobody listens", async || listeners() == 0).await;

    raw(&path).execute("INSERT INTO listeners VALUES ('freed:k', 'a-crashed-process')", []).unwrap();
    let request = request("k");
    granted(&store, &request).await;
    store.release(&request.lock_id).await.unwrap();
    eventually("nobody listens", async || listeners() == 0).await;
}

#[tokio::test]
async fn many_listeners_who_are_gone_hold_nobody_up() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let crashed = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
                   INSERT INTO listeners SELECT 'taken', 'crashed-' || i FROM n";
    raw(&path).execute(crashed, []).unwrap();
    let request = request("k");
    granted(&store, &request).await;
    let started = Instant::now();
    // Tells all of them, and finds that nobody is there.
    store.force_release(&request.key, None).await.unwrap();
    let left: i64 = raw(&path).query_row("SELECT count(*) FROM listeners", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
    // One by one, each a transaction and a scan, it took seconds.
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_busy_database_fails_all_who_wait_together_and_not_one_after_the_other() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let blocker = raw(&path);
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.acquire(&request(&format!("key-{n}"))).await.map(drop) })
        })
        .collect();
    let started = Instant::now();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap_err().code(), ErrorCode::ServiceUnavailable);
    }
    // The first may be alone in its transaction, the others are not.
    assert!(started.elapsed() < Duration::from_secs(25), "{:?}", started.elapsed());
}
