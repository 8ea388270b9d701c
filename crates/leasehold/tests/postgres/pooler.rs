//! Behind a pooler that lends connections for a transaction, locks work and waiting polls.

use std::time::Duration;

use leasehold::backend::Backend;
use leasehold::postgres::Postgres;
use leasehold::{ErrorCode, Locks};
use test_servers::PgBouncer;
use test_support::postgres::{number, session, stuck};
use test_support::{Warnings, eventually, granted, request, soon};

use crate::support::server;

#[tokio::test]
async fn a_pooler_that_delivers_no_notifications_is_worth_one_warning_and_waiting_polls() {
    let server = server().await;
    let pooler = PgBouncer::start(&server, "transaction");
    let (warnings, _guard) = Warnings::collect();
    let store = Postgres::connect(&pooler.url()).await.unwrap();
    assert!(!store.capabilities().wake_ups);
    let holder = Postgres::connect(&server.url()).await.unwrap();
    assert!(holder.capabilities().wake_ups);
    let held = request("order:42");
    granted(&holder, &held).await;
    let locks = Locks::new(store);
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("order:42").wait_forever().acquire().await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    holder.release(&held.lock_id).await.unwrap();
    soon("the lock", waiting).await.unwrap().unwrap().release().await.unwrap();
    let warnings = warnings.said();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("pooler") && warnings[0].contains("polls"), "{warnings:?}");
}

#[tokio::test]
async fn who_wants_no_notifications_is_not_warned_and_makes_no_connection_for_them() {
    let server = server().await;
    let (warnings, _guard) = Warnings::collect();
    let store = Postgres::connect(&format!("{}?wake_ups=off", server.url())).await.unwrap();
    assert!(!store.capabilities().wake_ups);
    let _silent = store.subscribe(leasehold::backend::Topic::Freed(&request("order:42").key)).await.unwrap();
    assert!(number(&server, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'") <= 1);
    assert_eq!(warnings.said(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_behind_a_pooler_take_turns_and_keep_their_locks() {
    let server = server().await;
    let pooler = PgBouncer::start(&server, "transaction");
    let handles = [Locks::connect(&pooler.url()).await.unwrap(), Locks::connect(&pooler.url()).await.unwrap()];
    let mut last = None;
    for round in 0..4 {
        let guard = soon(
            "a turn",
            handles[round % 2].lock("order:42").ttl(Duration::from_millis(900)).wait_forever().acquire(),
        );
        let guard = guard.await.unwrap();
        let first = guard.expires_at();
        eventually("it is renewed", async || guard.expires_at() > first).await;
        assert!(Some(guard.fence()) > last);
        last = Some(guard.fence());
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_pooler_that_lends_connections_for_a_session_delivers_notifications() {
    let server = server().await;
    let pooler = PgBouncer::builder(&server, "session").pool_size(10).start();
    let store = Postgres::connect(&pooler.url()).await.unwrap();
    assert!(store.capabilities().wake_ups);
    let mine = request("order:42");
    let mut freed = store.subscribe(leasehold::backend::Topic::Freed(&mine.key)).await.unwrap();
    granted(&store, &mine).await;
    store.release(&mine.lock_id).await.unwrap();
    assert_eq!(soon("the notification", freed.next()).await, Some(leasehold::backend::Event::Freed));
}

#[tokio::test]
async fn what_was_given_up_behind_a_pooler_ends_by_itself_and_grants_nothing() {
    let server = server().await;
    let pooler = PgBouncer::start(&server, "transaction");
    let store = Postgres::connect(&format!("{}?wake_ups=off&timeout=0.5s", pooler.url())).await.unwrap();
    let blocker = session(&server).await;
    blocker.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(hashtext('order:42'))").await.unwrap();
    let given_up = request("order:42");
    assert_eq!(store.acquire(&given_up).await.unwrap_err().code(), ErrorCode::NetworkTimeout);
    // The blocker goes on for as long as it likes: nothing waits behind it for ever.
    eventually("the statement ends", async || stuck(&server) == 0).await;
    blocker.batch_execute("COMMIT").await.unwrap();
    assert_eq!(number(&server, "SELECT count(*) FROM syncguard_locks"), 0);
    granted(&store, &request("order:42")).await;
}

/// What a handle does behind a pooler that lends so many connections for a session.
async fn use_a_session_pool(size: u16, options: &str) {
    let server = server().await;
    let pooler = PgBouncer::builder(&server, "session").pool_size(size).start();
    let locks = Locks::connect(&format!("{}{options}", pooler.url())).await.unwrap();
    let guard = locks.lock("order:42").ttl(Duration::from_secs(3)).acquire().await.unwrap();
    let first = guard.expires_at();
    let waiting = tokio::spawn(locks.lock("order:42").wait_forever().acquire());
    eventually("it is renewed", async || guard.expires_at() > first).await;
    assert_eq!(locks.shutdown().await.unwrap(), 1);
    assert!(soon("the waiter", waiting).await.unwrap().is_err());
    assert_eq!(number(&server, "SELECT count(*) FROM syncguard_locks"), 0);
}

#[tokio::test]
async fn three_connections_of_a_pooler_that_lends_them_for_a_session_are_enough_for_a_handle() {
    use_a_session_pool(3, "").await;
}

#[tokio::test]
async fn two_of_them_are_enough_for_a_handle_that_does_not_listen() {
    use_a_session_pool(2, "?wake_ups=off").await;
}
