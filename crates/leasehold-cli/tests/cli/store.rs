use std::path::{Path, PathBuf};

/// How often each of many processes takes a lock.
pub(crate) const TURNS: usize = 50;

/// How long the lock of a killed holder lasts, but for the tolerance.
pub(crate) const SHORT_TTL: &str = "300ms";

/// Locks in a file of the test's directory.
pub(crate) struct Store {
    file: PathBuf,
}

impl Store {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { file: directory.join("locks.db") }
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.file.display())
    }

    /// The URL as the command may see it.
    pub(crate) fn public_url(&self) -> String {
        self.url()
    }
}
