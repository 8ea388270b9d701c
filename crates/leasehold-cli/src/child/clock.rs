//! The time by which a command is stopped.

use std::time::{Duration, Instant};

/// Timers stand still while the machine is suspended, but leases do not. So nothing sleeps for
/// longer than this without looking at the clock.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A clock that goes on while the machine is suspended, where the system has one.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    /// One moment on both clocks of the system.
    start: (Instant, Duration),
    /// What a test adds.
    #[cfg(test)]
    suspended: std::rc::Rc<std::cell::Cell<Duration>>,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self {
            start: (Instant::now(), since_boot()),
            #[cfg(test)]
            suspended: std::rc::Rc::default(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        let (instant, since_boot_then) = self.start;
        let now = instant + since_boot().saturating_sub(since_boot_then);
        #[cfg(test)]
        let now = now + self.suspended.get();
        now
    }

    /// Sleeps until `at`, or for a while: look at the clock then. Cancel-safe.
    pub(super) async fn sleep_towards(&self, at: Instant) {
        tokio::time::sleep(at.saturating_duration_since(self.now()).min(LOOK_EVERY)).await;
    }

    /// The machine was suspended: time has passed, and no timer has moved.
    #[cfg(test)]
    pub(super) fn suspend(&self, time: Duration) {
        self.suspended.set(self.suspended.get() + time);
    }
}

#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Neither is ever negative.
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    static FIRST: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    FIRST.elapsed()
}
