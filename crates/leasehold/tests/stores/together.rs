//! Our processes and those of the other library exclude each other and share one sequence of
//! fences.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::backend::{Acquire, Backend, Extend, LookupBy, Release};
use leasehold::{Holder, LockId, Metadata};
use serde_json::json;
use test_support::{Ability, Case, StoreServer, cases, connect, granted, held, id, key, locks, request, soon, ttl};

use crate::Store;

pub(crate) const CASES: &[Case] = cases![
    either_waits_for_the_other_and_fences_rise_across_both,
    the_other_library_extends_and_releases_our_locks_and_keeps_what_it_does_not_know,
    many_of_both_kinds_at_once_never_hold_together_and_fences_only_rise,
    a_guard_waits_for_a_lock_of_the_other_library_although_its_release_wakes_nobody,
];

async fn either_waits_for_the_other_and_fences_rise_across_both(store: Store) {
    let server = store.server();
    let (store, mut other) = (connect(&server.url()).await, server.other_library().await);
    let mut last = 0;
    for _ in 0..5 {
        let (mine, theirs) = (request("order:42"), id());
        let fence = granted(&*store, &mine).await.fence.get();
        assert!(fence > last);
        assert_eq!(other.acquire("order:42", &theirs, 30_000).await, None);
        assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released);

        last = other.acquire("order:42", &theirs, 30_000).await.unwrap();
        assert_eq!(last, fence + 1);
        assert_eq!(held(&*store, &request("order:42")).await.holder, None);
        assert!(other.release(&theirs).await);
    }
}

async fn the_other_library_extends_and_releases_our_locks_and_keeps_what_it_does_not_know(store: Store) {
    let server = store.server();
    let (store, mut other) = (connect(&server.url()).await, server.other_library().await);
    let mut mine = request("order:42");
    mine.holder = Holder::new("db-1/report").unwrap();
    mine.metadata = Metadata::new(json!({ "order": "A-17", "lines": ["a", "b"] })).unwrap();
    let grant = granted(&*store, &mine).await;
    assert!(other.extend(&mine.lock_id, 60_000).await);

    // Written anew by them, and still ours.
    let record = store.lookup(LookupBy::Key(&mine.key)).await.unwrap().unwrap();
    assert_eq!((record.lock_id, record.fence), (grant.lock_id, grant.fence));
    assert_eq!((record.holder.unwrap().as_str(), &record.metadata), ("db-1/report", &mine.metadata));
    assert!(record.expires_at > grant.expires_at);
    assert_eq!(granted(&*store, &mine).await.fence, grant.fence, "a repeated acquire");
    assert!(matches!(store.extend(&mine.lock_id, ttl(90_000)).await.unwrap(), Extend::Extended { .. }));
    assert!(other.extend(&mine.lock_id, 60_000).await, "and back again");
    assert!(other.release(&mine.lock_id).await);
    assert!(!store.is_locked(&mine.key).await.unwrap());
    assert_ne!(store.release(&mine.lock_id).await.unwrap(), Release::Released);
}

/// What all contenders write down while they hold the lock.
#[derive(Default)]
struct Journal {
    inside: AtomicBool,
    fences: Mutex<Vec<u64>>,
    ours: AtomicUsize,
    theirs: AtomicUsize,
    enough: usize,
}

/// Grants that each side must get.
fn enough(store: Store) -> usize {
    if store.can(Ability::BusyLocks) { 60 } else { 15 }
}

impl Journal {
    fn enter(&self, fence: u64, side: &AtomicUsize) {
        assert!(!self.inside.swap(true, Ordering::SeqCst), "two holders at once");
        self.fences.lock().unwrap().push(fence);
        side.fetch_add(1, Ordering::SeqCst);
    }

    fn leave(&self) {
        assert!(self.inside.swap(false, Ordering::SeqCst), "two holders at once");
    }

    fn is_full(&self) -> bool {
        self.ours.load(Ordering::SeqCst) >= self.enough && self.theirs.load(Ordering::SeqCst) >= self.enough
    }
}

async fn ours(server: Arc<dyn StoreServer>, journal: Arc<Journal>) {
    let store = connect(&server.url()).await;
    while !journal.is_full() {
        let wanted = request("order:42");
        if let Acquire::Granted(grant) = store.acquire(&wanted).await.unwrap() {
            journal.enter(grant.fence.get(), &journal.ours);
            assert!(matches!(store.extend(&wanted.lock_id, ttl(20_000)).await.unwrap(), Extend::Extended { .. }));
            journal.leave();
            assert_eq!(store.release(&wanted.lock_id).await.unwrap(), Release::Released);
        }
        // Whoever has just released lets somebody else have a go.
        tokio::time::sleep(pause(&wanted.lock_id)).await;
    }
}

async fn theirs(server: Arc<dyn StoreServer>, journal: Arc<Journal>) {
    let mut other = server.other_library().await;
    while !journal.is_full() {
        let id = id();
        if let Some(fence) = other.acquire("order:42", &id, 30_000).await {
            journal.enter(fence, &journal.theirs);
            assert!(other.extend(&id, 20_000).await);
            journal.leave();
            assert!(other.release(&id).await);
        }
        tokio::time::sleep(pause(&id)).await;
    }
}

/// Up to two milliseconds, by the chance that is in a lock id.
fn pause(id: &LockId) -> Duration {
    Duration::from_micros(id.expose().bytes().map(u64::from).sum::<u64>() * 7919 % 2000)
}

async fn many_of_both_kinds_at_once_never_hold_together_and_fences_only_rise(store: Store) {
    let server = store.server();
    let journal = Arc::new(Journal { enough: enough(store), ..Journal::default() });
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(tokio::spawn(ours(server.clone(), journal.clone())));
        tasks.push(tokio::spawn(theirs(server.clone(), journal.clone())));
    }
    for task in tasks {
        soon("a contender", task).await.unwrap();
    }
    let fences = journal.fences.lock().unwrap();
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
    assert!(fences.len() >= 2 * enough(store));
}

async fn a_guard_waits_for_a_lock_of_the_other_library_although_its_release_wakes_nobody(store: Store) {
    let server = store.server();
    let (locks, mut other) = (locks(&server.url()).await, server.other_library().await);
    let theirs = other.acquire("order:42", &id(), 1_000).await.unwrap();
    let started = Instant::now();
    // It crashed: nobody releases the lock, and nobody tells of its end.
    let guard = soon("the lock", locks.lock("order:42").wait_forever().acquire()).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(900), "{:?}", started.elapsed());
    assert!(guard.fence().get() > theirs);
    assert!(locks.is_locked(&key("order:42")).await.unwrap());
    guard.release().await.unwrap();
}
