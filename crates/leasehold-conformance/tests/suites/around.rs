//! What can be around a store, or between it and its server.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use leasehold::firestore::Firestore;
use leasehold::layers::{MetricsLayer, TelemetryLayer};
use leasehold::postgres::Postgres;
use leasehold::redis::Redis;
use leasehold::testing::FaultLayer;
use leasehold_conformance::RealHarness;
use test_servers::{FirestoreFault, PgBouncer, RedisCluster};
use test_support::RunningStore;
use test_support::postgres::Database;

use crate::Failure;
use crate::crowd::Crowd;

/// Every layer, which must pass on what it does not care about.
pub(crate) async fn layers() -> Result<RealHarness, Failure> {
    let server = test_servers::Redis::start();
    let (store, _) = FaultLayer::new(Redis::connect(&server.url()).await?);
    let store = Arc::new(TelemetryLayer::include_raw(MetricsLayer::new(store), true, |_| {}));
    let peer = Arc::new(Redis::connect(&server.url()).await?);
    Ok(RealHarness::new(store, peer).keeping(server))
}

/// With others on their way at the same time, so that all are sent together.
pub(crate) async fn redis_crowd() -> Result<RealHarness, Failure> {
    let server = test_servers::Redis::start();
    let store = Crowd::new(Redis::connect(&server.url()).await?)?;
    let peer = Crowd::new(Redis::connect(&server.url()).await?)?;
    Ok(RealHarness::new(Arc::new(store), Arc::new(peer)).keeping(server))
}

/// The same in a database.
pub(crate) async fn postgres_crowd() -> Result<RealHarness, Failure> {
    let database = Database::new();
    let url = RunningStore::url(&database);
    let store = Crowd::new(Postgres::connect(&url).await?)?;
    let peer = Crowd::new(Postgres::connect(&url).await?)?;
    Ok(RealHarness::new(Arc::new(store), Arc::new(peer)).keeping(database))
}

/// Two handles that know the way to the locks through different nodes only, neither of which has
/// them.
pub(crate) async fn cluster() -> Result<RealHarness, Failure> {
    let cluster = shared_cluster();
    let owner = cluster.slot_owner(cluster.slot_of("{locks}"));
    let url = |node: usize| format!("{}?prefix={{locks}}", cluster.urls()[(owner + node) % 3]);
    let (store, peer) = (Redis::connect(&url(1)).await?, Redis::connect(&url(2)).await?);
    Ok(RealHarness::new(Arc::new(store), Arc::new(peer)).keeping(cluster))
}

/// The cluster of all cases that run in this process at the same time, because it takes two seconds
/// to start.
fn shared_cluster() -> Arc<RedisCluster> {
    static SHARED: Mutex<Weak<RedisCluster>> = Mutex::new(Weak::new());
    shared(&SHARED, RedisCluster::start)
}

/// Through a pooler that lends a connection for one transaction.
pub(crate) async fn pooler() -> Result<RealHarness, Failure> {
    let database = Database::new();
    let pooler = shared_pooler(&database);
    let url = format!("postgres://postgres@{}/{}", pooler.address(), database.name());
    let store = Postgres::connect(&url).await?;
    // That nothing is delivered takes a second to find out, and once is enough.
    let peer = Postgres::connect(&format!("{url}?wake_ups=off")).await?;
    Ok(RealHarness::new(Arc::new(store), Arc::new(peer)).keeping((pooler, database)))
}

/// The pooler of all cases that run in this process at the same time, in front of the server that
/// they share.
fn shared_pooler(database: &Database) -> Arc<PgBouncer> {
    static SHARED: Mutex<Weak<PgBouncer>> = Mutex::new(Weak::new());
    shared(&SHARED, || PgBouncer::start(database.server(), "transaction"))
}

fn shared<T>(by: &Mutex<Weak<T>>, start: impl FnOnce() -> T) -> Arc<T> {
    let mut shared = by.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let started = Arc::new(start());
        *shared = Arc::downgrade(&started);
        started
    })
}

/// On a server whose commits go ahead of each other, and one in five is told that others were in
/// its way.
pub(crate) async fn conflicts() -> Result<RealHarness, Failure> {
    let server = test_servers::Firestore::builder().optimistic().start();
    let seed = fastrand::u64(..1_000_000);
    println!("the seed of the conflicts is {seed}");
    server.inject(FirestoreFault::status("ABORTED").on("Commit").at_random(0.2, seed));
    let (store, peer) = (Firestore::connect(&server.url()).await?, Firestore::connect(&server.url()).await?);
    Ok(RealHarness::new(Arc::new(store), Arc::new(peer)).keeping(server))
}
