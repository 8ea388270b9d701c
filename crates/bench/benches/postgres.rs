//! The PostgreSQL store beside two bare transactions on tables of the same shape, on one private
//! server: sequential pairs, 16 and 64 tasks with and without batches, and the hand-over between
//! two processes.
//! `cargo bench -p leasehold-bench --bench postgres`

#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;

use leasehold::backend::{Acquire, AcquireRequest, Backend, Release};
use leasehold::postgres::Postgres;
use leasehold::{Key, LockId, Ttl};
use leasehold_bench::{Contestant, compete, is_partner, measure_hand_over};
use tokio::runtime::Runtime;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};

const ROUNDS: usize = 7;
const PAIRS: u64 = 1280;
/// The most connections of the store without batches, which has more use for them.
const POOL: usize = 16;

fn main() {
    if is_partner() {
        return;
    }
    let server = test_servers::Postgres::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let store = runtime.block_on(open(&server.url()));
    let single = runtime.block_on(open(&format!("{}?pool_size={POOL}&batching=off", server.url())));
    pairs(&server, &runtime, &Arc::new(store), &Arc::new(single));
    println!("hand-over between two processes: {}", measure_hand_over(&runtime, &server.url()));
}

async fn open(url: &str) -> Postgres {
    let store = Postgres::connect(url).await.unwrap();
    store.migrate().await.unwrap();
    store
}

fn request(key: &str) -> AcquireRequest {
    AcquireRequest::new(Key::new(key).unwrap(), LockId::random().unwrap(), Ttl::default())
}

async fn ours(store: &Postgres, request: &AcquireRequest) {
    let Acquire::Granted(grant) = store.acquire(request).await.unwrap() else { panic!("held") };
    let Release::Released = store.release(&grant.lock_id).await.unwrap() else { panic!("absent") };
}

/// What somebody would write for a lock without fences, holders, waiting and stealing: one insert,
/// one delete.
async fn by_hand(client: &Client, key: &str, id: &str) {
    let insert = "INSERT INTO bare (key, lock_id, expires_at_ms) VALUES ($1, $2, 1) ON CONFLICT (key) DO NOTHING";
    client.execute_typed(insert, &[(&key, Type::TEXT), (&id, Type::TEXT)]).await.unwrap();
    client.execute_typed("DELETE FROM bare WHERE lock_id = $1", &[(&id, Type::TEXT)]).await.unwrap();
}

/// So many tasks, each with a key of its own.
fn at_once(runtime: &Runtime, store: &Arc<Postgres>, requests: &[AcquireRequest], operations: u64) {
    let each = operations / requests.len() as u64;
    let tasks = requests.iter().cloned().map(|request| {
        let store = store.clone();
        runtime.spawn(async move {
            for _ in 0..each {
                ours(&store, &request).await;
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
}

fn pairs(server: &test_servers::Postgres, runtime: &Runtime, store: &Arc<Postgres>, single: &Arc<Postgres>) {
    server.sql(
        "CREATE TABLE bare (key text PRIMARY KEY, lock_id text NOT NULL UNIQUE, expires_at_ms bigint NOT NULL);
         CREATE INDEX ON bare (expires_at_ms)",
    );
    let bare = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    });
    let requests: Vec<_> = (0..100).map(|n| request(&format!("payment:order-{n:07}"))).collect();
    let next = |n: u64| &requests[usize::try_from(n % 100).unwrap()];
    let mut contestants = [
        Contestant::new("bare: insert and delete by hand", |operations| {
            runtime.block_on(async {
                for n in 0..operations {
                    by_hand(&bare, next(n).key.as_str(), next(n).lock_id.expose()).await;
                }
            });
        }),
        Contestant::new("one task, without batches", |operations| {
            runtime.block_on(async {
                for n in 0..operations {
                    ours(single, next(n)).await;
                }
            });
        }),
        Contestant::new("one task", |operations| {
            runtime.block_on(async {
                for n in 0..operations {
                    ours(store, next(n)).await;
                }
            });
        }),
        Contestant::new("16 tasks, without batches", |operations| {
            at_once(runtime, single, &requests[..16], operations);
        }),
        Contestant::new("16 tasks", |operations| at_once(runtime, store, &requests[..16], operations)),
        Contestant::new("64 tasks, without batches", |operations| {
            at_once(runtime, single, &requests[..64], operations);
        }),
        Contestant::new("64 tasks", |operations| at_once(runtime, store, &requests[..64], operations)),
    ];
    println!("pairs of acquire and release, median of {ROUNDS} rounds of {PAIRS}");
    let times = compete(&mut contestants, ROUNDS, PAIRS);
    for (contestant, time) in contestants.iter().zip(&times) {
        let (pace, ratio) = (1e9 / time, times[0] / time);
        println!("  {:<32} {:>7.0} us  {pace:>6.0} pairs/s  x{ratio:.2} the bare pace", contestant.name, time / 1e3);
    }
}
