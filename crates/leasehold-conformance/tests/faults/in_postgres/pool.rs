//! No connection is held while a lock is held or waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::Locks;
use test_support::postgres::ours;
use test_support::{Case, cases_of_one_store, connect, eventually, grant, key, request, soon};

use super::server;
use crate::turns::Turns;

pub(crate) const CASES: &[Case] = cases_of_one_store![
    a_hundred_tasks_take_turns_over_one_connection,
    nothing_is_kept_busy_while_a_lock_is_held_and_a_hundred_wait,
];

/// Operations, heartbeats, wake-ups.
const CONNECTIONS: u64 = 3;

async fn a_hundred_tasks_take_turns_over_one_connection() {
    let server = server(&[]);
    let store = connect(&format!("{}?pool_size=1", server.url())).await;
    let turns = Turns::begin(vec![store], "k", 100, 1);
    let mut most = 0;
    while !turns.over() {
        most = most.max(ours(&server, "true"));
        assert_eq!(ours(&server, "state LIKE 'idle in transaction%'"), 0);
    }
    turns.end().await;
    assert!((1..=CONNECTIONS).contains(&most), "{most} connections");
}

async fn nothing_is_kept_busy_while_a_lock_is_held_and_a_hundred_wait() {
    let server = server(&[]);
    let store = connect(&format!("{}?pool_size=1", server.url())).await;
    let locks = Locks::new(store.clone());
    let guard = locks.lock("k").acquire().await.unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    let waiting: Vec<_> = (0..100)
        .map(|_| {
            let (locks, done) = (locks.clone(), done.clone());
            tokio::spawn(async move {
                let guard = locks.lock("k").wait_forever().acquire().await.unwrap();
                done.fetch_add(1, Ordering::Relaxed);
                guard.release().await.unwrap();
            })
        })
        .collect();
    let interested = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'";
    eventually("they wait", async || server.sql(interested) == "1").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..20 {
        assert_eq!(ours(&server, "state LIKE 'idle in transaction%' OR wait_event_type = 'Lock'"), 0);
    }
    assert!(ours(&server, "true") <= CONNECTIONS);
    // The one connection is free for whoever else wants something.
    let other = request("other");
    grant(soon("another key", store.acquire(&other)).await);
    assert!(soon("a question", store.is_locked(&key("k"))).await.unwrap());
    assert_eq!(done.load(Ordering::Relaxed), 0);
    guard.release().await.unwrap();
    for waiter in waiting {
        soon("a turn", waiter).await.unwrap();
    }
    assert_eq!(done.load(Ordering::Relaxed), 100);
}
