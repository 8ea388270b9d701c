//! The Redis store beside rslock, on one private server: sequential pairs, 64 tasks, server time
//! per operation, the hand-over between two processes, and memory.
//! `cargo bench -p leasehold-bench --bench redis`

#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::backend::{Acquire, AcquireRequest, Backend, Release};
use leasehold::redis::Redis;
use leasehold::{Key, LockId, Ttl};
use leasehold_bench::{Contestant, compete, is_partner, measure_hand_over};
use rslock::LockManager;

const ROUNDS: usize = 11;
const PAIRS: u64 = 6_400;
const TTL: Duration = Duration::from_secs(30);

fn main() {
    if is_partner() {
        return;
    }
    let server = test_servers::Redis::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    pairs(&server, &runtime);
    server_time(&server, &runtime);
    hand_over(&server, &runtime);
    memory(&runtime);
}

fn request(key: &str) -> AcquireRequest {
    AcquireRequest::new(Key::new(key).unwrap(), LockId::random().unwrap(), Ttl::default())
}

async fn ours(store: &Redis, request: &AcquireRequest) {
    let Acquire::Granted(grant) = store.acquire(request).await.unwrap() else { panic!("held") };
    let Release::Released = store.release(&grant.lock_id).await.unwrap() else { panic!("absent") };
}

async fn theirs(manager: &LockManager, key: &str) {
    let lock = manager.lock(key, TTL).await.unwrap();
    manager.unlock(&lock).await;
}

fn pairs(server: &test_servers::Redis, runtime: &tokio::runtime::Runtime) {
    let store = Arc::new(runtime.block_on(Redis::connect(&server.url())).unwrap());
    let manager = LockManager::new(vec![server.url()]);
    let keys: Vec<String> = (0..100).map(|n| format!("payment:order-{n:07}")).collect();
    let requests: Vec<_> = keys.iter().map(|key| request(key)).collect();
    let at = |n: u64| usize::try_from(n % 100).unwrap();
    let mut contestants = [
        Contestant::new("rslock, one task", |operations| {
            runtime.block_on(async {
                for n in 0..operations {
                    theirs(&manager, &keys[at(n)]).await;
                }
            });
        }),
        Contestant::new("leasehold, one task", |operations| {
            runtime.block_on(async {
                for n in 0..operations {
                    ours(&store, &requests[at(n)]).await;
                }
            });
        }),
        Contestant::new("rslock, 64 tasks", |operations| {
            let pairs = keys[..64].iter().map(|key| {
                let (manager, key) = (manager.clone(), key.clone());
                async move {
                    for _ in 0..operations / 64 {
                        theirs(&manager, &key).await;
                    }
                }
            });
            runtime.block_on(at_once(pairs));
        }),
        Contestant::new("leasehold, 64 tasks", |operations| {
            let pairs = requests[..64].iter().map(|request| {
                let (store, request) = (store.clone(), request.clone());
                async move {
                    for _ in 0..operations / 64 {
                        ours(&store, &request).await;
                    }
                }
            });
            runtime.block_on(at_once(pairs));
        }),
    ];
    println!("pairs of acquire and release, median of {ROUNDS} rounds of {PAIRS}");
    let times = compete(&mut contestants, ROUNDS, PAIRS);
    for (contestant, time) in contestants.iter().zip(&times) {
        println!("  {:<22} {:>7.1} us  {:>8.0} pairs/s", contestant.name, time / 1e3, 1e9 / time);
    }
    println!(
        "  leasehold is x{:.2} the pace of rslock in one task, x{:.2} in 64",
        times[0] / times[1],
        times[2] / times[3]
    );
}

async fn at_once<F: Future<Output = ()> + Send + 'static>(work: impl Iterator<Item = F>) {
    let tasks: Vec<_> = work.map(tokio::spawn).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// The server's own account of what an operation costs it.
fn server_time(server: &test_servers::Redis, runtime: &tokio::runtime::Runtime) {
    const TIMES: usize = 20_000;
    let store = runtime.block_on(Redis::connect(&server.url())).unwrap();
    let manager = LockManager::new(vec![server.url()]);
    let wanted = request("payment:order-0000042");
    let per_call = |commands: &[&str]| {
        let total: f64 = commands.iter().map(|command| field(server, command, "usec=")).sum();
        total / TIMES as f64
    };
    let measure = |name: &str, commands: &[&str], run: &mut dyn FnMut()| {
        run();
        server.cli(&["CONFIG", "RESETSTAT"]);
        for _ in 0..TIMES {
            run();
        }
        println!("  {name:<34} {:>6.2} us", per_call(commands));
    };
    println!("server time per operation, by INFO commandstats, over {TIMES} calls");
    measure("leasehold acquire + release", &["evalsha"], &mut || runtime.block_on(ours(&store, &wanted)));
    measure("rslock lock + unlock", &["set", "evalsha"], &mut || runtime.block_on(theirs(&manager, "theirs")));
    runtime.block_on(async { drop(store.acquire(&wanted).await.unwrap()) });
    measure("leasehold extend", &["evalsha"], &mut || {
        runtime.block_on(async { store.extend(&wanted.lock_id, wanted.ttl).await.unwrap() });
    });
    measure("leasehold acquire, held by another", &["evalsha"], &mut || {
        runtime.block_on(async { drop(store.acquire(&request("payment:order-0000042")).await.unwrap()) });
    });
    measure("leasehold is_locked", &["evalsha"], &mut || {
        runtime.block_on(async { store.is_locked(&wanted.key).await.unwrap() });
    });
}

fn field(server: &test_servers::Redis, command: &str, name: &str) -> f64 {
    let stats = server.info("commandstats", &format!("cmdstat_{command}")).unwrap_or_default();
    let value = stats.split(',').find_map(|part| part.strip_prefix(name)).unwrap_or("0");
    value.parse().unwrap()
}

fn hand_over(server: &test_servers::Redis, runtime: &tokio::runtime::Runtime) {
    println!("hand-over between two processes, leasehold: {}", measure_hand_over(runtime, &server.url()));
    // rslock looks again and again, with a pause of 200 ms.
    let manager = LockManager::new(vec![server.url()]);
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let (held, waiter) = (runtime.block_on(manager.lock("baton", TTL)).unwrap(), manager.clone());
            let waiting = runtime.spawn(async move {
                let guard = waiter.acquire("baton", TTL).await.unwrap();
                let at = Instant::now();
                guard.release().await;
                at
            });
            runtime.block_on(async {
                tokio::time::sleep(Duration::from_millis(50 + fastrand::u64(..200))).await;
                let released = Instant::now();
                manager.unlock(&held).await;
                waiting.await.unwrap().duration_since(released)
            })
        })
        .collect();
    times.sort_unstable();
    println!("hand-over within one process, rslock: p50 {:?}, p90 {:?}", times[10], times[18]);
}

/// What a live lock takes in the server: the lock, its index and its fence counter.
fn memory(runtime: &tokio::runtime::Runtime) {
    const LOCKS: u64 = 10_000;
    let server = test_servers::Redis::start();
    runtime.block_on(async {
        let store = Redis::connect(&server.url()).await.unwrap();
        drop(store.acquire(&request("warm")).await.unwrap());
        let before = server.used_memory();
        for n in 0..LOCKS {
            drop(store.acquire(&request(&format!("payment:order-{n:06}"))).await.unwrap());
        }
        println!("memory per live lock with a key of 20 bytes: {} bytes", (server.used_memory() - before) / LOCKS);
    });
}
