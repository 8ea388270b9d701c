//! What the tests share.

use std::path::{Path, PathBuf};

use leasehold::sqlite::Sqlite;
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
