use std::time::Duration;

use crate::Loss;

/// Records what only the handle can see: how many locks are held, how long callers waited, how long
/// locks were held, which were lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockMetrics {
    on: bool,
}

impl LockMetrics {
    pub(super) fn off() -> Self {
        Self { on: false }
    }
}

#[cfg(feature = "metrics")]
mod recorded {
    use metrics::{counter, gauge, histogram};

    use super::{Duration, LockMetrics, Loss};
    use crate::metric_names::{HELD_LOCKS, HOLD_SECONDS, LOST, STORE_CLOCK_STEPS, WAIT_SECONDS, describe_handle};

    impl LockMetrics {
        pub(in super::super) fn on() -> Self {
            describe_handle();
            Self { on: true }
        }

        pub(in super::super) fn waited(self, time: impl FnOnce() -> Duration, outcome: &'static str) {
            if self.on {
                histogram!(WAIT_SECONDS, "outcome" => outcome).record(time());
            }
        }

        pub(in super::super) fn store_clock_stepped(self, direction: &'static str) {
            if self.on {
                counter!(STORE_CLOCK_STEPS, "direction" => direction).increment(1);
            }
        }

        pub(in super::super) fn begun(self) {
            if self.on {
                gauge!(HELD_LOCKS).increment(1);
            }
        }

        pub(in super::super) fn ended(self, held: impl FnOnce() -> Duration, loss: Loss) {
            if self.on {
                gauge!(HELD_LOCKS).decrement(1);
                histogram!(HOLD_SECONDS).record(held());
                if loss != Loss::Released {
                    counter!(LOST, "reason" => loss.as_str()).increment(1);
                }
            }
        }
    }
}

/// Without the feature nothing is ever recorded.
#[cfg(not(feature = "metrics"))]
mod unrecorded {
    use super::{Duration, LockMetrics, Loss};

    impl LockMetrics {
        pub(in super::super) fn waited(self, _: impl FnOnce() -> Duration, _: &'static str) {
            debug_assert!(!self.on);
        }

        pub(in super::super) fn store_clock_stepped(self, _: &'static str) {}

        pub(in super::super) fn begun(self) {}

        pub(in super::super) fn ended(self, _: impl FnOnce() -> Duration, _: Loss) {}
    }
}
