use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;

use super::settings::ReleaseFailure;
use crate::sync::lock;
use crate::{Error, Key, LockId};

/// What is called when a release failed and there is no caller to tell.
pub(super) type OnReleaseError = Arc<dyn Fn(&ReleaseFailure<'_>) + Send + Sync>;

/// The releases that failed where no caller could be told, on their way to the hook. The hook is
/// the user's, and may block: it is called on a thread that is there only for that, one call after
/// the other.
pub(super) struct Reports {
    hook: OnReleaseError,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Report>,
    has_thread: bool,
}

struct Report {
    key: Key,
    lock_id: LockId,
    error: Error,
}

impl Reports {
    pub(super) fn new(hook: OnReleaseError) -> Arc<Self> {
        Arc::new(Self { hook, queue: Mutex::default() })
    }

    /// Reports one release.
    pub(super) fn add(self: &Arc<Self>, key: &Key, lock_id: &LockId, error: Error) {
        let mut queue = lock(&self.queue);
        queue.waiting.push_back(Report { key: key.clone(), lock_id: *lock_id, error });
        if queue.has_thread {
            return;
        }
        let reports = self.clone();
        match thread::Builder::new().name("leasehold-report".into()).spawn(move || reports.call_hook()) {
            Ok(_) => queue.has_thread = true,
            Err(error) => {
                tracing::warn!(%error, "there is no thread for the on_release_error hook: it is called later");
            }
        }
    }

    /// Reports what found no thread, on this one.
    pub(super) fn finish(&self) {
        if !lock(&self.queue).has_thread {
            self.call_hook();
        }
    }

    fn call_hook(&self) {
        while let Some(Report { key, lock_id, error }) = self.next() {
            let failure = ReleaseFailure { key: &key, lock_id: &lock_id, error: &error };
            if catch_unwind(AssertUnwindSafe(|| (self.hook)(&failure))).is_err() {
                tracing::warn!("the on_release_error hook panicked");
            }
        }
    }

    fn next(&self) -> Option<Report> {
        let mut queue = lock(&self.queue);
        let next = queue.waiting.pop_front();
        queue.has_thread = next.is_some();
        next
    }
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reports")
    }
}
