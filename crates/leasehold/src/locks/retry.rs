use std::time::Duration;

/// How often and how long an acquire that was not told otherwise tries.
///
/// On stores that push wake-ups a waiter sleeps until it is woken, and only the `timeout` matters
/// in practice; the delays are what polling and failing stores get.
///
/// ```
/// use std::time::Duration;
/// use leasehold::Retry;
///
/// let patient = Retry::default().with_timeout(Duration::from_secs(60)).with_max_retries(u32::MAX);
/// assert_eq!(patient.delay, Duration::from_millis(100));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// The most times to try again because a delay passed; tries caused by a wake-up are not
    /// counted, nor those that keep a place in line. 10 by default.
    pub max_retries: u32,
    /// The delay before the first retry. 100 ms by default.
    pub delay: Duration,
    /// No delay grows beyond this. 2 s by default.
    pub max_delay: Duration,
    /// How the delay grows. Exponentially by default.
    pub backoff: Backoff,
    /// How much chance there is in each delay. Half of it by default.
    pub jitter: Jitter,
    /// The longest to wait in all. 5 s by default.
    pub timeout: Duration,
}

/// How the delay between tries grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backoff {
    /// Twice as long each time.
    Exponential,
    /// Always the same.
    Fixed,
}

/// How much chance there is in a delay, so that many clients that failed together do not come back
/// together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Jitter {
    /// Half the delay is certain, the other half is left to chance.
    Equal,
    /// Anything up to the delay.
    Full,
    /// Exactly the delay.
    None,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            max_retries: 10,
            delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(2),
            backoff: Backoff::Exponential,
            jitter: Jitter::Equal,
            timeout: Duration::from_secs(5),
        }
    }
}

impl Retry {
    /// The most times to try again because a delay passed.
    #[must_use]
    pub fn with_max_retries(mut self, max_retries: u32) -> Self {
        self.max_retries = max_retries;
        self
    }

    /// The delay before the first retry.
    #[must_use]
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// No delay grows beyond this.
    #[must_use]
    pub fn with_max_delay(mut self, max_delay: Duration) -> Self {
        self.max_delay = max_delay;
        self
    }

    /// How the delay grows.
    #[must_use]
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// How much chance there is in each delay.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The longest to wait in all.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The delay before the retry that comes after `earlier` other retries.
    pub(super) fn delay_after(&self, earlier: u32) -> Duration {
        let full = match self.backoff {
            Backoff::Exponential => self.delay.saturating_mul(1u32.checked_shl(earlier).unwrap_or(u32::MAX)),
            Backoff::Fixed => self.delay,
        };
        let full = full.min(self.max_delay);
        match self.jitter {
            Jitter::Equal => full / 2 + full.mul_f64(fastrand::f64() / 2.0),
            Jitter::Full => full.mul_f64(fastrand::f64()),
            Jitter::None => full,
        }
    }
}

/// How long a request waits for a lock that somebody else holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    /// As the retry settings say.
    AsRetry,
    /// At most this long, however many tries it takes.
    AtMost(Duration),
    /// Until it is ours.
    Forever,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_limit_with_half_of_each_left_to_chance() {
        let retry = Retry::default();
        for (earlier, full) in [(0, 100), (1, 200), (2, 400), (4, 1600), (5, 2000), (31, 2000), (200, 2000)] {
            for _ in 0..50 {
                let delay = retry.delay_after(earlier).as_millis();
                assert!((full / 2..=full).contains(&delay), "{delay} ms after {earlier} retries");
            }
        }
    }

    #[test]
    fn delays_without_jitter_are_exact_and_fixed_ones_do_not_grow() {
        let retry = Retry { jitter: Jitter::None, ..Retry::default() };
        assert_eq!(retry.delay_after(2), Duration::from_millis(400));
        let retry = Retry { backoff: Backoff::Fixed, ..retry };
        assert_eq!(retry.delay_after(9), Duration::from_millis(100));
    }

    #[test]
    fn full_jitter_stays_below_the_delay_and_varies() {
        let retry = Retry { jitter: Jitter::Full, ..Retry::default() };
        let delays: Vec<_> = (0..50).map(|_| retry.delay_after(3)).collect();
        assert!(delays.iter().all(|delay| *delay <= Duration::from_millis(800)));
        assert!(delays.iter().any(|delay| delay != &delays[0]));
    }
}
