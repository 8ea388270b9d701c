use rusqlite::ffi;

use crate::remote::driver_error::{Done, describe, no_file_can_be_opened};
use crate::{Error, ErrorCode};

/// SQLite's result codes as ours, in one total table.
pub(super) fn translate(source: rusqlite::Error) -> Error {
    if may_lack_files(&source)
        && let Some(description) = no_file_can_be_opened()
    {
        return describe(description, source, false);
    }
    let (code, message, hint) = match &source {
        rusqlite::Error::SqliteFailure(failure, _) => meaning(failure.code),
        // A column that does not hold what we put there.
        _ => (ErrorCode::Internal, "the database does not contain what it should", Some(CHECK)),
    };
    describe((code, message, hint, Done::No), source, false)
}

const CHECK: &str = "check it with `PRAGMA integrity_check`, and restore it from a backup if that fails";

fn meaning(code: ffi::ErrorCode) -> (ErrorCode, &'static str, Option<&'static str>) {
    use ffi::ErrorCode as Sqlite;
    match code {
        Sqlite::DatabaseBusy | Sqlite::DatabaseLocked | Sqlite::FileLockingProtocolFailed => (
            ErrorCode::ServiceUnavailable,
            "another process keeps the database busy",
            Some("look for a process that has the file open in a long transaction"),
        ),
        Sqlite::DiskFull => (ErrorCode::ServiceUnavailable, "the disk is full", Some("make room")),
        Sqlite::SystemIoFailure => {
            (ErrorCode::ServiceUnavailable, "the database file cannot be read or written", Some("check the disk"))
        }
        Sqlite::OutOfMemory => (ErrorCode::ServiceUnavailable, "out of memory", None),
        Sqlite::ReadOnly => (
            ErrorCode::AuthFailed,
            "the database file or its directory is read-only",
            Some("both must be writable, because SQLite keeps a journal beside the file"),
        ),
        Sqlite::PermissionDenied | Sqlite::AuthorizationForStatementDenied => {
            (ErrorCode::AuthFailed, "access to the database file is denied", Some("check its owner and permissions"))
        }
        Sqlite::CannotOpen => (
            ErrorCode::InvalidArgument,
            "the database file cannot be opened",
            Some("its directory must exist and be writable"),
        ),
        Sqlite::NotADatabase => {
            (ErrorCode::InvalidArgument, "the file is not a SQLite database", Some("choose another file"))
        }
        Sqlite::DatabaseCorrupt => (ErrorCode::Internal, "the database is corrupt", Some(CHECK)),
        Sqlite::OperationInterrupted | Sqlite::OperationAborted => {
            (ErrorCode::Aborted, "the operation was interrupted", None)
        }
        // The remaining codes are misuse of the library: a bug here.
        _ => (ErrorCode::Internal, "an unexpected answer of SQLite", None),
    }
}

/// Whether it may have come from a file that could not be opened, which SQLite tells in many ways.
fn may_lack_files(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(code) => matches!(code, ffi::ErrorCode::CannotOpen | ffi::ErrorCode::SystemIoFailure),
        None => matches!(error, rusqlite::Error::InvalidPath(_)),
    }
}

/// Whether a statement failed because a lock id is in use.
pub(super) fn is_unique_violation(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|failure| failure.extended_code == ffi::SQLITE_CONSTRAINT_UNIQUE)
}

/// Whether an operation failed because of what it asked for, or of the row it found, so that the
/// transaction is as if it had not been tried. A failure of SQLite itself may have ended it.
pub(super) fn leaves_transaction_intact(error: &Error) -> bool {
    match std::error::Error::source(error).and_then(|source| source.downcast_ref::<rusqlite::Error>()) {
        Some(source) => source.sqlite_error().is_none(),
        None => true,
    }
}

/// Whether there was no room on the disk.
pub(super) fn is_full(error: &Error) -> bool {
    result_code(error) == Some(ffi::ErrorCode::DiskFull)
}

/// Whether another process was in the way.
pub(super) fn is_busy(error: &Error) -> bool {
    matches!(result_code(error), Some(ffi::ErrorCode::DatabaseBusy | ffi::ErrorCode::DatabaseLocked))
}

fn result_code(error: &Error) -> Option<ffi::ErrorCode> {
    let source = std::error::Error::source(error)?.downcast_ref::<rusqlite::Error>()?;
    source.sqlite_error_code()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_code_has_its_meaning() {
        let meaning = |code| {
            let failure = ffi::Error::new(code);
            let error = translate(rusqlite::Error::SqliteFailure(failure, Some("path /secret".into())));
            assert!(!error.to_string().contains("secret"));
            error.code()
        };
        for (code, expected) in [
            (ffi::SQLITE_BUSY, ErrorCode::ServiceUnavailable),
            (ffi::SQLITE_BUSY_SNAPSHOT, ErrorCode::ServiceUnavailable),
            (ffi::SQLITE_LOCKED, ErrorCode::ServiceUnavailable),
            (ffi::SQLITE_PROTOCOL, ErrorCode::ServiceUnavailable),
            (ffi::SQLITE_FULL, ErrorCode::ServiceUnavailable),
            (ffi::SQLITE_IOERR, ErrorCode::ServiceUnavailable),
            (ffi::SQLITE_IOERR_WRITE, ErrorCode::ServiceUnavailable),
            (ffi::SQLITE_NOMEM, ErrorCode::ServiceUnavailable),
            (ffi::SQLITE_READONLY, ErrorCode::AuthFailed),
            (ffi::SQLITE_READONLY_DIRECTORY, ErrorCode::AuthFailed),
            (ffi::SQLITE_PERM, ErrorCode::AuthFailed),
            (ffi::SQLITE_AUTH, ErrorCode::AuthFailed),
            (ffi::SQLITE_CANTOPEN, ErrorCode::InvalidArgument),
            (ffi::SQLITE_NOTADB, ErrorCode::InvalidArgument),
            (ffi::SQLITE_CORRUPT, ErrorCode::Internal),
            (ffi::SQLITE_INTERRUPT, ErrorCode::Aborted),
            (ffi::SQLITE_MISUSE, ErrorCode::Internal),
            (ffi::SQLITE_SCHEMA, ErrorCode::Internal),
        ] {
            assert_eq!(meaning(code), expected, "result code {code}");
        }
        assert_eq!(translate(rusqlite::Error::QueryReturnedNoRows).code(), ErrorCode::Internal);
    }
}
