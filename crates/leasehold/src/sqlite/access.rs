//! Who may use the files of a database. None of them is opened and closed here if it is there: that
//! would end the locks that SQLite has on it in this process.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::{Error, ErrorCode};

/// Finds out whether the database file may be written, which SQLite would not tell from other
/// troubles. A new file is made for its owner alone: who can read it learns lock ids, and with them
/// can end locks.
pub(super) fn check_or_make(path: &Path, create: bool) -> Result<(), Error> {
    if create && !path.exists() {
        let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        if let Err(error) = made
            && is_denial(&error)
        {
            return Err(denied(error));
        }
    }
    check(path, Access::READ_OK | Access::WRITE_OK)
}

/// Finds out whether the database file is there and may be read.
pub(super) fn is_there(path: &Path) -> Result<bool, Error> {
    match may(path, Access::READ_OK) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(error) if is_denial(&error) => {
            Err(Error::new(ErrorCode::AuthFailed, "the database file may not be read").with_source(error))
        }
        Err(error) => {
            Err(Error::new(ErrorCode::ServiceUnavailable, "the database file cannot be read").with_source(error))
        }
    }
}

/// Finds out whether the log of the database or its index may be used in this way, if it is there.
pub(super) fn check_log(path: &Path, access: Access) -> Result<(), Error> {
    check(path, access).map_err(|error| {
        error.with_hint("have root, or whoever owns the log beside the file, use the store once: then it is for all whom the file is for")
    })
}

/// Finds out whether a file may be used in this way, if it is there.
fn check(path: &Path, access: Access) -> Result<(), Error> {
    match may(path, access) {
        Err(error) if is_denial(&error) => Err(denied(error)),
        // Whatever else is wrong SQLite is about to report.
        _ => Ok(()),
    }
}

fn may(path: &Path, access: Access) -> io::Result<()> {
    accessat(CWD, path, access, AtFlags::EACCESS).map_err(io::Error::from)
}

fn is_denial(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

pub(super) fn denied(error: io::Error) -> Error {
    Error::new(ErrorCode::AuthFailed, "the database file or its directory is read-only or belongs to somebody else")
        .with_hint("both must be writable, because SQLite keeps a journal beside the file")
        .with_source(error)
}

/// Gives a file beside the database to those whom the database is for, as SQLite does when it makes
/// it: it stays, and the database may have been given to others since. Only its owner and root can
/// do so.
#[cfg(target_os = "linux")]
pub(super) fn follow(database: &Path, file: &Path) {
    use std::fs::Permissions;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    use rustix::fs::{Mode, OFlags, openat};

    let Ok(wanted) = std::fs::metadata(database) else { return };
    // Neither opens it, which would matter to its locks, nor follows a link that a stranger may have
    // put there.
    let Ok(place) = openat(CWD, file, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) else { return };
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    let Ok(found) = std::fs::metadata(&path) else { return };
    if !found.is_file() || found.nlink() != 1 {
        return;
    }
    if (found.uid(), found.gid()) != (wanted.uid(), wanted.gid()) {
        let given = chown(&path, Some(wanted.uid()), Some(wanted.gid()));
        let _ = given.or_else(|_| chown(&path, None, Some(wanted.gid())));
    }
    if found.mode() & 0o777 != wanted.mode() & 0o777 {
        let _ = std::fs::set_permissions(&path, Permissions::from_mode(wanted.mode() & 0o777));
    }
}

/// Elsewhere its owner has to do it.
#[cfg(not(target_os = "linux"))]
pub(super) fn follow(_: &Path, _: &Path) {}
