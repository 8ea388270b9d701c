//! What the tests share.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold::{Acquire, AcquireRequest, Backend, Fence, Key, LockId, Sqlite, Ttl};
use tempfile::TempDir;

pub(crate) fn directory() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks.db");
    (directory, path)
}

pub(crate) fn request(key: &str) -> AcquireRequest {
    AcquireRequest::new(Key::new(key).unwrap(), LockId::random().unwrap(), Ttl::default())
}

pub(crate) async fn granted(store: &Sqlite, request: &AcquireRequest) -> Fence {
    match store.acquire(request).await.unwrap() {
        Acquire::Granted(grant) => grant.fence,
        Acquire::Held(contention) => panic!("{contention}"),
    }
}

pub(crate) async fn refused(path: impl AsRef<Path>) -> leasehold::Error {
    let error = Sqlite::open(path).await.unwrap_err();
    assert!(error.hint().is_some(), "{error:?}");
    error
}

pub(crate) fn raw(path: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).unwrap()
}

pub(crate) fn until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(2));
    }
}
