use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::sync::lock;

/// The databases that are open in this process. A thread owns each of them and closes it when its
/// last handle is gone, a moment after that; until then its log lies beside the file.
pub(super) static OPEN: OpenDatabases = OpenDatabases { count: Mutex::new(0), closed: Condvar::new() };

pub(super) struct OpenDatabases {
    count: Mutex<usize>,
    closed: Condvar,
}

/// Counts a database until it is dropped.
pub(super) struct Counted;

impl OpenDatabases {
    pub(super) fn open(&self) -> Counted {
        *lock(&self.count) += 1;
        Counted
    }

    /// Waits until none is open. Tells whether that came about in time.
    pub(super) fn wait_until_closed(&self, timeout: Duration) -> bool {
        let waited = self.closed.wait_timeout_while(lock(&self.count), timeout, |open| *open > 0);
        let (open, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *open == 0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *lock(&OPEN.count) -= 1;
        OPEN.closed.notify_all();
    }
}
