//! The SQLite store: sequential pairs against bare transactions on the same tables, 64 tasks
//! against one, and the hand-over between two processes.
//! `cargo bench -p leasehold-bench --bench sqlite`

#![allow(clippy::unwrap_used, missing_docs)]

use leasehold::backend::{Acquire, AcquireRequest, Backend, Release};
use leasehold::sqlite::Sqlite;
use leasehold::{Key, LockId, Ttl};
use leasehold_bench::{Contestant, compete, is_partner, measure_hand_over};
use rusqlite::{Connection, params};

const ROUNDS: usize = 11;
const PAIRS: u64 = 12_800;

fn main() {
    if is_partner() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    pairs(&runtime);
    hand_over(&runtime);
}

fn request(key: &str) -> AcquireRequest {
    AcquireRequest::new(Key::new(key).unwrap(), LockId::random().unwrap(), Ttl::default())
}

async fn pair(store: &Sqlite, request: &AcquireRequest) {
    let Acquire::Granted(grant) = store.acquire(request).await.unwrap() else { panic!("held") };
    let Release::Released = store.release(&grant.lock_id).await.unwrap() else { panic!("absent") };
}

fn pairs(runtime: &tokio::runtime::Runtime) {
    let directory = tempfile::tempdir().unwrap();
    let open = |name: &str| runtime.block_on(Sqlite::open(directory.path().join(name))).unwrap();
    let (store, shared) = (open("store.db"), open("shared.db"));
    // The tables and pragmas of the store, used by hand.
    drop(open("bare.db"));
    let bare = Connection::open(directory.path().join("bare.db")).unwrap();
    bare.pragma_update(None, "synchronous", "normal").unwrap();
    let requests: Vec<_> = (0..100).map(|n| request(&format!("payment:order-{n:07}"))).collect();
    let next = |n: u64| &requests[usize::try_from(n % 100).unwrap()];
    let mut contestants = [
        Contestant::new("bare: two transactions by hand", |operations| {
            for n in 0..operations {
                by_hand(&bare, next(n), i64::try_from(n).unwrap());
            }
        }),
        Contestant::new("one task: acquire + release", |operations| {
            runtime.block_on(async {
                for n in 0..operations {
                    pair(&store, next(n)).await;
                }
            });
        }),
        Contestant::new("64 tasks: acquire + release", |operations| {
            runtime.block_on(async {
                let tasks: Vec<_> = requests[..64]
                    .iter()
                    .map(|request| {
                        let (store, request) = (shared.clone(), request.clone());
                        tokio::spawn(async move {
                            for _ in 0..operations / 64 {
                                pair(&store, &request).await;
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
        }),
    ];
    println!("pairs of acquire and release, median of {ROUNDS} rounds of {PAIRS}");
    let times = compete(&mut contestants, ROUNDS, PAIRS);
    for (contestant, time) in contestants.iter().zip(&times) {
        let pace = 1e9 / time;
        println!(
            "  {:<34} {:>7.1} us  {pace:>8.0} pairs/s  x{:.2} the bare pace",
            contestant.name,
            time / 1e3,
            times[0] / time
        );
    }
    println!("  64 tasks are x{:.2} one task", times[1] / times[2]);
}

/// What somebody would write for a lock without waiting, stealing and owners: one upsert, one
/// update.
fn by_hand(connection: &Connection, request: &AcquireRequest, n: i64) {
    let run = |sql: &str| connection.prepare_cached(sql).unwrap().execute([]).unwrap();
    run("BEGIN IMMEDIATE");
    connection
        .prepare_cached(
            "INSERT INTO locks (key, lock_id, fence, acquired_at_ms, expires_at_ms, holder) VALUES (?1, ?2, ?3, ?4, ?4 + 30000, ?5)
             ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, fence = fence + 1,
             acquired_at_ms = excluded.acquired_at_ms, expires_at_ms = excluded.expires_at_ms, holder = excluded.holder",
        )
        .unwrap()
        .execute(params![request.key.as_str(), request.lock_id.expose(), n, n, "host/program"])
        .unwrap();
    run("COMMIT");
    run("BEGIN IMMEDIATE");
    connection
        .prepare_cached("UPDATE locks SET lock_id = NULL, holder = NULL WHERE lock_id = ?1")
        .unwrap()
        .execute([request.lock_id.expose()])
        .unwrap();
    run("COMMIT");
}

fn hand_over(runtime: &tokio::runtime::Runtime) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("locks.db").display());
    println!("hand-over between two processes: {}", measure_hand_over(runtime, &url));
}
