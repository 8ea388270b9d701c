//! Tables stay small and operations cheap, however often locks come and go.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::backend::Backend;
use leasehold::postgres::Postgres;
use test_servers::Postgres as Server;
use test_support::postgres::number;
use test_support::{eventually, granted, request};

use crate::support::{connect, migrated, server};

/// How often locks are taken and given back; 100000 is what users may do in an hour.
const PAIRS: &str = "LEASEHOLD_BLOAT_PAIRS";

const KEYS: usize = 5;

/// The most that both tables may take with their indexes, in bytes: what comes between two rounds
/// of the server's own cleaning.
const LARGEST: u64 = 16 << 20;

/// The most blocks that one call may touch. It is some twenty, give or take the server's own
/// cleaning; without any it would be a thousand.
const MOST_BLOCKS: u64 = 100;

/// Takes and gives back locks of a few keys, a task for each key, and returns the median time of a
/// pair.
async fn pairs(store: &Arc<Postgres>, count: usize) -> Duration {
    let tasks: Vec<_> = (0..KEYS)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                for _ in 0..count / KEYS {
                    let (started, mine) = (Instant::now(), request(&format!("order:{number}")));
                    granted(&*store, &mine).await;
                    store.release(&mine.lock_id).await.unwrap();
                    times.push(started.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

/// How many blocks one call touches, by what was called since the last time this was asked.
fn blocks(server: &Server) -> u64 {
    let blocks = number(
        server,
        "SELECT (sum(shared_blks_hit + shared_blks_read) / sum(calls))::bigint FROM pg_stat_statements
        WHERE query LIKE '%_acquire%' OR query LIKE '%_release%'",
    );
    server.sql("SELECT pg_stat_statements_reset()");
    blocks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_stay_small_and_operations_cheap_while_locks_come_and_go() {
    let count: usize = std::env::var(PAIRS).map_or(10_000, |count| count.parse().unwrap());
    // What is written is not the point here, and the server cleans as often as it would in an hour.
    let server = Server::with(&[("fsync", "off"), ("autovacuum_naptime", "1s")]);
    let store = Arc::new(migrated(&server).await);
    pairs(&store, 100).await;
    blocks(&server);
    let first = (pairs(&store, count / 10).await, blocks(&server));
    pairs(&store, count - count / 5).await;
    blocks(&server);
    let last = (pairs(&store, count / 10).await, blocks(&server));
    let size = |table: &str| number(&server, &format!("SELECT pg_total_relation_size('{table}')"));
    let (locks, fences) = (size("syncguard_locks"), size("syncguard_fence_counters"));
    println!("{count} pairs: {locks} + {fences} bytes; {first:?} at first, {last:?} at last");
    assert!(locks + fences < LARGEST, "{locks} + {fences} bytes");
    assert!(last.1 < MOST_BLOCKS, "{} blocks for a call at first, {} at last", first.1, last.1);
    assert_eq!(number(&server, "SELECT count(*) FROM syncguard_fence_counters"), KEYS as u64);
}

#[tokio::test]
async fn fences_are_updated_in_place() {
    let server = server().await;
    let store = connect(&server).await;
    for _ in 0..200 {
        let mine = request("order:42");
        granted(&store, &mine).await;
        store.release(&mine.lock_id).await.unwrap();
    }
    let updates = |column: &str| {
        number(&server, &format!("SELECT {column} FROM pg_stat_user_tables WHERE relname = 'syncguard_fence_counters'"))
    };
    // A session tells what it did when it has been idle for a moment, or ends.
    drop(store);
    eventually("all updates are counted", async || updates("n_tup_upd") >= 199).await;
    let in_place = updates("n_tup_hot_upd");
    assert!(in_place >= 190, "{in_place} of 199 updates touched no index");
}
