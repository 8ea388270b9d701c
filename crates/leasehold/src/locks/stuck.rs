use std::time::{Duration, Instant};

use crate::{Contention, Fence, Steal};

/// For how long a waiter has seen one and the same grant in its way, by its own clock. A fence
/// identifies a grant, so this is how long the lock was held at least, whatever the store's clock
/// says.
#[derive(Debug)]
pub(super) struct StuckGrant {
    /// The time after which a holder counts as stuck.
    limit: Option<Duration>,
    seen: Option<(Fence, Instant)>,
}

impl StuckGrant {
    pub(super) fn new(steal: Steal) -> Self {
        Self { limit: steal.held_longer_than(), seen: None }
    }

    /// Takes note of who was in the way at `now`.
    pub(super) fn see(&mut self, contention: &Contention, now: Instant) {
        if self.seen.map(|(fence, _)| fence) != contention.fence {
            self.seen = contention.fence.map(|fence| (fence, now));
        }
    }

    /// The grant that has been in the way for longer than the limit.
    pub(super) fn fence(&self, now: Instant) -> Option<Fence> {
        let (fence, since) = self.seen?;
        (now.saturating_duration_since(since) > self.limit?).then_some(fence)
    }

    /// How long until the lock may be stolen at the latest, by one of the two clocks, as far as
    /// that is known.
    pub(super) fn stealable_in(&self, contention: &Contention, now: Instant) -> Duration {
        let Some(limit) = self.limit else { return Duration::MAX };
        let seen_for = self.seen.map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(since));
        let left = limit.saturating_sub(contention.held_for().max(seen_for));
        // We were refused although the oldest may be taken: others are in the way as well, or the
        // lock is kept for the first in line.
        if left.is_zero() && contention.holders != 1 { Duration::MAX } else { left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    const LIMIT: Duration = Duration::from_secs(60);

    fn contention(fence: Option<u64>) -> Contention {
        let at = Timestamp::from_millis(1_700_000_000_000);
        let fence = fence.map(|fence| Fence::new(fence).unwrap());
        Contention::new(None, at, at + LIMIT, at).with_fence(fence)
    }

    #[test]
    fn only_one_and_the_same_grant_adds_up() {
        let started = Instant::now();
        let mut stuck = StuckGrant::new(Steal::NEVER.with_held_longer_than(LIMIT));
        let mut see = |second: u64, fence| {
            let now = started + Duration::from_secs(second);
            stuck.see(&contention(fence), now);
            (stuck.fence(now).map(Fence::get), stuck.stealable_in(&contention(fence), now).as_secs())
        };
        assert_eq!(see(0, Some(1)), (None, 60));
        assert_eq!(see(59, Some(1)), (None, 1));
        assert_eq!(see(61, Some(2)), (None, 60), "another grant");
        assert_eq!(see(121, Some(2)), (None, 0), "not longer than the limit");
        assert_eq!(see(122, Some(2)), (Some(2), 0));
        assert_eq!(see(123, None), (None, 60), "nobody knows which grant");
        assert_eq!(see(300, None), (None, 60));
        assert_eq!(see(301, Some(2)), (None, 60));
    }

    #[test]
    fn who_cannot_take_the_oldest_alone_does_not_ask_for_it_without_end() {
        let stuck = StuckGrant::new(Steal::NEVER.with_held_longer_than(LIMIT));
        let at = Timestamp::from_millis(1_700_000_000_000);
        let left = |held: u64, holders| {
            let now = at + Duration::from_secs(held);
            let seen = Contention::new(None, at, at + LIMIT * 2, now).with_holders(holders);
            stuck.stealable_in(&seen, Instant::now())
        };
        assert_eq!(left(50, 1), Duration::from_secs(10));
        assert_eq!(left(50, 2), Duration::from_secs(10), "one of them may be enough");
        assert_eq!(left(61, 1), Duration::ZERO);
        assert_eq!(left(61, 2), Duration::MAX);
        assert_eq!(left(61, 0), Duration::MAX);
    }

    #[test]
    fn without_a_limit_nothing_is_stuck() {
        let started = Instant::now();
        let mut stuck = StuckGrant::new(Steal::NEVER.with_same_holder());
        stuck.see(&contention(Some(1)), started);
        let late = started + LIMIT * 1000;
        assert_eq!((stuck.fence(late), stuck.stealable_in(&contention(Some(1)), late)), (None, Duration::MAX));
    }
}
