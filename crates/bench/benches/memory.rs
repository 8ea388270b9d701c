//! The memory store: pairs of acquire and release, what the guard costs on top, how cost grows with
//! the number of live locks, and bytes per lock. `cargo bench -p leasehold-bench --bench memory`

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Mutex;
use std::time::Duration;

use leasehold::backend::{Acquire, AcquireRequest, Backend, Release};
use leasehold::memory::Memory;
use leasehold::{Key, LockId, Locks, Ttl};
use leasehold_bench::{Contestant, compete};

const ROUNDS: usize = 15;
const OPERATIONS: u64 = 100_000;
const TTL: Duration = Duration::from_secs(3600);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    bytes_per_lock(&runtime);
    pairs(&runtime);
    live_locks(&runtime);
}

/// A request with an id made beforehand: what is measured is the store.
fn request(key: &str) -> AcquireRequest {
    AcquireRequest::new(Key::new(key).unwrap(), LockId::random().unwrap(), Ttl::new(TTL).unwrap())
}

async fn pair(store: &dyn Backend, request: &AcquireRequest) {
    let Acquire::Granted(grant) = store.acquire(request).await.unwrap() else { panic!("held") };
    let Release::Released = store.release(&grant.lock_id).await.unwrap() else { panic!("absent") };
}

fn pairs(runtime: &tokio::runtime::Runtime) {
    let requests: Vec<_> = (0..1000).map(|n| request(&format!("payment:order-{n:07}"))).collect();
    let next = |n: u64| &requests[usize::try_from(n % 1000).unwrap()];
    let store = Memory::new();
    let locks = Locks::new(Memory::new());
    let floor = Mutex::new(HashMap::new());
    let mut contestants = [
        Contestant::new("one mutex around two maps (floor)", |operations| {
            let ids = Mutex::new(HashMap::new());
            for n in 0..operations {
                let request = next(n);
                floor.lock().unwrap().insert(request.key.clone(), request.clone());
                ids.lock().unwrap().insert(request.lock_id, request.key.clone());
                black_box(ids.lock().unwrap().remove(&request.lock_id));
                black_box(floor.lock().unwrap().remove(&request.key));
            }
        }),
        Contestant::new("Backend: acquire + release", |operations| {
            runtime.block_on(async {
                for n in 0..operations {
                    pair(&store, next(n)).await;
                }
            });
        }),
        Contestant::new("Guard: acquire + release", |operations| {
            runtime.block_on(async {
                for n in 0..operations {
                    locks.lock(next(n).key.clone()).acquire().await.unwrap().release().await.unwrap();
                }
            });
        }),
        Contestant::new("Guard: without heartbeat, try", |operations| {
            runtime.block_on(async {
                for n in 0..operations {
                    let request = locks.lock(next(n).key.clone()).heartbeat(false);
                    request.try_acquire().await.unwrap().unwrap().release().await.unwrap();
                }
            });
        }),
    ];
    println!("uncontended pairs on one core, median of {ROUNDS} rounds of {OPERATIONS}");
    let times = compete(&mut contestants, ROUNDS, OPERATIONS);
    for (contestant, time) in contestants.iter().zip(&times) {
        println!("  {:<36} {:>7.0} ns  {:>10.0} pairs/s  x{:.2}", contestant.name, time, 1e9 / time, time / times[1]);
    }
}

fn live_locks(runtime: &tokio::runtime::Runtime) {
    println!("a pair beside live locks, median of {ROUNDS} rounds of 10000");
    let sizes = [0, 1_000, 100_000, 1_000_000];
    let stores: Vec<_> = sizes.iter().map(|size| filled(runtime, *size)).collect();
    let mut contestants: Vec<_> = stores
        .iter()
        .map(|store| {
            let fresh: Vec<_> = (0..1000).map(|n| request(&format!("new-payment:{n:07}"))).collect();
            Contestant::new("", move |operations| {
                runtime.block_on(async {
                    for n in 0..operations {
                        pair(store, &fresh[usize::try_from(n % 1000).unwrap()]).await;
                    }
                });
            })
        })
        .collect();
    let times = compete(&mut contestants, ROUNDS, 10_000);
    for (size, time) in sizes.iter().zip(&times) {
        println!("  {size:>9} live locks {time:>7.0} ns  x{:.2}", time / times[0]);
    }
}

fn filled(runtime: &tokio::runtime::Runtime, size: u64) -> Memory {
    let store = Memory::new();
    runtime.block_on(async {
        for n in 0..size {
            let request = request(&format!("payment:order-{n:07}"));
            let _ = black_box(store.acquire(&request).await.unwrap());
        }
    });
    store
}

/// Growth of the resident set, so that what the allocator adds counts too. It runs first, while
/// there is no freed memory that could be used again.
fn bytes_per_lock(runtime: &tokio::runtime::Runtime) {
    println!("resident bytes per live lock, 21-byte keys");
    let before = resident_bytes();
    let store = filled(runtime, 1_000_000);
    println!("  1000000 live locks in the store  {:>5} bytes each", (resident_bytes() - before) / 1_000_000);

    let locks = Locks::new(Memory::new());
    let before = resident_bytes();
    let guards: Vec<_> = runtime.block_on(async {
        let mut guards = Vec::with_capacity(100_000);
        for n in 0..100_000 {
            guards.push(locks.lock(format!("payment:order-{n:07}")).ttl(TTL).acquire().await.unwrap());
        }
        guards
    });
    println!("  100000 guards with their locks   {:>5} bytes each", (resident_bytes() - before) / 100_000);
    drop((store, guards));
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
