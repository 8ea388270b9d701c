//! The memory store beside a bare map, in this process: what is measured takes less than a
//! microsecond, so that nothing may stand between the clock and it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::backend::{Acquire, AcquireRequest, Backend, Release};
use leasehold::memory::Memory;
use leasehold::{Key, LockId, Locks, Ttl};
use tokio::runtime::{Builder, Runtime};

use crate::contest::Settings;
use crate::results::{ContestantResults, StoreResults, TASKS};
use crate::spread::{Spread, digits};

const TTL: Duration = Duration::from_secs(3600);
const SHARDS: usize = 64;

/// A contestant: takes and gives back the lock of a request so many times.
type Work = Arc<dyn Fn(Arc<AcquireRequest>, u64) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Everything that is measured in memory. It should run first, while there is no freed memory that
/// could be used again.
pub fn run(settings: &Settings) -> StoreResults {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let bytes = bytes_per_lock(&runtime, settings.locks * 10);
    let contestants = [
        ("sharded map, by hand", false, map(), None),
        ("leasehold, store alone", true, call(), Some(bytes[0])),
        ("leasehold", true, guard(), Some(bytes[1])),
    ];
    let operations = settings.locks * 20;
    let mut results: Vec<_> = contestants
        .iter()
        .map(|(name, ours, _, bytes)| ContestantResults { name, ours: *ours, bytes: *bytes, ..Default::default() })
        .collect();
    for (level, tasks) in TASKS.into_iter().enumerate() {
        eprintln!("compare: memory: {tasks} tasks");
        let mut rounds = vec![Vec::new(); contestants.len()];
        for round in 0..=settings.rounds {
            for (who, (_, _, work, _)) in contestants.iter().enumerate() {
                let time = spread_out(&runtime, work, tasks, operations);
                // The first is to warm up.
                rounds[who].extend((round > 0).then_some(time));
            }
        }
        for (result, times) in results.iter_mut().zip(rounds) {
            result.pace[level] = Spread::of(times.iter().map(|time| 1.0 / time));
            if tasks == 1 {
                result.pair = Spread::of(times);
            }
        }
    }
    StoreResults {
        name: "memory",
        server: "Within one process".to_owned(),
        contestants: results,
        notes: vec![beside_live_locks(&runtime, settings)],
    }
}

/// The seconds that a pair takes when so many tasks share the work.
fn spread_out(runtime: &Runtime, work: &Work, tasks: usize, operations: u64) -> f64 {
    let each = operations / tasks as u64;
    let started = Instant::now();
    let spawned: Vec<_> = (0..tasks)
        .map(|task| {
            let (work, request) = (work.clone(), Arc::new(request(&format!("payment:order-{task:07}"))));
            runtime.spawn(async move { work(request, each).await })
        })
        .collect();
    runtime.block_on(async {
        for task in spawned {
            task.await.unwrap();
        }
    });
    #[allow(clippy::cast_precision_loss)]
    let pairs = (each * tasks as u64) as f64;
    started.elapsed().as_secs_f64() / pairs
}

/// A request with an id made beforehand.
fn request(key: &str) -> AcquireRequest {
    AcquireRequest::new(Key::new(key).unwrap(), LockId::random().unwrap(), Ttl::new(TTL).unwrap())
}

/// What somebody would write who needs a lock and nothing else: a map by key, a map by id.
fn map() -> Work {
    let (keys, ids, hasher) = (shards::<Key, AcquireRequest>(), shards::<LockId, Key>(), RandomState::new());
    Arc::new(move |request, times| {
        let (keys, ids, hasher) = (keys.clone(), ids.clone(), hasher.clone());
        Box::pin(async move {
            let at = |hash: u64| usize::try_from(hash % SHARDS as u64).unwrap_or(0);
            for _ in 0..times {
                let (key, id) = (at(hasher.hash_one(&request.key)), at(hasher.hash_one(request.lock_id)));
                keys[key].lock().unwrap().insert(request.key.clone(), AcquireRequest::clone(&request));
                ids[id].lock().unwrap().insert(request.lock_id, request.key.clone());
                black_box(ids[id].lock().unwrap().remove(&request.lock_id));
                black_box(keys[key].lock().unwrap().remove(&request.key));
            }
        })
    })
}

fn shards<K, V>() -> Arc<[Mutex<HashMap<K, V>>]> {
    (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect()
}

fn call() -> Work {
    let store = Memory::new();
    Arc::new(move |request, times| {
        let store = store.clone();
        Box::pin(async move {
            for _ in 0..times {
                pair(&store, &request).await;
            }
        })
    })
}

fn guard() -> Work {
    let locks = Locks::new(Memory::new());
    Arc::new(move |request, times| {
        let locks = locks.clone();
        Box::pin(async move {
            for _ in 0..times {
                locks.lock(&request.key).acquire().await.unwrap().release().await.unwrap();
            }
        })
    })
}

async fn pair(store: &Memory, request: &AcquireRequest) {
    let Acquire::Granted(grant) = store.acquire(request).await.unwrap() else { panic!("held") };
    let Release::Released = store.release(&grant.lock_id).await.unwrap() else { panic!("absent") };
}

fn beside_live_locks(runtime: &Runtime, settings: &Settings) -> String {
    eprintln!("compare: memory: beside many locks");
    let many = settings.locks * 100;
    let stores = [filled(runtime, 0), filled(runtime, many)];
    let fresh: Vec<_> = (0..1000).map(|n| request(&format!("new-payment:{n:07}"))).collect();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..settings.rounds * 3 {
        for (store, times) in stores.iter().zip(&mut times) {
            let started = Instant::now();
            runtime.block_on(async {
                for request in fresh.iter().cycle().take(10_000) {
                    pair(store, request).await;
                }
            });
            times.push(started.elapsed().as_secs_f64());
        }
    }
    let [none, beside] = times.map(|times| Spread::of(times).unwrap().median);
    #[allow(clippy::cast_precision_loss)]
    let many = digits(many as f64);
    format!("A pair beside {many} locks that are held takes {:.2} times as long as one beside none.", beside / none)
}

fn filled(runtime: &Runtime, size: u64) -> Memory {
    let store = Memory::new();
    runtime.block_on(async {
        for n in 0..size {
            let request = request(&format!("payment:order-{n:07}"));
            let _ = black_box(store.acquire(&request).await.unwrap());
        }
    });
    store
}

/// Growth of the resident set, so that what the allocator adds counts too: of a lock in the store,
/// and of a guard with its lock.
fn bytes_per_lock(runtime: &Runtime, locks: u64) -> [f64; 2] {
    eprintln!("compare: memory: bytes");
    #[allow(clippy::cast_precision_loss)]
    let each = |before: u64| resident_bytes().saturating_sub(before) as f64 / locks as f64;
    let before = resident_bytes();
    let store = filled(runtime, locks);
    let of_store = each(before);
    let handle = Locks::new(Memory::new());
    let before = resident_bytes();
    let mut guards = Vec::new();
    runtime.block_on(async {
        for n in 0..locks {
            guards.push(handle.lock(format!("payment:order-{n:07}")).ttl(TTL).acquire().await.unwrap());
        }
    });
    let of_guard = each(before);
    drop((store, guards));
    [of_store, of_guard]
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
