//! The store of those who name none: the file of this host if root shares it with a group, or else
//! a file of this user's own.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group, Uid, User};
use rustix::fs::{Access, access};

use crate::config::xdg_directory;
use crate::exit::{self, Failure};

/// Where root keeps its locks. Only root can make it, so nobody else can be there first.
pub(crate) const DIRECTORY: &str = "/var/lib/leasehold";

/// The name of the file with the locks.
pub(crate) const FILE: &str = "locks.db";

/// Who uses the default store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Nobody but this user.
    User(String),
    /// Root and a group.
    Group(String),
}

/// The default store of this process.
#[derive(Debug)]
pub(crate) struct DefaultStore {
    pub(crate) file: PathBuf,
    pub(crate) scope: Scope,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::User(user) => write!(f, "for the user {user} alone"),
            Scope::Group(group) => write!(f, "for root and the group {group}"),
        }
    }
}

impl Scope {
    /// What whoever relies on it has to know, if it is narrow.
    pub(crate) fn warning(&self) -> Option<String> {
        match self {
            Scope::User(user) => Some(format!(
                "these locks are for the user {user} alone: other users of this host do not see them, and run all the \
                 same. `leasehold init --group GROUP`, run by root, makes a store for root and a group"
            )),
            Scope::Group(_) => None,
        }
    }
}

impl DefaultStore {
    /// The default store. Makes nothing.
    ///
    /// # Errors
    ///
    /// There is no place for the file, or it is not for us.
    pub(crate) fn find() -> Result<Self, Failure> {
        let user = rustix::process::geteuid();
        let of_host = Path::new(DIRECTORY);
        if let Some(group) = shared_with(of_host) {
            let file = of_host.join(FILE);
            let group = group_name(group);
            if access(&file, Access::READ_OK | Access::WRITE_OK).is_err() {
                let message = format!("the store of this host, {}, is for the group {group}", file.display());
                return Err(Failure::new(exit::NOT_ALLOWED, message)
                    .hint("have yourself added to the group and log in again, or name another store with --store"));
            }
            return Ok(Self { file, scope: Scope::Group(group) });
        }
        let directory = if user.is_root() { of_host.to_owned() } else { directory_of_user()? };
        Ok(Self { file: directory.join(FILE), scope: Scope::User(user_name(user.as_raw())) })
    }

    /// Makes the directory of the file, if it is for us to make.
    ///
    /// # Errors
    ///
    /// It cannot be made or written.
    pub(crate) fn make(&self) -> Result<(), Failure> {
        match (&self.scope, self.file.parent()) {
            (Scope::User(_), Some(directory)) => make(directory),
            _ => Ok(()),
        }
    }
}

/// The group that may use the locks in a directory, if there is one. Whoever is not in it cannot
/// see the file, but that the directory is for a group.
fn shared_with(directory: &Path) -> Option<u32> {
    let group_may = |found: &std::fs::Metadata, bits: u32| (found.mode() & bits == bits).then(|| found.gid());
    match std::fs::metadata(directory.join(FILE)) {
        Ok(file) => group_may(&file, 0o060),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            std::fs::metadata(directory).ok().and_then(|directory| group_may(&directory, 0o050))
        }
        Err(_) => None,
    }
}

fn directory_of_user() -> Result<PathBuf, Failure> {
    let state_home = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    xdg_directory(state_home, std::env::home_dir(), ".local/state")
        .ok_or_else(|| Failure::new(exit::BAD_STORE, "there is no home directory for the locks of this user").hint(SET))
}

const SET: &str =
    "name a store with --store or LEASEHOLD_STORE, or set HOME or XDG_STATE_HOME to a directory of your own";

fn make(directory: &Path) -> Result<(), Failure> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    let usable = made.and_then(|()| access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from));
    usable.map_err(|error| {
        let message = format!("cannot keep locks in {}: {error}", directory.display());
        let code = match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => exit::NOT_ALLOWED,
            _ => exit::BAD_STORE,
        };
        Failure::new(code, message).hint(SET)
    })
}

/// The name of a user, or the number of one without.
fn user_name(id: u32) -> String {
    User::from_uid(Uid::from_raw(id)).ok().flatten().map_or_else(|| id.to_string(), |user| user.name)
}

/// The name of a group, or the number of one without.
pub(crate) fn group_name(id: u32) -> String {
    Group::from_gid(Gid::from_raw(id)).ok().flatten().map_or_else(|| id.to_string(), |group| group.name)
}
