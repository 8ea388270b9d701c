use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::core::Core;
use crate::backend::Acquire;
use crate::sync::lock;
use crate::{TIME_TOLERANCE, Timestamp};

/// Clocks that are kept in step drift apart by no more than this part of the time that passes: as
/// fast as a clock is slewed.
const DRIFT: i64 = 2000;

/// The store's clock as the handle sees it: how far it is ahead of the handle's own, which never
/// steps. Every answer of the store tells its time, so a step shows with the next one.
#[derive(Debug)]
pub(super) struct StoreClock {
    started: Instant,
    known: Mutex<Option<Known>>,
}

/// By how many microseconds the store's clock is ahead: between the two, both included.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    least: i64,
    most: i64,
}

#[derive(Debug)]
struct Known {
    ahead: Ahead,
    /// When it was known, on the handle's clock.
    at: i64,
    /// What was sent before this was perhaps answered before the last step.
    since: i64,
    /// For how long the machine had been suspended when the last step was looked at.
    suspended: Duration,
}

/// A step of the store's clock, or a drift that is as bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Forward(Duration),
    Back(Duration),
}

impl Step {
    fn new(micros: i64) -> Option<Self> {
        let size = Duration::from_micros(micros.unsigned_abs());
        let step = if micros > 0 { Self::Forward(size) } else { Self::Back(size) };
        (size > TIME_TOLERANCE).then_some(step)
    }

    pub(super) fn direction(self) -> &'static str {
        match self {
            Step::Forward(_) => "forward",
            Step::Back(_) => "back",
        }
    }

    fn size(self) -> Duration {
        match self {
            Step::Forward(size) | Step::Back(size) => size,
        }
    }
}

impl Ahead {
    fn widened(self, by: i64) -> Self {
        Self { least: self.least - by, most: self.most + by }
    }

    /// By how much `other` is beyond these bounds; zero if the two have something in common.
    fn distance_to(self, other: Self) -> i64 {
        if other.least > self.most { other.least - self.most } else { (other.most - self.least).min(0) }
    }

    fn narrowed_by(self, other: Self) -> Self {
        Self { least: self.least.max(other.least), most: self.most.min(other.most) }
    }
}

impl StoreClock {
    pub(super) fn new(started: Instant) -> Self {
        Self { started, known: Mutex::new(None) }
    }

    /// Takes note that the store's clock showed `time`, in whole milliseconds, at some moment
    /// between `sent` and `answered`. Tells if that is not where it should be.
    ///
    /// A drift is followed: only what happens between two answers counts.
    fn note(
        &self,
        time: Timestamp,
        sent: Instant,
        answered: Instant,
        suspended: impl FnOnce() -> Duration,
    ) -> Option<Step> {
        let (sent, answered) = (self.micros(sent), self.micros(answered));
        let time = signed(u128::from(time.as_millis()) * 1000);
        let heard = Ahead { least: time - answered, most: time + 999 - sent };
        let mut guard = lock(&self.known);
        let Some(known) = &mut *guard else {
            *guard = Some(Known { ahead: heard, at: answered, since: sent, suspended: suspended() });
            return None;
        };
        if sent < known.since {
            return None;
        }
        let expected = known.ahead.widened((answered - known.at).max(0) / DRIFT);
        let distance = expected.distance_to(heard);
        known.at = known.at.max(answered);
        if distance == 0 {
            known.ahead = expected.narrowed_by(heard);
            return None;
        }
        known.ahead = heard;
        let step = Step::new(distance)?;
        known.since = answered;
        let slept = std::mem::replace(&mut known.suspended, suspended());
        let slept = known.suspended.saturating_sub(slept);
        // A store of this machine whose clock stood still while the machine was suspended.
        let stood_still = matches!(step, Step::Back(size) if size.abs_diff(slept) <= TIME_TOLERANCE);
        (!stood_still).then_some(step)
    }

    /// The earliest moment at which the store's clock can show `time`.
    pub(super) fn earliest(&self, time: Timestamp) -> Option<Instant> {
        let most = lock(&self.known).as_ref()?.ahead.most;
        let micros = signed(u128::from(time.as_micros())).saturating_sub(most);
        Some(self.started + Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
    }

    /// The latest time that the store's clock can show at `now`.
    pub(super) fn latest(&self, now: Instant) -> Option<Timestamp> {
        let most = lock(&self.known).as_ref()?.ahead.most;
        Some(Timestamp::from_micros(u64::try_from(self.micros(now).saturating_add(most)).unwrap_or(0)))
    }

    /// A moment of the handle's clock.
    fn micros(&self, at: Instant) -> i64 {
        match at.checked_duration_since(self.started) {
            Some(after) => signed(after.as_micros()),
            None => -signed(self.started.duration_since(at).as_micros()),
        }
    }
}

fn signed(micros: u128) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

impl Core {
    /// Takes note of the store's time in the answer to an acquire that was sent at `sent`, and of
    /// which no try was sent before `first_sent`.
    pub(super) fn heard_from_acquire(&self, answer: &Acquire, first_sent: Instant, sent: Instant) {
        match answer {
            // A lost grant may have been found again.
            Acquire::Granted(grant) => self.heard(grant.acquired_at, first_sent),
            Acquire::Held(contention) => self.heard(contention.now, sent),
        }
    }

    /// Takes note of the store's time in an answer that has just arrived. If the store's clock was
    /// set, leases may have ended early: all holds are verified.
    pub(super) fn heard(&self, time: Timestamp, sent: Instant) {
        let suspended = || self.settings.clock.suspended();
        let Some(step) = self.store_clock.note(time, sent, self.now(), suspended) else { return };
        tracing::warn!(
            direction = step.direction(),
            seconds = step.size().as_secs_f64(),
            "the clock of the store was set: locks end too early or too late, and all locks held here are verified"
        );
        self.settings.metrics.store_clock_stepped(step.direction());
        self.verify_all();
    }

    /// Has the keeper ask the store for every hold.
    fn verify_all(&self) {
        let now = self.now();
        let held = self.held();
        held.iter().for_each(|hold| hold.clock_stepped(now));
        self.look_again_at_all(&held, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A store and a handle, each with a clock, and a network that takes time.
    struct World {
        clock: StoreClock,
        now: Instant,
        store: Timestamp,
        suspended: Duration,
    }

    impl World {
        fn new() -> Self {
            let now = Instant::now();
            let store = Timestamp::from_millis(1_700_000_000_000);
            Self { clock: StoreClock::new(now), now, store, suspended: Duration::ZERO }
        }

        fn pass(&mut self, time: Duration) {
            self.now += time;
            self.store = self.store + time;
        }

        /// A request whose way takes so long there and back.
        fn ask(&mut self, there: Duration, back: Duration) -> Option<Step> {
            let sent = self.now;
            self.pass(there);
            let time = self.store;
            self.pass(back);
            self.clock.note(time, sent, self.now, || self.suspended)
        }

        fn set_back(&mut self, time: Duration) {
            self.store = Timestamp::from_micros(self.store.as_micros() - u64::try_from(time.as_micros()).unwrap());
        }
    }

    #[test]
    fn steps_are_told_once_with_their_direction_and_size() {
        let mut world = World::new();
        assert_eq!(world.ask(SECOND / 10, SECOND / 10), None);
        world.store = world.store + SECOND * 3600;
        let step = world.ask(SECOND / 100, SECOND / 100).unwrap();
        assert!(matches!(step, Step::Forward(size) if size.abs_diff(SECOND * 3600) < SECOND), "{step:?}");
        assert_eq!(world.ask(SECOND / 100, SECOND / 100), None);
        world.set_back(SECOND * 5);
        let step = world.ask(SECOND / 100, SECOND / 100).unwrap();
        assert!(matches!(step, Step::Back(size) if size.abs_diff(SECOND * 5) < SECOND), "{step:?}");
        assert_eq!(world.ask(SECOND / 100, SECOND / 100), None);
    }

    #[test]
    fn slow_answers_and_slow_drift_are_no_steps() {
        let mut world = World::new();
        for round in 0..200u32 {
            let (there, back) = if round % 2 == 0 { (SECOND * 4, SECOND / 100) } else { (SECOND / 100, SECOND * 4) };
            assert_eq!(world.ask(there, back), None, "{round}");
            world.store = world.store + SECOND / 2;
        }
        world.pass(SECOND * 3600 * 24 * 30);
        world.store = world.store + SECOND * 300;
        assert_eq!(world.ask(SECOND / 100, SECOND / 100), None, "a month of drift");
    }

    #[test]
    fn an_answer_from_before_the_step_that_comes_after_it_is_not_another_step() {
        let mut world = World::new();
        assert_eq!(world.ask(SECOND / 100, SECOND / 100), None);
        let (sent, before) = (world.now, world.store);
        world.store = world.store + SECOND * 60;
        world.pass(SECOND);
        assert!(world.ask(SECOND / 100, SECOND / 100).is_some());
        assert_eq!(world.clock.note(before, sent, world.now, || Duration::ZERO), None);
        assert_eq!(world.ask(SECOND / 100, SECOND / 100), None);
    }

    #[test]
    fn a_clock_that_stood_still_with_the_machine_was_not_set() {
        let mut world = World::new();
        assert_eq!(world.ask(SECOND / 100, SECOND / 100), None);
        world.now += SECOND * 600;
        world.suspended += SECOND * 600;
        assert_eq!(world.ask(SECOND / 100, SECOND / 100), None);
        world.set_back(SECOND * 600);
        assert!(world.ask(SECOND / 100, SECOND / 100).is_some());
    }

    #[test]
    fn an_expiry_is_never_taken_for_later_than_it_is() {
        let mut world = World::new();
        assert_eq!(world.ask(SECOND, SECOND), None);
        let end = world.clock.earliest(world.store + SECOND * 30).unwrap();
        assert!(end <= world.now + SECOND * 30 && end + SECOND * 2 >= world.now + SECOND * 30, "{end:?}");
    }
}
