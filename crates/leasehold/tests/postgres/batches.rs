//! Batches beside single acquires: they decide alike, and never let two hold a key.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use leasehold::backend::{Acquire, AcquireRequest, Backend, Line, Mode};
use leasehold::postgres::Postgres;
use leasehold::{Error, Fence, Holder, LockId, Steal};
use test_servers::Postgres as Server;
use test_support::postgres::number;
use test_support::{Holders, StoreServer, id, request, soon, ttl};

use crate::contest::pause;
use crate::support::{connect, permit, server};

const KEYS: usize = 6;

/// Two schemas of one server, to which the same things happen: one is asked in batches, the other
/// one by one.
struct Pair {
    server: Server,
    batches: Postgres,
    singles: Postgres,
    /// Who got the grants that each of the two gave, by key and fence.
    grants: [HashMap<(String, Fence), LockId>; 2],
}

impl Pair {
    async fn new() -> Self {
        let server = Server::with(&[("fsync", "off")]);
        let [batches, singles] = ["batches", "singles"].map(|schema| format!("{}?schema={schema}", server.url()));
        let (batches, singles) =
            (Postgres::connect(&batches).await.unwrap(), Postgres::connect(&singles).await.unwrap());
        batches.migrate().await.unwrap();
        singles.migrate().await.unwrap();
        Self { server, batches, singles, grants: Default::default() }
    }

    fn sql(&self, statement: &str) {
        for schema in ["batches", "singles"] {
            self.server.sql(&statement.replace("SCHEMA", schema));
        }
    }

    /// What matters of an answer, without what differs from one time to another.
    fn said(&mut self, which: usize, key: &str, answer: &Result<Acquire, Error>) -> String {
        let grants = &mut self.grants[which];
        match answer {
            Ok(Acquire::Granted(grant)) => {
                let before = grants.insert((key.to_owned(), grant.fence), grant.lock_id);
                format!("granted, again: {:?}, slot {:?}", before == Some(grant.lock_id), grant.slot)
            }
            Ok(Acquire::Held(contention)) => {
                let whose = contention.fence.and_then(|fence| grants.get(&(key.to_owned(), fence)));
                let left = contention.expires_at.as_millis() > contention.now.as_millis();
                format!(
                    "held by {whose:?} {:?}, {:?}, {}, place {:?}, {left}",
                    contention.holder, contention.mode, contention.holders, contention.place
                )
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => format!("{:?} {error}", error.code()),
        }
    }

    async fn agree(&mut self, wanted: &[AcquireRequest]) {
        let together = self.batches.acquire_together(wanted).await;
        for (wanted, answer) in wanted.iter().zip(together) {
            let alone = self.singles.acquire(wanted).await;
            let key = wanted.key.as_str();
            assert_eq!(self.said(0, key, &answer), self.said(1, key, &alone), "{key}: {wanted:?}");
        }
    }
}

/// A request of any kind, with a new lock id.
fn any(rng: &mut Rng, key: usize) -> AcquireRequest {
    let mode = match rng.u8(0..8) {
        0 => Mode::Shared,
        1 => permit(2),
        _ => Mode::Exclusive,
    };
    let line = match rng.u8(0..4) {
        0 => Line::Heed,
        1 => Line::Join { lease: ttl(30_000) },
        _ => Line::Ignore,
    };
    let steal = match rng.u8(0..10) {
        0 => Steal::NEVER.with_same_holder(),
        1 => Steal::NEVER.with_held_longer_than(Duration::from_secs(600)),
        _ => Steal::NEVER,
    };
    let holder = Holder::new(["one", "two", "three"][rng.usize(0..3)]).unwrap();
    request(&format!("k{key}")).with_mode(mode).with_line(line).with_steal(steal).with_holder(holder)
}

/// Requests for some of the keys, in any order. Some have a lock id that was used before, also for
/// another key. That key is not wanted at the same time: who comes first would decide.
fn batch(rng: &mut Rng, used: &[(LockId, usize)]) -> Vec<(AcquireRequest, usize)> {
    let mut keys: Vec<_> = (0..KEYS).collect();
    rng.shuffle(&mut keys);
    keys.truncate(rng.usize(2..=KEYS));
    let mut wanted: Vec<(AcquireRequest, usize)> = Vec::new();
    for key in &keys {
        let mut one = any(rng, *key);
        if !used.is_empty() && rng.u8(0..4) == 0 {
            let (id, _) = used[rng.usize(0..used.len())];
            let elsewhere = used.iter().any(|(it, place)| *it == id && place != key && keys.contains(place));
            if !elsewhere && wanted.iter().all(|(other, _)| other.lock_id != id) {
                one = one.with_lock_id(id);
            }
        }
        wanted.push((one, *key));
    }
    wanted
}

/// So many sequences, each of which begins without a lock.
async fn sequences(seeds: std::ops::Range<u64>) {
    let mut pair = Pair::new().await;
    for seed in seeds {
        let mut rng = Rng::with_seed(seed);
        let mut used: Vec<(LockId, usize)> = Vec::new();
        pair.sql("TRUNCATE SCHEMA.syncguard_locks, SCHEMA.syncguard_locks_grants, SCHEMA.syncguard_locks_line");
        for _ in 0..12 {
            match rng.u8(0..8) {
                0 if !used.is_empty() => {
                    let (id, _) = used[rng.usize(0..used.len())];
                    let (one, other) = (pair.batches.release(&id).await, pair.singles.release(&id).await);
                    assert_eq!(one.unwrap(), other.unwrap(), "seed {seed}");
                }
                1 => {
                    let key = rng.usize(0..KEYS);
                    let tables = [("", "expires_at_ms"), ("_grants", "expires_at_ms"), ("_line", "until_ms")];
                    for (table, column) in &tables[..rng.usize(1..=3)] {
                        let table = format!("SCHEMA.syncguard_locks{table}");
                        pair.sql(&format!("UPDATE {table} SET {column} = 1 WHERE key = 'k{key}'"));
                    }
                }
                _ => {
                    let (wanted, keys): (Vec<_>, Vec<_>) = batch(&mut rng, &used).into_iter().unzip();
                    used.extend(wanted.iter().map(|wanted| wanted.lock_id).zip(keys));
                    eprintln!("seed {seed}: {} wanted", wanted.len());
                    pair.agree(&wanted).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_batch_decides_as_single_acquires_do() {
    let seed = std::env::var("LEASEHOLD_TEST_SEED").map_or(0, |seed| seed.parse().unwrap());
    let sequences_wanted = std::env::var("MODEL_SEQUENCES").map_or(40, |number| number.parse().unwrap());
    sequences(seed..seed + sequences_wanted).await;
}

/// One key of a contest.
#[derive(Default)]
struct Contended {
    holders: Holders,
    last: AtomicU64,
}

impl Contended {
    /// Whoever was granted it, with this fence, has it alone.
    fn have(&self, fence: u64) {
        self.holders.enter(Mode::Exclusive);
        let last = self.last.swap(fence, Ordering::SeqCst);
        assert!(fence > last, "{fence} after {last}");
        self.holders.leave(Mode::Exclusive);
    }
}

struct Contest {
    keys: Vec<Contended>,
    /// How often each kind of contender had one of them.
    had: [AtomicUsize; 3],
}

impl Contest {
    fn goes_on(&self) -> bool {
        self.had.iter().any(|had| had.load(Ordering::SeqCst) < 150)
    }

    fn have(&self, kind: usize, name: &str, fence: u64) {
        self.keys[name[1..].parse::<usize>().unwrap()].have(fence);
        self.had[kind].fetch_add(1, Ordering::SeqCst);
    }
}

async fn contend_in_batches(store: Arc<Postgres>, contest: Arc<Contest>) {
    while contest.goes_on() {
        let mut keys: Vec<_> = (0..KEYS).collect();
        fastrand::shuffle(&mut keys);
        let wanted: Vec<_> = keys[..fastrand::usize(2..=KEYS)]
            .iter()
            .map(|key| request(&format!("k{key}")).with_line(if fastrand::bool() { Line::Heed } else { Line::Ignore }))
            .collect();
        let mut ids = Vec::new();
        for (wanted, answer) in wanted.iter().zip(store.acquire_together(&wanted).await) {
            if let Acquire::Granted(grant) = answer.unwrap() {
                contest.have(0, wanted.key.as_str(), grant.fence.get());
                ids.push(grant.lock_id);
            }
        }
        for answer in store.release_many(&ids).await {
            assert_eq!(answer.unwrap(), leasehold::backend::Release::Released);
        }
        pause(2_000).await;
    }
}

async fn contend_alone(store: Arc<Postgres>, contest: Arc<Contest>) {
    while contest.goes_on() {
        let wanted = request(&format!("k{}", fastrand::usize(0..KEYS)));
        if let Acquire::Granted(grant) = store.acquire(&wanted).await.unwrap() {
            contest.have(1, wanted.key.as_str(), grant.fence.get());
            store.release(&wanted.lock_id).await.unwrap();
        }
        pause(2_000).await;
    }
}

async fn contend_as_the_other_library(server: Arc<Server>, contest: Arc<Contest>) {
    let mut other = server.other_library().await;
    while contest.goes_on() {
        let (name, id) = (format!("k{}", fastrand::usize(0..KEYS)), id());
        if let Some(fence) = other.acquire(&name, &id, 30_000).await {
            contest.have(2, &name, fence);
            assert!(other.release(&id).await);
        }
        pause(2_000).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_singles_and_the_other_library_never_hold_a_key_together() {
    let server = Arc::new(server().await);
    let keys = (0..KEYS).map(|_| Contended::default()).collect();
    let contest = Arc::new(Contest { keys, had: Default::default() });
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let store = Arc::new(connect(&server).await);
        for _ in 0..2 {
            tasks.spawn(contend_in_batches(store.clone(), contest.clone()));
        }
        tasks.spawn(contend_alone(store, contest.clone()));
        tasks.spawn(contend_as_the_other_library(server.clone(), contest.clone()));
    }
    while let Some(done) = soon("a contender", tasks.join_next()).await {
        done.unwrap();
    }
    assert_eq!(number(&server, "SELECT count(*) FROM syncguard_locks"), 0);
    assert_eq!(number(&server, "SELECT sum(deadlocks) FROM pg_stat_database"), 0);
}
