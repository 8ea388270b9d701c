//! The other library of the same layout knows neither lines nor shared locks nor permits, and never
//! holds a key together with those who do.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::backend::{Acquire, AcquireRequest, Backend, Extend, Line, Mode, Release};
use test_support::{Ability, Case, Holders, StoreServer, cases, connect, granted, held, id, request, soon, ttl};

use crate::Store;

pub(crate) const CASES: &[Case] = cases![
    it_waits_for_readers_and_permits_and_they_for_it,
    it_does_not_come_between_a_release_and_the_first_in_line,
    what_it_takes_over_after_all_have_died_is_its_own,
    many_of_both_at_once_never_hold_a_key_together,
];

fn permit(of: u16) -> Mode {
    Mode::Permit { of: NonZeroU16::new(of).unwrap() }
}

fn joining(mode: Mode) -> AcquireRequest {
    request("order:42").with_mode(mode).with_line(Line::Join { lease: ttl(30_000) })
}

async fn it_waits_for_readers_and_permits_and_they_for_it(store: Store) {
    let server = store.server();
    let (store, mut other) = (connect(&server.url()).await, server.other_library().await);
    let mut last = 0;
    for mode in [Mode::Shared, permit(3)] {
        let ours = [request("order:42").with_mode(mode), request("order:42").with_mode(mode)];
        for one in &ours {
            let fence = granted(&*store, one).await.fence.get();
            assert!(fence > last, "{fence} after {last}");
            last = fence;
        }
        for one in &ours {
            assert_eq!(other.acquire("order:42", &id(), 30_000).await, None, "{mode}");
            store.extend(&one.lock_id, ttl(60_000)).await.unwrap();
            assert_eq!(store.release(&one.lock_id).await.unwrap(), Release::Released);
        }
        let theirs = id();
        let fence = other.acquire("order:42", &theirs, 30_000).await.expect("it is free");
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        let contention = held(&*store, &ours[0]).await;
        assert_eq!((contention.holder, contention.mode, contention.holders), (None, Mode::Exclusive, 1));
        assert!(other.release(&theirs).await);
    }
}

async fn it_does_not_come_between_a_release_and_the_first_in_line(store: Store) {
    let line_stays = store.can(Ability::LineBesideTheLock);
    let server = store.server();
    let (store, mut other) = (connect(&server.url()).await, server.other_library().await);
    let (mine, waits) = (request("order:42"), joining(Mode::Exclusive));
    granted(&*store, &mine).await;
    held(&*store, &waits).await;
    store.release(&mine.lock_id).await.unwrap();
    assert_eq!(other.acquire("order:42", &id(), 30_000).await, None);
    granted(&*store, &waits).await;
    // Its own release calls nobody. Where the line is beside the lock, it is still there.
    let (theirs, next) = (id(), joining(Mode::Exclusive));
    store.release(&waits.lock_id).await.unwrap();
    other.acquire("order:42", &theirs, 30_000).await.expect("it is free");
    assert_eq!(held(&*store, &next).await.place, Some(0));
    assert!(other.release(&theirs).await);
    if line_stays {
        assert_eq!(held(&*store, &request("order:42").with_line(Line::Heed)).await.holders, 0);
    }
    granted(&*store, &next).await;
}

async fn what_it_takes_over_after_all_have_died_is_its_own(store: Store) {
    let server = store.server();
    let (store, mut other) = (connect(&server.url()).await, server.other_library().await);
    let readers = [Mode::Shared; 2].map(|mode| request("order:42").with_mode(mode).with_ttl(ttl(1)));
    for reader in &readers {
        granted(&*store, reader).await;
    }
    let theirs = id();
    let taken = soon("they are dead", async {
        while other.acquire("order:42", &theirs, 30_000).await.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    taken.await;
    for reader in &readers {
        assert!(matches!(store.extend(&reader.lock_id, ttl(60_000)).await.unwrap(), Extend::Absent(_)));
    }
    assert_eq!(held(&*store, &readers[0]).await.mode, Mode::Exclusive);
    assert!(other.extend(&theirs, 30_000).await && other.release(&theirs).await);
    granted(&*store, &request("order:42")).await;
}

#[derive(Default)]
struct Journal {
    holders: Holders,
    counts: [AtomicUsize; 4],
    /// Grants that each must get: our readers, permits, those who wait for it alone, and the
    /// others.
    enough: usize,
}

impl Journal {
    fn is_full(&self) -> bool {
        self.counts.iter().all(|count| count.load(Ordering::SeqCst) >= self.enough)
    }

    fn theirs(&self) -> usize {
        self.counts[3].load(Ordering::SeqCst)
    }

    fn count(&self, kind: usize) {
        self.counts[kind].fetch_add(1, Ordering::SeqCst);
    }
}

async fn pause(most_micros: u64) {
    tokio::time::sleep(Duration::from_micros(fastrand::u64(0..most_micros))).await;
}

async fn ours(server: Arc<dyn StoreServer>, mode: Mode, kind: usize, journal: Arc<Journal>) {
    let store = connect(&server.url()).await;
    while !journal.is_full() {
        let wanted = joining(mode);
        while let Acquire::Held(_) = store.acquire(&wanted).await.unwrap()
            && !journal.is_full()
        {
            pause(5_000).await;
        }
        if let Acquire::Granted(_) = store.acquire(&wanted).await.unwrap() {
            journal.holders.enter(mode);
            assert!(matches!(store.extend(&wanted.lock_id, ttl(60_000)).await.unwrap(), Extend::Extended { .. }));
            journal.count(kind);
            journal.holders.leave(mode);
        }
        let theirs = journal.theirs();
        store.release(&wanted.lock_id).await.unwrap();
        // While somebody is in line, the others get nothing.
        let let_them = async {
            while journal.theirs() == theirs && !journal.is_full() {
                pause(5_000).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), let_them).await;
    }
}

async fn theirs(server: Arc<dyn StoreServer>, kind: usize, journal: Arc<Journal>) {
    let mut other = server.other_library().await;
    while !journal.is_full() {
        let id = id();
        if other.acquire("order:42", &id, 30_000).await.is_some() {
            journal.holders.enter(Mode::Exclusive);
            assert!(other.extend(&id, 20_000).await);
            journal.count(kind);
            journal.holders.leave(Mode::Exclusive);
            assert!(other.release(&id).await);
        }
        pause(3_000).await;
    }
}

async fn many_of_both_at_once_never_hold_a_key_together(store: Store) {
    let usual = if store.can(Ability::BusyLocks) { 12 } else { 3 };
    let enough = std::env::var("LEASEHOLD_TEST_GRANTS").map_or(usual, |grants| grants.parse().unwrap());
    let (server, journal) = (store.server(), Arc::new(Journal { enough, ..Journal::default() }));
    let mut tasks = Vec::new();
    for _ in 0..2 {
        for (kind, mode) in [Mode::Shared, permit(2), Mode::Exclusive].into_iter().enumerate() {
            tasks.push(tokio::spawn(ours(server.clone(), mode, kind, journal.clone())));
        }
        tasks.push(tokio::spawn(theirs(server.clone(), 3, journal.clone())));
    }
    for task in tasks {
        task.await.unwrap();
    }
}
