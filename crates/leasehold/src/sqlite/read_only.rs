//! A database for those who only look: nothing is written, and nothing is made beside the file.

use std::io::ErrorKind;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::clock::HostClock;
use super::database::{Database, beside, has_our_tables, wait_for_others};
use super::error::translate;
use crate::{Error, ErrorCode};

/// Whether there is a file with our tables in it.
///
/// # Errors
///
/// It may not be read, or is something else.
pub(super) fn has_locks(path: &Path) -> Result<bool, Error> {
    match std::fs::File::open(path) {
        Ok(_) => has_our_tables(&open(path)?),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err(Error::new(ErrorCode::AuthFailed, "the database file may not be read").with_source(error))
        }
        Err(error) => {
            Err(Error::new(ErrorCode::ServiceUnavailable, "the database file cannot be read").with_source(error))
        }
    }
}

/// Without a log nobody has the database open, so that all of it is in the file. It is read as it
/// stands: otherwise SQLite would make a log beside it.
fn open(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = if beside(path, "-wal").exists() {
        Connection::open_with_flags(path, flags)
    } else {
        Connection::open_with_flags(as_it_stands(path), flags | OpenFlags::SQLITE_OPEN_URI)
    };
    let mut connection = opened.map_err(translate)?;
    connection.busy_handler(Some(wait_for_others)).map_err(translate)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

fn as_it_stands(path: &Path) -> String {
    use std::fmt::Write;
    use std::os::unix::ffi::OsStrExt;

    let mut url = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => url.push(char::from(*byte)),
            _ => {
                let _ = write!(url, "%{byte:02x}");
            }
        }
    }
    url + "?immutable=1"
}

impl Database {
    pub(super) fn open_read_only(path: &Path) -> Result<Self, Error> {
        let connection = open(path)?;
        let clock = HostClock::read(&connection)?;
        Ok(Self::new(connection, path, clock, true))
    }
}
