//! Two clocks: this host's, which decides, and the server's, which keeps it from deciding wrongly.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use crate::{Error, ErrorCode, TIME_TOLERANCE, Timestamp};

/// A clock that is this far off is worth a warning.
pub(super) const NOTEWORTHY: Duration = Duration::from_millis(500);

/// This host's wall clock, in tests with an error of so many milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WallClock {
    pub(super) ahead_millis: i64,
}

impl WallClock {
    pub(super) fn now(self) -> Timestamp {
        let micros = Timestamp::now().as_micros();
        Timestamp::from_micros(micros.saturating_add_signed(self.ahead_millis.saturating_mul(1000)))
    }
}

/// When a request was sent: by the wall clock, which may be set while the answer is awaited, and by
/// one that may not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    wall: Timestamp,
    at: Instant,
}

impl Sent {
    pub(super) fn now(clocks: &Clocks) -> Self {
        Self { wall: clocks.wall.now(), at: Instant::now() }
    }
}

/// When an answer of the server was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// By the server's clock.
    pub(super) server: Timestamp,
    /// By the clock that is behind: nobody's lock ends too early.
    pub(super) early: Timestamp,
    /// By the clock that is ahead: what is granted or extended is ours for long enough.
    pub(super) late: Timestamp,
    /// By how many microseconds this host's clock is ahead at least; negative if it is behind.
    ahead: i64,
}

/// What is known of this host's clock beside the server's.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    pub(super) wall: WallClock,
    ahead: AtomicI64,
    warned: AtomicBool,
}

impl Clocks {
    pub(super) fn new(wall: WallClock) -> Self {
        Self { wall, ..Self::default() }
    }

    /// The moment of an answer that has just arrived, and that the server made at `server` by its
    /// own clock. Warns once if the clocks are far apart.
    pub(super) fn moment(&self, server: Timestamp, sent: Sent) -> Moment {
        let moment = Moment::new(server, sent.wall, self.wall.now(), sent.at.elapsed());
        self.ahead.store(moment.ahead, Ordering::Relaxed);
        if moment.apart() > NOTEWORTHY && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                milliseconds = moment.ahead / 1000,
                "the clock of this host is not in step with that of the server: beyond a second it gets no locks; \
                 keep it in step, for example with chrony"
            );
        }
        moment
    }

    /// The server's time, as far as it is known.
    pub(super) fn server_now(&self) -> Timestamp {
        Timestamp::from_micros(self.wall.now().as_micros().saturating_add_signed(self.ahead().saturating_neg()))
    }

    /// By how many microseconds this host's clock was ahead at the last answer.
    pub(super) fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }
}

impl Moment {
    /// Of an answer that took `elapsed`, and that this host's clock saw from `sent` to `received`.
    fn new(server: Timestamp, sent: Timestamp, received: Timestamp, elapsed: Duration) -> Self {
        // The same, unless the clock was set in between: then one of the two tells.
        let [ahead, then] = [sent, before(received, elapsed)].map(|sent| ahead(sent, elapsed, server));
        let ahead = if then.abs() > ahead.abs() { then } else { ahead };
        // A clock that is quite wrong must not make locks last for ever.
        let ours = received.clamp(before(server, TIME_TOLERANCE), server + elapsed + TIME_TOLERANCE);
        Self { server, early: ours.min(server), late: ours.max(server), ahead }
    }

    fn apart(&self) -> Duration {
        Duration::from_micros(self.ahead.unsigned_abs())
    }

    /// # Errors
    ///
    /// This host's clock is so far off that other programs, which know no other, may take its locks
    /// for dead, or it theirs.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.apart() <= TIME_TOLERANCE {
            return Ok(());
        }
        let direction = if self.ahead > 0 { "ahead of" } else { "behind" };
        let apart = Duration::from_millis(u64::try_from(self.apart().as_millis()).unwrap_or(u64::MAX));
        let message = format!("the clock of this host is {apart:?} {direction} that of the server");
        Err(Error::new(ErrorCode::Internal, message)
            .with_hint("set it, for example with `chronyc makestep`: locks need it to be right within a second"))
    }
}

/// By how many microseconds a clock is ahead at least that showed `sent` when a request was sent,
/// if the server answered at `server` before `elapsed` had passed; negative if it is behind.
fn ahead(sent: Timestamp, elapsed: Duration, server: Timestamp) -> i64 {
    if sent > server { signed(sent.since(server)) } else { -signed(server.since(sent + elapsed)) }
}

fn before(at: Timestamp, time: Duration) -> Timestamp {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    Timestamp::from_micros(at.as_micros().saturating_sub(micros))
}

fn signed(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }

    #[test]
    fn a_slow_answer_is_no_error_of_the_clock() {
        for server in [10_000, 12_000, 15_000] {
            let moment = Moment::new(at(server), at(10_000), at(15_000), SECOND * 5);
            assert_eq!(moment.ahead, 0);
            moment.check().unwrap();
            assert_eq!((moment.early, moment.late), (at(server), at(15_000)));
        }
    }

    #[test]
    fn the_more_cautious_clock_decides() {
        let ahead = Moment::new(at(10_000), at(10_900), at(10_910), SECOND / 100);
        assert_eq!((ahead.early, ahead.late, ahead.ahead), (at(10_000), at(10_910), 900_000));
        let behind = Moment::new(at(10_000), at(9_090), at(9_100), SECOND / 100);
        assert_eq!((behind.early, behind.late, behind.ahead), (at(9_100), at(10_000), -900_000));
        assert!(ahead.check().is_ok() && behind.check().is_ok());
    }

    #[test]
    fn a_clock_beyond_the_tolerance_is_refused_and_bounded() {
        for (sent, word) in [(3_610_000, "ahead"), (0, "behind")] {
            let moment = Moment::new(at(10_000), at(sent), at(sent) + SECOND / 10, SECOND / 10);
            let error = moment.check().unwrap_err();
            assert!(error.to_string().contains("clock") && error.to_string().contains(word), "{error}");
            assert!(moment.late <= at(10_000) + SECOND * 2 && moment.early + SECOND >= at(10_000), "{moment:?}");
        }
    }

    #[test]
    fn a_clock_that_is_set_while_an_answer_is_awaited_is_found_out_and_bounded() {
        for (received, word) in [(0, "behind"), (3_610_000, "ahead of")] {
            let moment = Moment::new(at(10_000), at(10_000), at(received), SECOND / 10);
            let error = moment.check().unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
            assert!(moment.late <= at(10_000) + SECOND * 2 && moment.early + SECOND >= at(10_000), "{moment:?}");
        }
    }
}
