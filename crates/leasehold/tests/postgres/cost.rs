//! Nothing is written or notified that nobody needs.

use leasehold::backend::{Acquire, Backend};
use test_servers::Postgres as Server;
use test_support::postgres::number;
use test_support::{eventually, granted, request};

use crate::support::{connect, migrated, server};

#[tokio::test]
async fn a_release_tells_of_itself_only_if_somebody_waits() {
    let server = Server::with(&[("pg_stat_statements.track", "all")]);
    let store = migrated(&server).await;
    let notified = || server.calls("%pg_notify($%");
    let use_it = async || {
        let mine = request("order:42");
        granted(&store, &mine).await;
        store.release(&mine.lock_id).await.unwrap();
    };
    server.sql("SELECT pg_stat_statements_reset()");
    use_it().await;
    assert!(server.calls("DELETE FROM%") > 0, "what functions do is counted");
    assert_eq!(notified(), 0, "nobody waits");
    let another = store.subscribe(leasehold::backend::Topic::Freed(&request("order:43").key)).await.unwrap();
    use_it().await;
    assert_eq!(notified(), 0, "somebody waits for another key");
    let waiting = store.subscribe(leasehold::backend::Topic::Freed(&request("order:42").key)).await.unwrap();
    use_it().await;
    assert_eq!(notified(), 1);
    drop((waiting, another));
    let interested = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    eventually("nobody waits any more", async || number(&server, interested) == 0).await;
    use_it().await;
    assert_eq!(notified(), 1);
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
    // The server writes a little of its own accord. A lock on the row would take some 50 bytes each
    // time, and a flush.
    let bytes = written() - before;
    assert!(bytes < 2000, "{bytes} bytes");
}
