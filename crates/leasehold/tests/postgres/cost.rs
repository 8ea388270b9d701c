//! Every operation is one statement and one round trip.

use leasehold::{Acquire, AcquireRequest, Backend, ForceRelease, ListRequest, LookupBy, Postgres};
use test_servers::{Postgres as Server, Proxy};

use crate::support::{connect, granted, number, request, server, stealing, ttl};

/// One of each, after which the lock is free.
async fn every_operation(store: &Postgres, mut after: impl FnMut(&str)) {
    let held = request("order:42");
    let rival = AcquireRequest { key: held.key.clone(), ..request("order:42") };
    granted(store, &held).await;
    after("acquire");
    granted(store, &held).await;
    after("a repeated acquire");
    assert!(matches!(store.acquire(&rival).await.unwrap(), Acquire::Held(_)));
    after("a refused acquire");
    store.extend(&held.lock_id, ttl(60_000)).await.unwrap();
    after("extend");
    assert!(store.is_locked(&held.key).await.unwrap());
    after("is_locked");
    assert!(store.lookup(LookupBy::Key(&held.key)).await.unwrap().is_some());
    after("lookup by key");
    assert!(store.lookup(LookupBy::Id(&held.lock_id)).await.unwrap().is_some());
    after("lookup by id");
    assert_eq!(store.list(&ListRequest::new("")).await.unwrap().records.len(), 1);
    after("a list of one page");
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    granted(store, &stealing("order:42", 1)).await;
    after("a steal");
    assert!(matches!(store.force_release(&held.key).await.unwrap(), ForceRelease::Released(_)));
    after("a forced release");
    granted(store, &held).await;
    after("acquire");
    store.release(&held.lock_id).await.unwrap();
    after("release");
}

/// What clients sent since the last time this was asked.
fn sent(server: &Server) -> u64 {
    let calls = number(
        server,
        "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'",
    );
    server.sql("SELECT pg_stat_statements_reset()");
    calls
}

#[tokio::test]
async fn every_operation_is_one_statement() {
    let server = server().await;
    let store = connect(&server).await;
    sent(&server);
    every_operation(&store, |operation| assert_eq!(sent(&server), 1, "{operation}")).await;
}

#[tokio::test]
async fn every_operation_is_one_round_trip_on_the_same_connection() {
    let server = server().await;
    let proxy = Proxy::start(server.address());
    let url = format!("postgres://postgres@{}/postgres?pool=1", proxy.address());
    let store = Postgres::connect(&url).await.unwrap();
    store.is_locked(&request("order:42").key).await.unwrap();
    let mut before = proxy.counts();
    every_operation(&store, |operation| {
        let now = proxy.counts();
        assert_eq!(now.chunks_from_client - before.chunks_from_client, 1, "{operation}");
        assert_eq!(now.connections, before.connections, "{operation}");
        before = now;
    })
    .await;
}

#[tokio::test]
async fn a_release_tells_of_itself_only_if_somebody_waits() {
    let server = Server::with(&[("pg_stat_statements.track", "all")]);
    let store = crate::support::migrated(&server).await;
    let told = || server.calls("%pg_notify($%");
    let use_it = async || {
        let mine = request("order:42");
        granted(&store, &mine).await;
        store.release(&mine.lock_id).await.unwrap();
    };
    server.sql("SELECT pg_stat_statements_reset()");
    use_it().await;
    assert!(server.calls("DELETE FROM%") > 0, "what functions do is counted");
    assert_eq!(told(), 0, "nobody waits");
    let another = store.subscribe(leasehold::Topic::Freed(&request("order:43").key)).await.unwrap();
    use_it().await;
    assert_eq!(told(), 0, "somebody waits for another key");
    let waiting = store.subscribe(leasehold::Topic::Freed(&request("order:42").key)).await.unwrap();
    use_it().await;
    assert_eq!(told(), 1);
    drop((waiting, another));
    let interested = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    crate::support::eventually("nobody waits any more", || number(&server, interested) == 0).await;
    use_it().await;
    assert_eq!(told(), 1);
}

#[tokio::test]
async fn a_refused_acquire_writes_nothing() {
    let server = server().await;
    let store = connect(&server).await;
    granted(&store, &request("order:42")).await;
    let written = || number(&server, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint");
    let before = written();
    for _ in 0..200 {
        assert!(matches!(store.acquire(&request("order:42")).await.unwrap(), Acquire::Held(_)));
    }
    // The server writes a little of its own accord. A lock on the row would take some 50 bytes each time, and a flush.
    let bytes = written() - before;
    assert!(bytes < 2000, "{bytes} bytes");
}
