//! Tasks that wait for a lock until it is theirs, through guards.

use std::sync::Arc;
use std::time::Duration;

use leasehold::backend::Backend;
use leasehold::{Guard, LockRequest, Locks};
use leasehold_conformance::history::{History, Summary, What};
use test_support::soon;
use tokio::task::JoinHandle;

use crate::support::assert_sound;

/// Several tasks of several handles, each of which wants one lock a few times.
pub(crate) struct Turns {
    pub(crate) history: History,
    tasks: Vec<JoinHandle<()>>,
    turns: usize,
}

impl Turns {
    /// Starts `tasks` tasks for each store that want the lock of `key` `turns` times each.
    pub(crate) fn begin(stores: Vec<Arc<dyn Backend>>, key: &'static str, tasks: usize, turns: usize) -> Self {
        Self::begin_with(stores, key, (tasks, turns), |request| request)
    }

    /// The same, of tasks that take the lock whenever it is free, whoever is in line.
    pub(crate) fn begin_unfair(stores: Vec<Arc<dyn Backend>>, key: &'static str, tasks: usize, turns: usize) -> Self {
        Self::begin_with(stores, key, (tasks, turns), LockRequest::unfair)
    }

    fn begin_with(
        stores: Vec<Arc<dyn Backend>>,
        key: &'static str,
        (tasks, turns): (usize, usize),
        how: fn(LockRequest) -> LockRequest,
    ) -> Self {
        let history = History::new();
        let all = stores.len() * tasks * turns;
        let tasks = stores
            .into_iter()
            .map(|store| Locks::builder(store).on_release_error(|_| {}).build())
            .flat_map(|locks| std::iter::repeat_n(locks, tasks))
            .map(|locks| {
                let history = history.clone();
                tokio::spawn(async move {
                    for _ in 0..turns {
                        turn(how(locks.lock(key)), key, &history).await;
                    }
                })
            })
            .collect();
        Self { history, tasks, turns: all }
    }

    pub(crate) fn over(&self) -> bool {
        self.tasks.iter().all(JoinHandle::is_finished)
    }

    /// Waits until everybody has had all turns, and checks what they saw.
    pub(crate) async fn end(self) -> Summary {
        for task in self.tasks {
            soon("a turn", task).await.unwrap();
        }
        let summary = assert_sound(&self.history.events());
        assert_eq!(summary.granted, self.turns);
        summary
    }
}

async fn turn(request: LockRequest, key: &str, history: &History) {
    let sent = history.now();
    let guard = request.ttl(Duration::from_secs(2)).wait_forever().acquire().await.unwrap();
    let name = name_of(&guard);
    history.record_at(sent, key, &name, What::AcquireSent { may_steal: false });
    record_grant(history, &guard);
    tokio::select! {
        biased;
        _ = guard.lost() => history.record(key, &name, What::Lost),
        () = tokio::time::sleep(Duration::from_millis(fastrand::u64(1..8))) => {
            history.record(key, &name, What::ReleaseSent);
            if guard.release().await.is_ok() {
                history.record(key, &name, What::Released);
            }
        }
    }
}

/// Acquires the lock `k`, and writes down when it was asked for and granted.
pub(crate) async fn acquire_recorded(locks: &Locks, ttl: Duration, history: &History) -> Guard {
    let sent = history.now();
    let guard = locks.lock("k").ttl(ttl).wait_forever().acquire().await.unwrap();
    history.record_at(sent, "k", &name_of(&guard), What::AcquireSent { may_steal: false });
    record_grant(history, &guard);
    guard
}

/// What the lock of a guard is called in a history.
pub(crate) fn name_of(guard: &Guard) -> String {
    guard.lock_id().hash_id().to_string()
}

/// A heartbeat has no deadline of its own: the hold ends when the guard is told so.
pub(crate) fn record_grant(history: &History, guard: &Guard) {
    let name = name_of(guard);
    history.record(guard.key().as_str(), &name, What::Granted { fence: guard.fence().get(), deadline: u64::MAX });
}
