//! What the tests share.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use leasehold::{
    Acquire, AcquireRequest, Backend, Check, Contention, Error, Grant, Key, LockId, Locks, Redis, Steal, Ttl, Verdict,
};
use serde_json::Value;
use test_servers::Redis as Server;

/// What every name starts with unless a prefix is chosen.
pub(crate) const PREFIX: &str = "syncguard";

pub(crate) async fn connect(server: &Server) -> Redis {
    Redis::connect(&server.url()).await.unwrap()
}

/// A handle that stands for a process of its own.
pub(crate) async fn locks(url: &str) -> Locks {
    Locks::connect(url).await.unwrap()
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(crate) fn request(name: &str) -> AcquireRequest {
    AcquireRequest::new(key(name), LockId::random().unwrap(), Ttl::default())
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
    let time = server.cli(&["TIME"]);
    let (seconds, micros) = time.split_once('\n').unwrap();
    seconds.parse::<u64>().unwrap() * 1000 + micros.parse::<u64>().unwrap() / 1000
}

/// What is stored under a name; empty if there is nothing.
pub(crate) fn get(server: &Server, name: &str) -> String {
    server.cli(&["GET", name])
}

pub(crate) fn json(server: &Server, name: &str) -> Value {
    serde_json::from_str(&get(server, name)).unwrap()
}

/// How long a name has left in milliseconds: -1 without an end, -2 if there is none.
pub(crate) fn pttl(server: &Server, name: &str) -> i64 {
    server.cli(&["PTTL", name]).parse().unwrap()
}

pub(crate) fn exists(server: &Server, name: &str) -> bool {
    server.cli(&["EXISTS", name]) == "1"
}

pub(crate) fn index_of(id: &LockId) -> String {
    format!("{PREFIX}:id:{}", id.expose())
}

/// Everything in the server, with what it is and when it ends.
pub(crate) fn snapshot(server: &Server) -> BTreeMap<String, String> {
    let names = server.cli(&["KEYS", "*"]);
    let describe = |name: &str| {
        let script = "local t = redis.call('TYPE', KEYS[1]).ok
            local v = t == 'string' and redis.call('GET', KEYS[1])
              or t == 'list' and cjson.encode(redis.call('LRANGE', KEYS[1], 0, -1)) or t
            return t .. ' ' .. redis.call('PEXPIRETIME', KEYS[1]) .. ' ' .. v";
        (name.to_owned(), server.cli(&["EVAL", script, "1", name]))
    };
    names.lines().map(describe).collect()
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
