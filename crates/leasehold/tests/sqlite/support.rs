//! What the tests share.

use std::path::{Path, PathBuf};

use leasehold::backend::{Acquire, AcquireRequest, Backend, Line, Mode};
use leasehold::sqlite::Sqlite;
use leasehold::{Contention, Ttl};
use tempfile::TempDir;

pub(crate) fn directory() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks.db");
    (directory, path)
}

pub(crate) async fn refused(path: impl AsRef<Path>) -> leasehold::Error {
    let error = Sqlite::open(path).await.unwrap_err();
    assert!(error.hint().is_some(), "{error:?}");
    error
}

pub(crate) fn raw(path: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).unwrap()
}

/// The same request, if it takes a place for so many milliseconds.
pub(crate) fn joining(request: AcquireRequest, lease: u64) -> AcquireRequest {
    request.with_line(Line::Join { lease: Ttl::from_millis(lease).unwrap() })
}

/// A request for a lock that is shared.
pub(crate) fn reader(name: &str) -> AcquireRequest {
    test_support::request(name).with_mode(Mode::Shared)
}

/// A request that waits in line for a minute.
pub(crate) fn waiter(name: &str) -> AcquireRequest {
    joining(test_support::request(name), 60_000)
}

/// Takes the place with this number in the line.
pub(crate) async fn waits(store: &dyn Backend, request: &AcquireRequest, place: u32) -> Contention {
    match store.acquire(request).await.unwrap() {
        Acquire::Held(contention) => {
            assert_eq!(contention.place, Some(place));
            contention
        }
        other => panic!("{other:?}"),
    }
}

/// A number that the database tells.
pub(crate) fn count(path: &Path, sql: &str) -> i64 {
    raw(path).query_row(sql, [], |row| row.get(0)).unwrap()
}
