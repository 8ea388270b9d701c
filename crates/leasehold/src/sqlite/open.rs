use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::Error;
use crate::process::Process;
use crate::sync::lock;

/// The databases that are open in this process. A thread owns each of them and closes it when its
/// last handle is gone, a moment after that; until then its log lies beside the file.
pub(super) static OPEN: OpenDatabases =
    OpenDatabases { open: Mutex::new(Open { count: 0, process: None }), closed: Condvar::new() };

pub(super) struct OpenDatabases {
    open: Mutex<Open>,
    closed: Condvar,
}

struct Open {
    count: usize,
    /// Where the last one was opened.
    process: Option<Process>,
}

/// Counts a database until it is dropped.
pub(super) struct Counted;

impl OpenDatabases {
    /// # Errors
    ///
    /// `InvalidArgument` in a fork of a process that had one open. SQLite believes that the locks
    /// on its files are shared by all connections of a process, and the fork has its memory but not
    /// its locks: a connection there could damage the file.
    pub(super) fn open(&self) -> Result<Counted, Error> {
        let mut open = lock(&self.open);
        if open.count > 0 && open.process.as_ref().is_some_and(|process| !process.is_current()) {
            return Err(Error::invalid("a database was open when this process was forked")
                .with_hint("fork before the first database is opened, or start a program in the child"));
        }
        open.count += 1;
        open.process = Some(Process::current());
        Ok(Counted)
    }

    /// Waits until none is open. Tells whether that came about in time.
    pub(super) fn wait_until_closed(&self, timeout: Duration) -> bool {
        let waited = self.closed.wait_timeout_while(lock(&self.open), timeout, |open| open.count > 0);
        let (open, _) = waited.unwrap_or_else(PoisonError::into_inner);
        open.count == 0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        lock(&OPEN.open).count -= 1;
        OPEN.closed.notify_all();
    }
}
