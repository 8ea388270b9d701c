//! What the tests share.

use std::time::{Duration, Instant};

use leasehold::{
    Acquire, AcquireRequest, Backend, Check, Contention, Error, Grant, Key, LockId, Postgres, Steal, Ttl, Verdict,
};
use test_servers::Postgres as Server;
use tokio_postgres::{Client, NoTls};

/// A server with tables.
pub(crate) async fn server() -> Server {
    let server = Server::start();
    migrated(&server).await;
    server
}

/// Makes the tables, and connects.
pub(crate) async fn migrated(server: &Server) -> Postgres {
    let store = connect(server).await;
    store.migrate().await.unwrap();
    store
}

pub(crate) async fn connect(server: &Server) -> Postgres {
    Postgres::connect(&server.url()).await.unwrap()
}

/// A session of somebody else, which can stop between two statements.
pub(crate) async fn session(server: &Server) -> Client {
    let url = format!("{}?application_name=session", server.url());
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(crate) fn id() -> LockId {
    LockId::random().unwrap()
}

pub(crate) fn request(name: &str) -> AcquireRequest {
    AcquireRequest::new(key(name), id(), Ttl::default())
}

/// A request that takes the lock from whoever has had it for longer than `millis`.
pub(crate) fn stealing(name: &str, millis: u64) -> AcquireRequest {
    let steal = Steal::NEVER.held_longer_than(Duration::from_millis(millis));
    AcquireRequest { steal, ..request(name) }
}

pub(crate) fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).unwrap()
}

pub(crate) async fn granted(store: &dyn Backend, request: &AcquireRequest) -> Grant {
    match store.acquire(request).await.unwrap() {
        Acquire::Granted(grant) => grant,
        Acquire::Held(contention) => panic!("{contention}"),
    }
}

pub(crate) async fn held(store: &dyn Backend, request: &AcquireRequest) -> Contention {
    match store.acquire(request).await.unwrap() {
        Acquire::Granted(grant) => panic!("{grant:?}"),
        Acquire::Held(contention) => contention,
    }
}

/// The server's clock, in milliseconds.
pub(crate) fn now(server: &Server) -> u64 {
    number(server, "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint")
}

/// The one number that a query gives.
pub(crate) fn number(server: &Server, query: &str) -> u64 {
    let answer = server.sql(query);
    answer.parse().unwrap_or_else(|_| panic!("{query}: {answer}"))
}

/// The row of a lock, without the column that only we have; empty if there is none.
pub(crate) fn row(server: &Server, key: &str) -> String {
    let columns = "key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key";
    server.sql(&format!("SELECT {columns} FROM syncguard_locks WHERE key = '{key}'"))
}

/// How many sessions of ours wait for something that another session has.
pub(crate) fn stuck(server: &Server) -> u64 {
    number(
        server,
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold' AND wait_event_type = 'Lock'",
    )
}

/// Waits for a condition that something in the background brings about.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for something that must happen, and fails the test rather than hang if it does not.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(Duration::from_secs(20), future).await;
    outcome.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

pub(crate) fn check<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no check {name} in {checks:?}"))
}

/// The names of the checks that are not as they should be.
pub(crate) fn complaints(checks: &[Check]) -> Vec<(&'static str, Verdict)> {
    checks.iter().filter(|check| check.verdict != Verdict::Ok).map(|check| (check.name, check.verdict)).collect()
}

/// Everything that a person could get to see of an error.
pub(crate) fn everything_said(error: &Error) -> String {
    let mut text = format!("{error} {error:?} {:?}", error.hint());
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(" {cause} {cause:?}"));
        source = cause.source();
    }
    text
}
