//! Beside programs of this library from before there were lines and modes: their scripts as they
//! were.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::backend::{Acquire, Backend, Event, Extend, Mode, Topic};
use leasehold::redis::Redis;
use leasehold::{ListRequest, LockId};
use serde_json::Value;
use test_servers::Redis as Server;
use test_support::redis::{HELD, Other, counter_of, index_of, record_of};
use test_support::{eventually, granted, held, id, key, request, soon, ttl};

use crate::support::{connect, joining, permit, shared};

const ACQUIRE: &str = include_str!("../data/redis-without-lines/acquire.lua");
const EXTEND: &str = include_str!("../data/redis-without-lines/extend.lua");
const FORCE_RELEASE: &str = include_str!("../data/redis-without-lines/force_release.lua");
const RELEASE: &str = include_str!("../data/redis-without-lines/release.lua");

/// A process that uses the library of before.
struct Older<'a>(&'a Server);

impl Older<'_> {
    /// Takes the lock, also from others if it is older than so many milliseconds.
    fn acquire(&self, name: &str, id: &LockId, age: Option<u64>) -> bool {
        let (lock, index, counter) = (record_of(name), index_of(id), counter_of(name));
        let (json, age) = (Value::from(name).to_string(), age.map(|age| age.to_string()).unwrap_or_default());
        let arguments = [
            "EVAL",
            ACQUIRE,
            "3",
            &lock,
            &counter,
            &index,
            id.expose(),
            "30000",
            "31000",
            &json,
            ",\"holder\":\"older\"}",
            "syncguard:taken",
            "",
            &age,
            "",
            "syncguard:granted",
            "",
            "",
            HELD,
        ];
        let answer = self.0.cli(&arguments);
        assert!(answer.starts_with("0\n") || answer.starts_with("1\n"), "{answer}");
        answer.starts_with('1')
    }

    fn release(&self, id: &LockId) -> bool {
        self.answer(&["EVAL", RELEASE, "1", &index_of(id), id.expose(), HELD]) == 1
    }

    fn extend(&self, id: &LockId) -> bool {
        self.answer(&["EVAL", EXTEND, "1", &index_of(id), id.expose(), "60000", "61000"]) > 0
    }

    fn answer(&self, command: &[&str]) -> i64 {
        let answer = self.0.cli(command);
        answer.parse().unwrap_or_else(|_| panic!("{answer}"))
    }
}

#[tokio::test]
async fn older_programs_neither_take_nor_end_what_several_hold_or_what_is_kept_for_somebody() {
    let server = Server::start();
    let (store, older) = (connect(&server).await, Older(&server));
    let (reader, mine) = (shared("order:1"), permit("order:2", 1));
    let (holder, first) = (request("order:3"), joining(request("order:3"), 60_000));
    for request in [&reader, &mine, &holder] {
        granted(&store, request).await;
    }
    held(&store, &first).await;
    store.release(&holder.lock_id).await.unwrap();
    for (name, owner) in [("order:1", &reader), ("order:2", &mine), ("order:3", &first)] {
        let theirs = id();
        assert!(!older.acquire(name, &theirs, None) && !older.release(&theirs), "{name}");
        assert!(!older.release(&owner.lock_id) && !older.extend(&owner.lock_id), "{name}");
        let arguments = ["EVAL", FORCE_RELEASE, "1", &record_of(name), "syncguard:id:", "syncguard:taken", HELD];
        assert!(server.cli(&arguments).contains("BADRECORD"), "{name}");
    }
    for id in [&reader.lock_id, &mine.lock_id] {
        assert!(matches!(store.extend(id, ttl(30_000)).await.unwrap(), Extend::Extended { .. }));
        store.release(id).await.unwrap();
    }
    granted(&store, &first).await;
    store.release(&first.lock_id).await.unwrap();
    for name in ["order:1", "order:2", "order:3"] {
        assert!(older.acquire(name, &id(), None), "{name}");
        held(&store, &shared(name)).await;
    }
}

#[tokio::test]
async fn those_in_line_follow_an_older_program_that_releases() {
    let server = Server::start();
    let (store, older) = (connect(&server).await, Older(&server));
    let theirs = id();
    assert!(older.acquire("order:42", &theirs, None));
    let waiters: Vec<_> = (0..2).map(|_| joining(request("order:42"), 60_000)).collect();
    for (place, waiter) in (0..).zip(&waiters) {
        assert_eq!(held(&store, waiter).await.place, Some(place));
    }
    let mut turn = store.subscribe(Topic::Turn(&waiters[1].key, &waiters[1].lock_id)).await.unwrap();
    assert!(older.extend(&theirs) && older.release(&theirs));
    assert_eq!(soon("the release", turn.next()).await, Some(Event::Freed));
    // Whoever looks calls the first.
    assert_eq!(held(&store, &waiters[1]).await.place, Some(1));
    assert!(!older.acquire("order:42", &theirs, None), "it is kept for the first");
    granted(&store, &waiters[0]).await;
}

#[tokio::test]
async fn an_older_thief_has_the_lock_for_itself() {
    let server = Server::start();
    let (store, older) = (connect(&server).await, Older(&server));
    let readers = [shared("order:42"), shared("order:42")];
    for reader in &readers {
        granted(&store, reader).await;
    }
    let theirs = id();
    eventually("they have held it for a while", async || older.acquire("order:42", &theirs, Some(20))).await;
    for reader in &readers {
        assert!(matches!(store.extend(&reader.lock_id, ttl(30_000)).await.unwrap(), Extend::Absent(_)));
    }
    held(&store, &shared("order:42")).await;
    let listed = store.list(&ListRequest::new("")).await.unwrap().records;
    assert_eq!(listed.iter().map(|record| record.lock_id).collect::<Vec<_>>(), [theirs]);
    assert_eq!(store.force_release(&key("order:42"), None).await.unwrap().len(), 1);
    granted(&store, &shared("order:42")).await;
}

/// Who is inside at present, as those who are let in see it.
#[derive(Default)]
struct Inside(Mutex<Vec<Mode>>);

impl Inside {
    fn enter(&self, mode: Mode) {
        let mut inside = self.0.lock().unwrap();
        let fits = inside.iter().all(|other| other.goes_with(mode)) && (inside.len() as u64) < u64::from(mode.limit());
        assert!(inside.is_empty() || fits, "{mode:?} beside {inside:?}");
        inside.push(mode);
    }

    fn leave(&self, mode: Mode) {
        let mut inside = self.0.lock().unwrap();
        let at = inside.iter().position(|other| *other == mode).unwrap();
        inside.swap_remove(at);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn neither_older_programs_nor_the_other_library_hold_a_lock_together_with_us() {
    let server = Arc::new(Server::start());
    let (inside, stop) = (Arc::new(Inside::default()), Arc::new(AtomicBool::new(false)));
    let grants = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let mut threads = Vec::new();
    for which in 0..2 {
        let (server, inside, stop, grants) = (server.clone(), inside.clone(), stop.clone(), grants.clone());
        threads.push(std::thread::spawn(move || {
            let (older, other) = (Older(&server), Other(&server));
            while !stop.load(Ordering::Relaxed) {
                let id = id();
                let is_ours = match which {
                    0 => older.acquire("order:42", &id, None),
                    _ => other.acquire("order:42", &id, 30_000).is_some(),
                };
                if is_ours {
                    inside.enter(Mode::Exclusive);
                    grants[which].fetch_add(1, Ordering::Relaxed);
                    if fastrand::bool() {
                        assert!(if which == 0 { older.extend(&id) } else { other.extend(&id, 60_000) });
                    }
                    inside.leave(Mode::Exclusive);
                    assert!(if which == 0 { older.release(&id) } else { other.release(&id) });
                }
            }
        }));
    }
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (store, inside, stop) = (connect(&server).await, inside.clone(), stop.clone());
        tasks.push(tokio::spawn(async move { take_turns(&store, &inside, &stop).await }));
    }
    let begun = Instant::now();
    let all_had_it = async || {
        grants.iter().all(|grants| grants.load(Ordering::Relaxed) > 50) && begun.elapsed() > Duration::from_secs(3)
    };
    eventually("all had it often enough", all_had_it).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        assert!(task.await.unwrap() > 10, "one of ours hardly ever had it");
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Takes and releases the lock in every way until it is told to stop. Tells how often.
async fn take_turns(store: &Redis, inside: &Inside, stop: &AtomicBool) -> u64 {
    let mut grants = 0;
    while !stop.load(Ordering::Relaxed) {
        let wanted = match fastrand::u8(..4) {
            0 => shared("order:42"),
            1 | 2 => permit("order:42", 3),
            _ => request("order:42"),
        };
        let wanted = if fastrand::bool() { joining(wanted, 5_000) } else { wanted };
        for _ in 0..20 {
            if let Acquire::Granted(_) = store.acquire(&wanted).await.unwrap() {
                inside.enter(wanted.mode);
                grants += 1;
                if fastrand::bool() {
                    assert!(matches!(
                        store.extend(&wanted.lock_id, ttl(60_000)).await.unwrap(),
                        Extend::Extended { .. }
                    ));
                }
                inside.leave(wanted.mode);
                break;
            }
        }
        store.release(&wanted.lock_id).await.unwrap();
    }
    grants
}
