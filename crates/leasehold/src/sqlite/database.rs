use std::cell::Cell;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use rustix::fs::Access;

use super::access;
use super::clock::HostClock;
use super::error::{is_busy, translate};
use super::{SqliteOptions, Synchronous};
use crate::{Error, ErrorCode, Timestamp};

/// The layout of the tables. Raised by every change to them.
const SCHEMA_VERSION: i64 = 1;
/// Marks the file as ours: "leas" as a number.
const APPLICATION_ID: i64 = 0x6c65_6173;
/// The first version whose write-ahead log is free of a bug that could lose a committed
/// transaction.
const OLDEST_SQLITE: i32 = 3_051_003;

/// A log that is longer when the file is closed is written back, so that whoever opens it next need
/// not read so much. Others are left for the next one: that takes two flushes of the disk.
const LONG_LOG: u64 = 1024 * 1024;

/// How long a look at the file is good for.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// An open database file, and the means to notice that it is no longer the one at its path.
pub(super) struct Database {
    pub(super) connection: Connection,
    path: PathBuf,
    /// The file, its log and the log's index, and which files they were when it was opened.
    files: [(PathBuf, Option<Identity>); 3],
    /// When the file at the path was last seen to be this one.
    seen: Cell<Instant>,
    clock: HostClock,
    pub(super) writes: Writes,
}

/// Who writes to a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    /// We do, and others.
    All,
    /// We only look.
    Others,
    /// We only look, and nobody else had it open when we opened it.
    NobodyAtFirst,
    /// We only look, and only older programs had written to it when we opened it.
    OldAtFirst,
}

impl Database {
    pub(super) fn open(path: &Path, options: &SqliteOptions) -> Result<Self, Error> {
        if rusqlite::version_number() < OLDEST_SQLITE {
            return Err(Error::new(ErrorCode::Internal, "this build contains a SQLite that loses transactions")
                .with_hint("use version 3.51.3 or later"));
        }
        check_directory(path)?;
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if options.create {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        access::check_or_make(path, options.create)?;
        for suffix in [LOG, INDEX] {
            let file = beside(path, suffix);
            access::follow(path, &file);
            access::check_log(&file, Access::READ_OK | Access::WRITE_OK)?;
        }
        let mut connection = Connection::open_with_flags(path, flags).map_err(translate)?;
        let clock = prepare_patiently(&mut connection, options)?;
        // SQLite has made those that were not there, and they stay.
        for suffix in [LOG, INDEX] {
            access::follow(path, &beside(path, suffix));
        }
        Ok(Self::new(connection, path, clock, Writes::All))
    }

    pub(super) fn new(connection: Connection, path: &Path, clock: HostClock, writes: Writes) -> Self {
        let files = ["", LOG, INDEX].map(|suffix| {
            let file = beside(path, suffix);
            let identity = identity(&file);
            (file, identity)
        });
        Self { connection, path: path.to_owned(), files, seen: Cell::new(Instant::now()), clock, writes }
    }

    /// Whether the time we go by is still the one that the database says.
    pub(super) fn clock_is_agreed(&self) -> Result<bool, Error> {
        self.clock.is_agreed(&self.connection).map_err(translate)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Fails if the file was deleted or replaced. It would be written to all the same, out of
    /// everybody else's sight. Looks again only after a few milliseconds: people do not delete
    /// files faster, and looking takes as long as a statement.
    pub(super) fn check_identity(&self) -> Result<(), Error> {
        if self.seen.get().elapsed() < LOOK_AGAIN {
            return Ok(());
        }
        if self.files.iter().any(|(file, before)| before.is_some() && identity(file) != *before) {
            return Err(gone());
        }
        self.seen.set(Instant::now());
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let [_, (log, _), _] = &self.files;
        if std::fs::metadata(log).is_ok_and(|found| found.len() > LONG_LOG) {
            // Whoever else uses the file does it later.
            let _ = self.connection.busy_timeout(Duration::ZERO);
            let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        }
    }
}

/// The device and the number of a file.
type Identity = (u64, u64);

/// What SQLite appends to the name of a database for its log, and for the index of the log.
pub(super) const LOG: &str = "-wal";
pub(super) const INDEX: &str = "-shm";

/// The file that belongs to the database at `path` and has its name with `suffix`.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut file = path.as_os_str().to_owned();
    file.push(suffix);
    PathBuf::from(file)
}

fn identity(file: &Path) -> Option<Identity> {
    std::fs::metadata(file).ok().map(|found| (found.dev(), found.ino()))
}

fn gone() -> Error {
    // Trying again does not bring it back.
    Error::new(ErrorCode::Internal, "the database file was deleted or replaced while it was in use")
        .with_hint("locks in the old file are lost; restart the programs that use it")
}

/// What SQLite would report as one and the same "cannot open".
fn check_directory(path: &Path) -> Result<(), Error> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match std::fs::metadata(directory) {
        Ok(found) if found.is_dir() => {}
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(access::denied(error)),
        _ => {
            return Err(Error::new(ErrorCode::InvalidArgument, "the directory of the database file does not exist")
                .with_hint("create it, or choose another file"));
        }
    }
    if path.is_dir() {
        return Err(Error::new(ErrorCode::InvalidArgument, "the database file is a directory"));
    }
    if super::examine::on_network(directory) {
        tracing::warn!("the database file is on a network file system, where SQLite's locks are not reliable");
    }
    Ok(())
}

/// SQLite does not wait for others while it changes the journal of a new file, so processes that
/// start together have to try again.
fn prepare_patiently(connection: &mut Connection, options: &SqliteOptions) -> Result<HostClock, Error> {
    let mut tries = 0;
    loop {
        match prepare(connection, options) {
            Err(error) if is_busy(&error) && tries < 500 => tries += 1,
            outcome => return outcome,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn prepare(connection: &mut Connection, options: &SqliteOptions) -> Result<HostClock, Error> {
    connection.busy_handler(Some(wait_for_others)).map_err(translate)?;
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(translate)?;
    if mode != "wal" {
        return Err(Error::new(ErrorCode::InvalidArgument, "the database file cannot have a write-ahead log")
            .with_hint("put it on a local file system"));
    }
    let synchronous = match options.synchronous {
        Synchronous::Normal => "normal",
        Synchronous::Full => "full",
    };
    connection.pragma_update(None, "synchronous", synchronous).map_err(translate)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(translate)?;
    connection.set_prepared_statement_cache_capacity(64);
    migrate(connection)
}

/// Whether the database has our tables; not if it is empty. Anything else in it is an error.
pub(super) fn has_our_tables(connection: &Connection) -> Result<bool, Error> {
    let pragma = |name| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
    let (version, application) =
        (pragma("user_version").map_err(translate)?, pragma("application_id").map_err(translate)?);
    if version > SCHEMA_VERSION && application == APPLICATION_ID {
        return Err(Error::new(
            ErrorCode::InvalidArgument,
            format!("the database has layout {version}, this program knows layouts up to {SCHEMA_VERSION}"),
        )
        .with_hint("upgrade this program"));
    }
    if application == APPLICATION_ID {
        return Ok(true);
    }
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(translate)?;
    if tables > 0 || application != 0 {
        return Err(Error::new(ErrorCode::InvalidArgument, "the database belongs to another program")
            .with_hint("choose a file of its own for locks"));
    }
    Ok(false)
}

/// Whether the database has the tables of those who hold together or wait. Older programs make it
/// without them.
pub(super) fn has_lines(connection: &Connection) -> Result<bool, Error> {
    let sql = "SELECT count(*) FROM main.sqlite_schema WHERE type = 'table' AND name IN ('grants', 'line')";
    let found: i64 = connection.query_row(sql, [], |row| row.get(0)).map_err(translate)?;
    Ok(found == 2)
}

/// Makes the tables if they are not there. Several processes may try at once; one does it.
fn migrate(connection: &mut Connection) -> Result<HostClock, Error> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(translate)?;
    if !has_our_tables(&transaction)? {
        transaction.execute_batch(include_str!("schema.sql")).map_err(translate)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(translate)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION).map_err(translate)?;
    }
    // Programs that do not know these tables find placeholders in the one they know, so that the
    // layout is still the same for them.
    if !has_lines(&transaction)? {
        transaction.execute_batch(include_str!("lines.sql")).map_err(translate)?;
    }
    let clock = HostClock::agree(&transaction)?;
    transaction.commit().map_err(translate)?;
    Ok(clock)
}

/// Transactions of other processes take microseconds, so the first looks are close together. Gives
/// up after some five seconds.
pub(super) fn wait_for_others(looks: i32) -> bool {
    let pause = if looks < 20 { Duration::from_micros(50) } else { Duration::from_millis(1) };
    std::thread::sleep(pause);
    looks < 5000
}
