//! Contenders of all kinds for one key, who say when they have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::backend::{Acquire, AcquireRequest, Backend, Extend, Line, Mode, Release};
use test_servers::Postgres as Server;
use test_support::{Holders, id, request, soon, ttl};
use tokio::task::JoinHandle;

use crate::support::{connect, joining, permit};

/// Grants that each kind of contender must get.
const ENOUGH: usize = 15;

/// Who has it, and how often each kind of contender had it.
#[derive(Default)]
pub(crate) struct Contest {
    pub(crate) holders: Holders,
    counts: [AtomicUsize; 5],
}

impl Contest {
    pub(crate) fn count(&self, kind: usize) {
        self.counts[kind].fetch_add(1, Ordering::SeqCst);
    }

    /// Whether each of the kinds that take part had it often enough.
    pub(crate) fn is_over(&self, kinds: usize) -> bool {
        self.counts[..kinds].iter().all(|count| count.load(Ordering::SeqCst) >= ENOUGH)
    }
}

/// Four kinds of our own, two contenders of each, beside `others` that have begun already, until
/// each of `kinds` had it often enough. What others see of the key covers everybody all the while.
pub(crate) async fn contend(server: &Arc<Server>, contest: &Arc<Contest>, kinds: usize, others: Vec<JoinHandle<()>>) {
    let ours = [
        joining("order:42"),
        request("order:42").with_line(Line::Heed),
        joining("order:42").with_mode(Mode::Shared),
        joining("order:42").with_mode(permit(2)),
    ];
    let mut tasks = others;
    for (kind, wanted) in ours.iter().enumerate() {
        for _ in 0..2 {
            let (server, contest) = (server.clone(), contest.clone());
            tasks.push(tokio::spawn(one(server, wanted.clone(), kind, kinds, contest)));
        }
    }
    while !contest.is_over(kinds) && !tasks.iter().any(JoinHandle::is_finished) {
        let uncovered = server.sql(
            "SELECT g.*, l.* FROM syncguard_locks_grants AS g LEFT JOIN syncguard_locks AS l ON l.key = g.key
             WHERE (l.expires_at_ms >= g.expires_at_ms AND l.lock_id LIKE '~' || g.class || '%') IS NOT TRUE",
        );
        assert_eq!(uncovered, "");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for task in tasks {
        soon("a contender", task).await.unwrap();
    }
    let left = "SELECT key FROM syncguard_locks UNION ALL SELECT key FROM syncguard_locks_grants
        UNION ALL SELECT key FROM syncguard_locks_line";
    assert_eq!(server.sql(left), "");
}

async fn one(server: Arc<Server>, wanted: AcquireRequest, kind: usize, kinds: usize, contest: Arc<Contest>) {
    let store = connect(&server).await;
    let waits = matches!(wanted.line, Line::Join { .. });
    while !contest.is_over(kinds) {
        let wanted = wanted.clone().with_lock_id(id());
        while let Acquire::Held(_) = store.acquire(&wanted).await.unwrap()
            && !contest.is_over(kinds)
        {
            pause(4_000).await;
        }
        if let Acquire::Granted(_) = store.acquire(&wanted).await.unwrap() {
            contest.holders.enter(wanted.mode);
            let extended = store.extend(&wanted.lock_id, ttl(fastrand::u64(10_000..60_000))).await.unwrap();
            assert!(matches!(extended, Extend::Extended { .. }), "{extended:?}");
            contest.count(kind);
            contest.holders.leave(wanted.mode);
            assert_eq!(store.release(&wanted.lock_id).await.unwrap(), Release::Released);
        }
        store.release(&wanted.lock_id).await.unwrap();
        // While somebody is in line, those who are not get nothing.
        pause(if waits { 250_000 } else { 4_000 }).await;
    }
}

pub(crate) async fn pause(most_micros: u64) {
    tokio::time::sleep(Duration::from_micros(fastrand::u64(0..most_micros))).await;
}
