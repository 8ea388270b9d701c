//! A database for those who only look: nothing is written, and nothing is made beside the file.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::Access;

use super::access;
use super::clock::HostClock;
use super::database::{Database, INDEX, LOG, Writes, beside, has_lines, has_our_tables, wait_for_others};
use super::error::translate;
use crate::Error;

impl Database {
    /// Opens the database to look at it. One that is not there is empty.
    pub(super) fn open_read_only(path: &Path) -> Result<Self, Error> {
        let (connection, writes) = open(path)?;
        let clock = HostClock::read(&connection)?;
        Ok(Self::new(connection, path, clock, writes))
    }

    /// What was read as it stood may be outdated.
    pub(super) fn look_again(&mut self) -> Result<(), Error> {
        if matches!(self.writes, Writes::NobodyAtFirst | Writes::OldAtFirst) {
            *self = Self::open_read_only(self.path())?;
        }
        Ok(())
    }
}

/// Without a log nobody has the database open, so that all of it is in the file. Then it is read as
/// it stands: otherwise SQLite would make a log beside it.
fn open(path: &Path) -> Result<(Connection, Writes), Error> {
    if !access::is_there(path)? {
        return Ok((empty()?, Writes::NobodyAtFirst));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let (opened, writes) = if beside(path, LOG).exists() {
        for suffix in [LOG, INDEX] {
            access::check_log(&beside(path, suffix), Access::READ_OK)?;
        }
        (Connection::open_with_flags(path, flags), Writes::Others)
    } else {
        let url = as_it_stands(path);
        (Connection::open_with_flags(url, flags | OpenFlags::SQLITE_OPEN_URI), Writes::NobodyAtFirst)
    };
    let mut connection = opened.map_err(translate)?;
    connection.busy_handler(Some(wait_for_others)).map_err(translate)?;
    connection.set_prepared_statement_cache_capacity(64);
    if !has_our_tables(&connection)? {
        return Ok((empty()?, Writes::NobodyAtFirst));
    }
    if has_lines(&connection)? {
        return Ok((connection, writes));
    }
    // Nobody stands in line, and nobody holds anything together with others, until somebody makes
    // the tables for that.
    let in_memory = include_str!("lines.sql").replace("IF NOT EXISTS ", "IF NOT EXISTS temp.");
    connection.pragma_update(None, "temp_store", "memory").map_err(translate)?;
    connection.execute_batch(&in_memory).map_err(translate)?;
    Ok((connection, if writes == Writes::Others { Writes::OldAtFirst } else { writes }))
}

/// A database in memory with nothing in it.
fn empty() -> Result<Connection, Error> {
    let connection = Connection::open_in_memory().map_err(translate)?;
    connection.execute_batch(include_str!("schema.sql")).map_err(translate)?;
    connection.execute_batch(include_str!("lines.sql")).map_err(translate)?;
    Ok(connection)
}

/// The file for SQLite, with the word that nobody changes it.
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
