//! Rows of holders that crashed are removed when nobody can need them any more.

use std::time::Duration;

use leasehold::backend::Backend;
use leasehold::postgres::Postgres;
use test_servers::Postgres as Server;
use test_support::postgres::{now, number, row, session};
use test_support::{eventually, granted, request, soon, ttl};

use crate::support::{connect, server};

/// Locks that ended so many milliseconds ago.
fn put(server: &Server, names: &str, ended: i64) {
    let until = i64::try_from(now(server)).unwrap() - ended;
    server.sql(&format!(
        "INSERT INTO syncguard_locks SELECT n, md5(n), {until}, 1, '000000000000001', n FROM {names} AS n;
        INSERT INTO syncguard_fence_counters SELECT 'fence:' || n, 1, n FROM {names} AS n"
    ));
}

#[tokio::test]
async fn only_locks_that_have_been_dead_for_a_while_are_swept_and_never_their_fences() {
    let server = server().await;
    let store = connect(&server).await;
    // Dead to everybody after one second, and swept after more than three.
    put(&server, "unnest('{dead,gone}'::text[])", 3_001);
    put(&server, "unnest('{young}'::text[])", -20_000);
    assert_eq!(store.sweep().await.unwrap(), 2);
    put(&server, "unnest('{dying}'::text[])", 1_500);
    assert_eq!(store.sweep().await.unwrap(), 0, "it takes more than a second of death");
    assert_eq!(server.sql("SELECT key FROM syncguard_locks ORDER BY key"), "dying\nyoung");
    assert_eq!(number(&server, "SELECT count(*) FROM syncguard_fence_counters"), 4);
}

#[tokio::test]
async fn rows_that_others_use_are_passed_over() {
    let server = server().await;
    let store = connect(&server).await;
    put(&server, "unnest('{busy,dead}'::text[])", 60_000);
    let other = session(&server).await;
    other.batch_execute("BEGIN; SELECT FROM syncguard_locks WHERE key = 'busy' FOR UPDATE").await.unwrap();
    assert_eq!(soon("a sweep", store.sweep()).await.unwrap(), 1);
    assert_eq!(server.sql("SELECT key FROM syncguard_locks"), "busy");
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(store.sweep().await.unwrap(), 1);
}

#[tokio::test]
async fn a_sweep_is_never_long() {
    let server = server().await;
    let store = connect(&server).await;
    put(&server, "unnest(ARRAY(SELECT 'k' || g FROM generate_series(1, 1200) AS g))", 60_000);
    let swept = [store.sweep().await.unwrap(), store.sweep().await.unwrap(), store.sweep().await.unwrap()];
    assert_eq!((swept, store.sweep().await.unwrap()), ([500, 500, 200], 0));
}

#[tokio::test]
async fn a_handle_that_is_asked_to_sweeps_in_the_background_and_others_do_not() {
    let server = server().await;
    let (sweeper, plain) =
        (Postgres::connect(&format!("{}?sweep_every=0.05s", server.url())).await.unwrap(), connect(&server).await);
    put(&server, "unnest('{dead}'::text[])", 60_000);
    let use_it = async |store: &Postgres| {
        let mine = request("order:42");
        granted(store, &mine).await;
        store.release(&mine.lock_id).await.unwrap();
    };
    tokio::time::sleep(Duration::from_millis(60)).await;
    use_it(&plain).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_ne!(row(&server, "dead"), "");
    use_it(&sweeper).await;
    eventually("the dead lock is swept", async || row(&server, "dead").is_empty()).await;
    put(&server, "unnest('{another}'::text[])", 60_000);
    tokio::time::sleep(Duration::from_millis(60)).await;
    use_it(&sweeper).await;
    eventually("the next one too", async || row(&server, "another").is_empty()).await;
}

#[tokio::test]
async fn a_lock_that_was_swept_is_gone_for_its_holder_too() {
    let server = server().await;
    let store = connect(&server).await;
    let mine = request("order:42");
    granted(&store, &mine).await;
    server.sql("UPDATE syncguard_locks SET expires_at_ms = 1");
    assert_eq!(store.sweep().await.unwrap(), 1);
    let absent = leasehold::backend::Absence::NotFound;
    assert_eq!(store.extend(&mine.lock_id, ttl(60_000)).await.unwrap(), leasehold::backend::Extend::Absent(absent));
    assert_eq!(store.release(&mine.lock_id).await.unwrap(), leasehold::backend::Release::Absent(absent));
}
