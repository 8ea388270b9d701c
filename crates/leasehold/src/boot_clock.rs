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
        instant + self.since_boot().saturating_sub(since_boot_then)
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

#[cfg(test)]
mod tests {
    use test_support::{eventually, soon};

    use super::*;
    use crate::clock::Clock;
    use crate::memory::Memory;
    use crate::{Guard, LockState, Locks, Loss, TIME_TOLERANCE, Timestamp};

    const TTL: Duration = Duration::from_secs(30);

    /// A lock that is held with a heartbeat, on a machine that can be suspended.
    async fn held() -> (Guard, BootClock) {
        let boot = BootClock::default();
        let clock = Clock::System { started: Instant::now(), at: Timestamp::now(), boot: boot.clone() };
        let locks = Locks::builder(Memory::new()).system_clock(clock).build();
        let guard = locks.lock("k").ttl(TTL).acquire().await.unwrap();
        // The keeper has answered, and goes to sleep: a machine is seldom suspended before that.
        guard.extend(TTL).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        (guard, boot)
    }

    #[tokio::test]
    async fn a_lock_whose_time_passed_while_the_machine_slept_is_lost_when_it_wakes_up() {
        let (guard, boot) = held().await;
        let lease = guard.lease().clone();
        let lost = tokio::spawn(async move { lease.lost().await });
        tokio::task::yield_now().await;
        assert_eq!(guard.state(), LockState::Held);
        boot.suspend(TTL);
        assert_eq!((guard.state(), guard.remaining()), (LockState::Lost, Duration::ZERO));
        assert_eq!(guard.loss(), Some(Loss::Expired));
        assert_eq!(soon("the loss", lost).await.unwrap(), Loss::Expired);
    }

    #[tokio::test]
    async fn whoever_was_asleep_wakes_up_soon_after_the_machine() {
        let boot = BootClock::default();
        let mut asleep = std::pin::pin!(boot.sleep_until(boot.now() + TTL * 10));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(asleep.as_mut().poll(cx).is_pending()));
        assert!(polled.await, "its timer runs");
        boot.suspend(TTL * 10);
        soon("the end of the sleep", asleep).await;
    }

    #[tokio::test]
    async fn a_renewal_that_became_due_while_the_machine_slept_is_made_up_for() {
        let (guard, boot) = held().await;
        boot.suspend(TTL * 5 / 6);
        assert!(guard.remaining() <= TTL / 6);
        eventually("it is renewed", async || guard.remaining() > TTL * 2 / 3).await;
        assert_eq!(guard.state(), LockState::Held);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn it_is_the_clock_that_the_system_counts_its_uptime_with() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            Duration::from_secs_f64(text.split(' ').next().unwrap().parse().unwrap())
        };
        let (before, found, after) = (uptime(), since_boot(), uptime());
        assert!(before <= found && found <= after + TIME_TOLERANCE, "{before:?}, {found:?}, {after:?}");
    }

    #[test]
    fn what_was_slept_is_told() {
        let boot = BootClock::default();
        assert!(boot.suspended() < TIME_TOLERANCE);
        boot.suspend(TTL);
        assert!(boot.suspended().abs_diff(TTL) < TIME_TOLERANCE);
    }
}
