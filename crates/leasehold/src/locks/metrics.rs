use std::time::Duration;

use metrics::{counter, histogram};

use crate::Loss;

/// Records what only the handle can see: how long callers waited, how long locks were held, which were lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockMetrics {
    on: bool,
}

impl LockMetrics {
    pub(super) fn off() -> Self {
        Self { on: false }
    }

    pub(super) fn on() -> Self {
        Self { on: true }
    }

    pub(super) fn waited(self, time: impl FnOnce() -> Duration, outcome: &'static str) {
        if self.on {
            histogram!("leasehold_wait_seconds", "outcome" => outcome).record(time());
        }
    }

    pub(super) fn held(self, time: impl FnOnce() -> Duration) {
        if self.on {
            histogram!("leasehold_hold_seconds").record(time());
        }
    }

    pub(super) fn lost(self, loss: Loss) {
        if self.on {
            counter!("leasehold_lost_total", "reason" => loss.as_str()).increment(1);
        }
    }
}
