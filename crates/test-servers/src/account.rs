use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::unistd::{Uid, User, geteuid};

/// Who runs a server that refuses to be run by root: `postgres` or `nobody` if this process is
/// root's, and otherwise whoever runs this process.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// None if it is the one that this process has anyway.
    other: Option<User>,
}

impl Account {
    pub(crate) fn unprivileged() -> io::Result<Self> {
        if !geteuid().is_root() {
            return Ok(Self { other: None });
        }
        for name in ["postgres", "nobody"] {
            if let Some(user) = User::from_name(name)? {
                return Ok(Self { other: Some(user) });
            }
        }
        Err(io::Error::other("there is neither a user postgres nor nobody: apt-get install postgresql"))
    }

    pub(crate) fn uid(&self) -> Uid {
        self.other.as_ref().map_or_else(geteuid, |user| user.uid)
    }

    /// Makes the program run under this account, without any group but its own. The process stays
    /// our child.
    pub(crate) fn run(&self, command: &mut Command) {
        if let Some(user) = &self.other {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
    }

    /// Makes a file or a directory belong to this account.
    pub(crate) fn own(&self, path: &Path) -> io::Result<()> {
        match &self.other {
            Some(user) => chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())),
            None => Ok(()),
        }
    }

    /// Copies a file, with its mode, into a place that this account can read.
    pub(crate) fn copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::copy(from, to)?;
        self.own(to)
    }
}
