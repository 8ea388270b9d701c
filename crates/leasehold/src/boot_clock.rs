//! A clock that goes on while the machine is suspended.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Timers stand still while the machine is suspended. So nothing sleeps for longer than this
/// without looking at the clock, and a deadline that passed meanwhile is noticed soon after.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The moment from which the time is counted, on both clocks of the system.
static START: LazyLock<(Instant, Duration)> = LazyLock::new(|| (Instant::now(), since_boot()));

/// The time since the machine was booted, with that for which it was suspended. Where the system
/// cannot tell that, it is the monotonic clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct BootClock {
    /// What a test adds.
    #[cfg(test)]
    suspended: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl BootClock {
    pub(crate) fn now(&self) -> Instant {
        let (instant, since_boot_then) = *START;
        instant + (self.since_boot() - since_boot_then)
    }

    /// For how long the machine was suspended since this program asked first.
    pub(crate) fn suspended(&self) -> Duration {
        // Read one after the other: a little less than it is, if anything.
        let now = self.now();
        now.saturating_duration_since(Instant::now())
    }

    pub(crate) async fn sleep_until(&self, at: Instant) {
        loop {
            let left = at.saturating_duration_since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LOOK_EVERY)).await;
        }
    }

    #[cfg(not(test))]
    fn since_boot(&self) -> Duration {
        since_boot()
    }

    #[cfg(test)]
    fn since_boot(&self) -> Duration {
        since_boot() + Duration::from_millis(self.suspended.load(std::sync::atomic::Ordering::Acquire))
    }

    /// The machine was suspended: time has passed, and no timer has moved.
    #[cfg(test)]
    pub(crate) fn suspend(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap();
        self.suspended.fetch_add(millis, std::sync::atomic::Ordering::AcqRel);
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
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    FIRST.elapsed()
}
