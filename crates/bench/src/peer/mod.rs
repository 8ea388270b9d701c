//! The contestants that are written in Rust, and the orders that they take.

mod postgres;
mod redis;
mod sqlite;

pub(crate) use postgres::TABLES;

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use leasehold::Locks;
use leasehold::backend::{Acquire, AcquireRequest, Backend, Release};
use leasehold::{Guard, Key, LockId, Ttl};
use leasehold_plot::Histogram;
use serde_json::{Value, json};

use crate::process::PEER;

/// How long a lock lasts that nobody gives back.
const LEASE: Duration = Duration::from_secs(600);

/// Something that hands out locks.
#[async_trait]
pub(crate) trait Peer: Send + Sync {
    /// The lock of `key`, which is free unless it says to wait.
    async fn acquire(&self, key: &str, wait: bool) -> Box<dyn Held>;

    /// Of a library that is not ours.
    fn version(&self) -> String {
        String::new()
    }
}

/// A lock that can be given back.
#[async_trait]
pub(crate) trait Held: Send {
    async fn release(self: Box<Self>);
}

/// Leasehold as its users have it: with heartbeat, queue, line and the check of fences.
struct Guards(Locks);

#[async_trait]
impl Peer for Guards {
    async fn acquire(&self, key: &str, wait: bool) -> Box<dyn Held> {
        let request = self.0.lock(key).ttl(LEASE);
        let request = if wait { request.wait_forever() } else { request };
        Box::new(request.acquire().await.unwrap())
    }
}

#[async_trait]
impl Held for Guard {
    async fn release(self: Box<Self>) {
        Guard::release(*self).await.unwrap();
    }
}

/// The bare calls of a store: what the others do, who renew nothing and wait for nobody.
struct Calls(Arc<dyn Backend>);

struct Call(Arc<dyn Backend>, LockId);

#[async_trait]
impl Peer for Calls {
    async fn acquire(&self, key: &str, _wait: bool) -> Box<dyn Held> {
        let ttl = Ttl::new(LEASE).unwrap();
        let request = AcquireRequest::new(Key::new(key).unwrap(), LockId::random().unwrap(), ttl);
        let Acquire::Granted(grant) = self.0.acquire(&request).await.unwrap() else { panic!("held") };
        Box::new(Call(self.0.clone(), grant.lock_id))
    }
}

#[async_trait]
impl Held for Call {
    async fn release(self: Box<Self>) {
        let Release::Released = self.0.release(&self.1).await.unwrap() else { panic!("absent") };
    }
}

/// If this process is a contestant, it takes its orders, and this is true: there is nothing else to
/// do.
pub fn is_peer() -> bool {
    let Ok(what) = std::env::var(PEER) else { return false };
    let (name, url) = what.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let peer = runtime.block_on(open(name, url));
    say(&json!({ "version": peer.version() }));
    let mut baton = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match words[0] {
            "pairs" => say(&runtime.block_on(pairs(&peer, number(1), Duration::from_millis(number(2))))),
            "take" | "wait" => {
                if words[0] == "wait" {
                    say(&json!({ "waiting": true }));
                }
                baton = Some(runtime.block_on(peer.acquire("baton", true)));
                say(&json!({ "at_ns": now() }));
            }
            "release" => {
                let started = now();
                runtime.block_on(baton.take().unwrap().release());
                say(&json!({ "at_ns": started }));
            }
            "hold" => {
                runtime.block_on(hold(&*peer, number(1)..number(2)));
                say(&json!({ "held": true }));
            }
            word => panic!("no such order: {word}"),
        }
    }
    true
}

async fn open(name: &str, url: &str) -> Arc<dyn Peer> {
    match name {
        "guard" => Arc::new(Guards(Locks::connect(url).await.unwrap())),
        "call" => Arc::new(Calls(Locks::connect(url).await.unwrap().backend().clone())),
        "rslock" => Arc::new(redis::Rslock::open(url)),
        "advisory" => Arc::new(postgres::Advisory(postgres::Pool::open(url).await)),
        "insert" => Arc::new(postgres::Rows::inserted(postgres::Pool::open(url).await)),
        "upsert" => Arc::new(postgres::Rows::upserted(postgres::Pool::open(url).await)),
        "transactions" => Arc::new(sqlite::Transactions::open(url)),
        name => panic!("no such peer: {name}"),
    }
}

fn key(number: u64) -> String {
    format!("payment:order-{number:07}")
}

async fn pairs(peer: &Arc<dyn Peer>, tasks: u64, time: Duration) -> Value {
    let started = Instant::now();
    let tasks = (0..tasks).map(|number| {
        let (peer, key) = (peer.clone(), key(number));
        tokio::spawn(async move {
            let mut times = Histogram::default();
            loop {
                let began = Instant::now();
                if began.duration_since(started) >= time {
                    return times;
                }
                peer.acquire(&key, false).await.release().await;
                times.record(began.elapsed());
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut times = Histogram::default();
    for task in tasks {
        times.merge(&task.await.unwrap());
    }
    let p50 = times.percentile(50.0).unwrap_or_default();
    json!({ "pairs": times.count(), "seconds": started.elapsed().as_secs_f64(), "p50_us": p50.as_secs_f64() * 1e6 })
}

/// They are still held when this process has ended.
async fn hold(peer: &dyn Peer, locks: std::ops::Range<u64>) {
    for number in locks {
        std::mem::forget(peer.acquire(&key(number), false).await);
    }
}

fn say(answer: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}").and_then(|()| out.flush()).unwrap();
}

fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}
