//! What the invoice will say: docs/firestore.md has the same figures.

use std::time::Duration;

use leasehold::ListRequest;
use leasehold::backend::{AcquireAll, Backend, Line, Mode, Topic};
use test_servers::{Firestore, FirestoreCounts};
use test_support::{connect, eventually, every_operation, granted, held, key, locks, request, soon, ttl};

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

/// Documents read, written and deleted by what is done since the last call.
fn spent(server: &Firestore) -> (u64, u64, u64) {
    documents(&server.take_counts())
}

#[tokio::test]
async fn readers_permits_and_those_in_line_cost_what_the_docs_say() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let permit = || request("order:42").with_mode(Mode::Permit { of: 2.try_into().unwrap() });
    let join = Line::Join { lease: ttl(60_000) };
    server.take_counts();
    for mode in [Mode::Exclusive, Mode::Shared, permit().mode] {
        for line in [Line::Ignore, Line::Heed, join] {
            let mine = request("order:42").with_mode(mode).with_line(line);
            granted(&*store, &mine).await;
            assert_eq!(spent(&server), (4, 2, 0), "a grant: {mode}, {line:?}");
            store.extend(&mine.lock_id, mine.ttl).await.unwrap();
            assert_eq!(spent(&server), (1, 1, 0), "an extend: {mode}");
            store.release(&mine.lock_id).await.unwrap();
            assert_eq!(spent(&server), (1, 0, 1), "a release: {mode}");
        }
    }
    let (one, other, waiter, next) = (permit(), permit(), permit().with_line(join), permit().with_line(join));
    granted(&*store, &one).await;
    granted(&*store, &other).await;
    server.take_counts();
    held(&*store, &waiter).await;
    assert_eq!(spent(&server), (2, 1, 0), "a new place");
    held(&*store, &waiter).await;
    assert_eq!(spent(&server), (1, 1, 0), "a place that is kept");
    held(&*store, &next).await;
    server.take_counts();
    held(&*store, &permit().with_line(Line::Heed)).await;
    assert_eq!(spent(&server), (1, 0, 0), "a refusal");
    store.release(&one.lock_id).await.unwrap();
    assert_eq!(spent(&server), (1, 1, 0), "a release that calls the first in line");
    granted(&*store, &waiter).await;
    assert_eq!(spent(&server), (4, 2, 0), "the grant of the one that was called");
    store.release(&next.lock_id).await.unwrap();
    assert_eq!(spent(&server), (1, 1, 0), "a place that is given up");
    store.inspect(&waiter.key).await.unwrap();
    assert_eq!(spent(&server), (1, 0, 0), "show");
    store.force_release(&waiter.key, None).await.unwrap();
    assert_eq!(spent(&server), (2, 1, 1), "a forced release of both");
    granted(&*store, &one).await;
    held(&*store, &request("order:42").with_line(join)).await;
    server.take_counts();
    store.force_release(&waiter.key, None).await.unwrap();
    assert_eq!(spent(&server), (2, 2, 0), "a forced release that calls the first in line");
    let several = [request("a"), request("b"), request("c")];
    assert!(matches!(store.acquire_all(&several).await.unwrap(), AcquireAll::Granted(_)));
    assert_eq!(spent(&server), (10, 6, 0), "three at once: one look and two reads each, and one question");
    assert!(matches!(store.acquire_all(&several).await.unwrap(), AcquireAll::Granted(_)));
    assert_eq!(spent(&server), (3, 0, 0), "three that are held already");
}

#[tokio::test]
async fn requests_of_a_hand_over_are_the_same_however_many_wait() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    for count in [2, 20] {
        let held_by = request("order:42");
        granted(&*store, &held_by).await;
        let waiting: Vec<_> =
            (0..count).map(|_| request("order:42").with_line(Line::Join { lease: ttl(60_000) })).collect();
        for waiter in &waiting {
            held(&*store, waiter).await;
        }
        server.take_counts();
        store.release(&held_by.lock_id).await.unwrap();
        granted(&*store, &waiting[0]).await;
        let counts = server.take_counts();
        assert_eq!(documents(&counts), (5, 3, 0), "{count} in line: {counts:?}");
        // A look begins a transaction; the rest is a read and a commit for either of them.
        assert_eq!(counts.calls.values().sum::<u64>(), 7, "{count} in line: {counts:?}");
        for waiter in &waiting {
            store.release(&waiter.lock_id).await.unwrap();
        }
    }
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

/// What those who wait cost together, while somebody holds the lock.
struct Waited {
    /// How often the document changed: heartbeats, and places that were kept.
    changes: u64,
    /// How often they asked.
    asked: u64,
    /// All that was read, apart from the holder's heartbeats.
    reads: u64,
}

/// Of a minute at the default ttl, a tenth: six seconds at a ttl of three.
async fn wait(waiters: usize, stand_in_line: bool) -> Waited {
    let ttl = Duration::from_secs(3);
    let server = Firestore::start();
    let holder = locks(&server.url()).await;
    let guard = holder.lock("order:42").ttl(ttl).acquire().await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..waiters {
        let waiter = locks(&server.url()).await;
        waiting.spawn(async move {
            let request = waiter.lock("order:42").ttl(ttl).wait_forever();
            let request = if stand_in_line { request.fair() } else { request };
            request.acquire().await.unwrap().release().await.unwrap();
        });
    }
    // The holder listens as well.
    eventually("they wait", async || server.streams() == u64::try_from(waiters).unwrap() + 1).await;
    let first = guard.expires_at();
    eventually("a heartbeat", async || guard.expires_at() > first).await;
    server.take_counts();
    tokio::time::sleep(ttl * 2).await;
    let counts = server.take_counts();
    println!("{waiters} wait, in line: {stand_in_line}: {counts:?}");
    let heartbeats = counts.calls["BatchWrite"];
    assert!((4..=9).contains(&heartbeats), "{counts:?}");
    assert!(stand_in_line || counts.writes == heartbeats, "{counts:?}");
    guard.release().await.unwrap();
    soon("all of them", waiting.join_all()).await;
    // A heartbeat is a question for the lock, which is a read.
    let (asked, own) = (counts.calls["BatchGetDocuments"], counts.calls["RunQuery"]);
    Waited { changes: counts.writes, asked, reads: counts.reads - own }
}

#[tokio::test]
async fn one_who_waits_outside_of_the_line_reads_a_document_for_each_heartbeat_and_looks_now_and_then() {
    let Waited { changes, asked, reads } = wait(1, false).await;
    assert!(asked <= 4, "{asked}");
    assert!(reads <= changes + asked + 1, "{reads} reads, {changes} heartbeats, asked {asked} times");
}

/// Whoever asks again changes the document, and all others are sent it.
#[tokio::test]
async fn those_in_line_ask_three_times_a_lease_and_read_a_document_for_whatever_another_of_them_asks() {
    for waiters in [1, 4] {
        let Waited { changes, asked, reads } = wait(waiters, true).await;
        let count = u64::try_from(waiters).unwrap();
        // Some more than once, because another was in the way.
        assert!(asked >= count && asked <= count * 6, "{waiters} asked {asked} times in six seconds");
        assert!(reads <= asked + count * (changes + 1), "{reads} reads, {changes} changes, asked {asked} times");
    }
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
