//! When a command must be told to stop, and when it must be dead.

use std::time::{Duration, Instant};

use leasehold::Ttl;

/// The least time between the kill and the end of the lease, so that the kill is done by then.
const KILL_MARGIN: Duration = Duration::from_millis(200);

/// The most grace for a command whose lock is gone already. It ends within the tolerance that keeps
/// others out after a lease has run out.
const LATE_GRACE: Duration = Duration::from_millis(500);

/// The rules by which a command is stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    grace: Duration,
    /// The shortest that the lease can be: its ttl or the longest hold.
    lease: Duration,
}

impl Rules {
    pub(super) fn new(grace: Duration, ttl: Duration, max_hold: Option<Duration>) -> Self {
        Self { grace, lease: max_hold.map_or(ttl, |time| time.min(ttl)) }
    }

    pub(super) fn grace(&self) -> Duration {
        self.grace
    }

    /// How long before the end of the lease the command is told to stop: never while the lease is
    /// healthy.
    fn notice(&self) -> Duration {
        self.grace.min(self.lease / Ttl::RENEWALS)
    }

    /// When to tell the command to stop if the lease is not renewed and ends at `deadline`.
    pub(super) fn stop_at(&self, deadline: Instant) -> Instant {
        deadline.checked_sub(self.notice()).unwrap_or(deadline)
    }

    /// When a command that was told to stop at `told_to_stop` must be killed so that it is dead
    /// when its lease ends.
    pub(super) fn kill_at(&self, told_to_stop: Instant, deadline: Instant) -> Instant {
        let margin = KILL_MARGIN.min(self.lease / 20);
        (told_to_stop + self.grace).min(deadline.checked_sub(margin).unwrap_or(deadline)).max(told_to_stop)
    }

    /// When a command must be killed if its lock turned out at `noticed` to be gone. If the lease
    /// ended a while ago, others may have the lock by now: at once then.
    pub(super) fn kill_late_at(&self, noticed: Instant, deadline: Instant) -> Instant {
        (noticed + self.grace.min(LATE_GRACE)).min(deadline + LATE_GRACE).max(noticed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_grace_fits_inside_the_last_third_of_the_lease() {
        let start = Instant::now();
        for (grace, ttl, max_hold, notice) in
            [(10, 30, None, 10), (5, 30, None, 5), (60, 30, None, 10), (10, 30, Some(6), 2), (0, 30, None, 0)]
        {
            let rules = Rules::new(secs(grace), secs(ttl), max_hold.map(secs));
            assert_eq!(rules.stop_at(start + secs(ttl)), start + secs(ttl) - secs(notice));
        }
    }

    #[test]
    fn the_kill_comes_before_the_lease_ends_and_not_before_the_notice() {
        let start = Instant::now();
        let deadline = start + secs(30);
        let rules = Rules::new(secs(60), secs(30), None);
        assert_eq!(rules.kill_at(start + secs(20), deadline), deadline - KILL_MARGIN);
        assert_eq!(rules.kill_at(deadline, deadline), deadline);
        let rules = Rules::new(secs(2), secs(30), None);
        assert_eq!(rules.kill_at(start, deadline), start + secs(2));
        let short = Rules::new(secs(2), Duration::from_millis(100), None);
        assert_eq!(short.kill_at(start, start + Duration::from_millis(100)), start + Duration::from_millis(95));
    }

    #[test]
    fn a_lock_that_is_gone_leaves_half_a_second_and_a_lease_long_over_leaves_nothing() {
        let start = Instant::now();
        let rules = Rules::new(secs(10), secs(30), None);
        assert_eq!(rules.kill_late_at(start, start + secs(20)), start + LATE_GRACE, "stolen");
        assert_eq!(rules.kill_late_at(start, start), start + LATE_GRACE, "just run out");
        assert_eq!(rules.kill_late_at(start + secs(9), start), start + secs(9), "run out while we were stopped");
        let hasty = Rules::new(Duration::ZERO, secs(30), None);
        assert_eq!(hasty.kill_late_at(start, start + secs(20)), start);
    }
}
