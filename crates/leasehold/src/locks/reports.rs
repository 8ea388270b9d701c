use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::sync::lock;

type Report = Box<dyn FnOnce() + Send>;

/// Calls of the user's hooks, which may block: one after the other, on a thread that is there while
/// there are any. Not one of the runtime's, which panics if it can have none.
#[derive(Clone, Default)]
pub(super) struct Reports(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    reports: VecDeque<Report>,
    has_thread: bool,
}

impl Reports {
    /// Has `report` called. What cannot be called for lack of a thread is dropped with a warning.
    pub(super) fn call(&self, report: impl FnOnce() + Send + 'static) {
        let mut waiting = lock(&self.0);
        waiting.reports.push_back(Box::new(report));
        if waiting.has_thread {
            return;
        }
        let reports = self.clone();
        let run = move || {
            while let Some(report) = reports.next() {
                report();
            }
        };
        match thread::Builder::new().name("leasehold-hooks".into()).spawn(run) {
            Ok(_) => waiting.has_thread = true,
            Err(_) => {
                waiting.reports.clear();
                tracing::warn!("there is no thread for the on_release_error hook");
            }
        }
    }

    fn next(&self) -> Option<Report> {
        let mut waiting = lock(&self.0);
        let next = waiting.reports.pop_front();
        waiting.has_thread = next.is_some();
        next
    }
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reports").field("waiting", &lock(&self.0).reports.len()).finish()
    }
}
