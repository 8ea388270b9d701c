use std::path::{Path, PathBuf};

use crate::{Error, LockId};

/// A directory beside a database file that is not there yet, for a database that is examined in its
/// place. It is removed with all that is in it.
#[derive(Debug)]
pub(super) struct StandIn {
    directory: PathBuf,
}

impl StandIn {
    /// None if the file is there, or if no directory can be made: then the file itself will tell.
    pub(super) fn of(path: &Path) -> Result<Option<Self>, Error> {
        let beside = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if path.symlink_metadata().is_ok() {
            return Ok(None);
        }
        let directory = beside.join(format!(".leasehold-examine-{}", LockId::random()?.hash_id()));
        Ok(std::fs::create_dir(&directory).is_ok().then_some(Self { directory }))
    }

    pub(super) fn file(&self) -> PathBuf {
        self.directory.join("locks.db")
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
