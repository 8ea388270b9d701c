//! What the invoice will say: docs/firestore.md has the same figures.

use std::time::Duration;

use leasehold::ListRequest;
use leasehold::backend::{Backend, Topic};
use test_servers::{Firestore, FirestoreCounts};
use test_support::{connect, eventually, every_operation, granted, held, key, locks, request};

fn documents(counts: &FirestoreCounts) -> (u64, u64, u64) {
    (counts.reads, counts.writes, counts.deletes)
}

#[tokio::test]
async fn every_operation_reads_writes_and_deletes_as_many_documents_as_the_docs_say() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    server.take_counts();
    let mut found = Vec::new();
    every_operation(&*store, |operation| {
        let counts = server.take_counts();
        println!("{operation}: {counts:?}");
        found.push((operation.to_owned(), documents(&counts)));
    })
    .await;
    let expected = [
        ("acquire", (4, 2, 0)),
        ("a repeated acquire", (1, 0, 0)),
        ("a refused acquire", (1, 0, 0)),
        ("extend", (1, 1, 0)),
        ("is_locked", (1, 0, 0)),
        ("lookup by key", (1, 0, 0)),
        ("lookup by id", (1, 0, 0)),
        ("a list of one page", (1, 0, 0)),
        ("a steal", (4, 2, 0)),
        ("a forced release", (2, 1, 1)),
        ("acquire", (4, 2, 0)),
        ("release", (1, 0, 1)),
    ];
    let expected: Vec<_> = expected.map(|(name, counts)| (name.to_owned(), counts)).into();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_refused_acquire_reads_in_no_transaction_and_an_extend_is_two_requests() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let mine = request("order:42");
    granted(&*store, &mine).await;
    server.take_counts();
    held(&*store, &request("order:42")).await;
    let calls = server.take_counts().calls;
    assert_eq!((calls.get("BatchGetDocuments"), calls.get("RunQuery"), calls.get("Commit")), (Some(&1), None, None));
    store.extend(&mine.lock_id, mine.ttl).await.unwrap();
    let calls = server.take_counts().calls;
    // And perhaps the end of the transaction that the refused one did not need.
    let others = calls.iter().filter(|(name, _)| *name != "Rollback").map(|(_, times)| times).sum::<u64>();
    assert_eq!((calls.get("RunQuery"), calls.get("Commit"), others), (Some(&1), Some(&1), 2));
}

#[tokio::test]
async fn a_listing_reads_the_locks_of_its_prefix_and_no_others() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    for number in 0..20 {
        granted(&*store, &request(&format!("order:{number}"))).await;
        granted(&*store, &request(&format!("other:{number}"))).await;
    }
    server.take_counts();
    let page = store.list(&ListRequest::new("order:")).await.unwrap();
    assert_eq!(page.records.len(), 20);
    assert_eq!(documents(&server.take_counts()), (20, 0, 0));
    let page = store.list(&ListRequest::new("").with_page_size(5)).await.unwrap();
    assert_eq!((page.records.len(), page.next.is_some()), (5, true));
    assert_eq!(documents(&server.take_counts()), (6, 0, 0), "one of the next page");
}

/// Of a minute at the default ttl, a tenth: six seconds at a ttl of three.
#[tokio::test]
async fn a_waiter_reads_a_document_for_each_heartbeat_and_looks_once_for_each_ttl() {
    let ttl = Duration::from_secs(3);
    let server = Firestore::start();
    let (holder, waiter) = (locks(&server.url()).await, locks(&server.url()).await);
    let guard = holder.lock("order:42").ttl(ttl).acquire().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.lock("order:42").ttl(ttl).wait_forever().acquire().await });
    eventually("it waits", async || server.listened_documents() == ["locks/order:42"]).await;
    let first = guard.expires_at();
    eventually("a heartbeat", async || guard.expires_at() > first).await;
    server.take_counts();
    tokio::time::sleep(ttl * 2).await;
    let counts = server.take_counts();
    // The holder's heartbeats read and write a document each.
    let (heartbeats, waiters) = (counts.writes, counts.reads - counts.writes);
    println!("{heartbeats} heartbeats, {waiters} reads of one who waits, in two ttls: {counts:?}");
    assert!((4..=9).contains(&heartbeats), "{counts:?}");
    assert!(waiters <= heartbeats + 4, "{counts:?}");
    assert_eq!(counts.calls.get("BatchWrite").copied(), Some(heartbeats));
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn to_begin_to_listen_costs_a_read_and_to_go_on_after_a_lost_stream_costs_none_but_for_the_query() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    server.take_counts();
    let order = key("order:42");
    let mut freed = store.subscribe(Topic::Freed(&order)).await.unwrap();
    assert_eq!(documents(&server.take_counts()), (1, 0, 0));
    let _taken = store.subscribe(Topic::Taken).await.unwrap();
    assert_eq!(documents(&server.take_counts()), (1, 0, 0));
    for _ in 0..3 {
        assert_eq!(server.close_streams("UNAVAILABLE"), 1);
        freed.next().await.unwrap();
    }
    // A query costs a read each time it is made, whatever it finds. The locks are not sent again.
    assert_eq!(documents(&server.take_counts()), (3, 0, 0));
}
