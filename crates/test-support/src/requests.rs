use std::sync::Arc;
use std::time::Duration;

use leasehold::backend::{Acquire, AcquireRequest, Backend};
use leasehold::{Contention, Error, Grant, Key, LockId, Locks, Steal, Ttl};

/// A handle that stands for a process of its own.
pub async fn locks(url: &str) -> Locks {
    Locks::connect(url).await.unwrap()
}

/// The store at a URL, without a handle around it.
pub async fn connect(url: &str) -> Arc<dyn Backend> {
    locks(url).await.backend().clone()
}

/// A URL with one more option, such as `timeout=1s`.
pub fn with_option(url: &str, option: &str) -> String {
    format!("{url}{}{option}", if url.contains('?') { '&' } else { '?' })
}

/// A key that is valid.
pub fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// A new lock id.
pub fn id() -> LockId {
    LockId::random().unwrap()
}

/// A number of milliseconds.
pub fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).unwrap()
}

/// A request with a lock id of its own.
pub fn request(name: &str) -> AcquireRequest {
    AcquireRequest::new(key(name), id(), Ttl::default())
}

/// A request that takes the lock from whoever has had it for longer than `millis`.
pub fn stealing(name: &str, millis: u64) -> AcquireRequest {
    let steal = Steal::NEVER.with_held_longer_than(Duration::from_millis(millis));
    request(name).with_steal(steal)
}

/// The grant of an acquire that must succeed.
pub async fn granted(store: &dyn Backend, request: &AcquireRequest) -> Grant {
    grant(store.acquire(request).await)
}

/// The grant in an answer that must be one.
#[track_caller]
pub fn grant(answer: Result<Acquire, Error>) -> Grant {
    match answer.unwrap() {
        Acquire::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

/// Who holds the lock of an acquire that must be refused.
pub async fn held(store: &dyn Backend, request: &AcquireRequest) -> Contention {
    match store.acquire(request).await.unwrap() {
        Acquire::Held(contention) => contention,
        other => panic!("{other:?}"),
    }
}
