//! How far the measurement is.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::reporter::Reporter;

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// What is going on.
#[derive(Debug, Default)]
pub(crate) struct Live(Mutex<State>);

#[derive(Clone, Copy, Debug)]
struct State {
    what: &'static str,
    time: Duration,
    since: Instant,
    count: u64,
    last: Instant,
}

impl Default for State {
    fn default() -> Self {
        let now = Instant::now();
        Self { what: "", time: Duration::ZERO, since: now, count: 0, last: now }
    }
}

impl Live {
    /// From now on this is done, for so long.
    pub(super) fn begin(&self, what: &'static str, time: Duration) {
        *self.state() = State { what, time, ..State::default() };
    }

    /// It was done once more.
    pub(super) fn count(&self) {
        let mut state = self.state();
        state.count += 1;
        state.last = Instant::now();
    }

    /// For how long nothing was done.
    pub(super) fn silence(&self) -> Duration {
        self.state().last.elapsed()
    }

    fn line(&self) -> String {
        let State { what, time, since, count, .. } = *self.state();
        let (passed, time) = (since.elapsed().min(time).as_secs_f64(), time.as_secs_f64());
        format!("{what}: {count} times, {passed:.1} of {time:.1} s")
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows it, again and again.
pub(crate) async fn progress(reporter: &Reporter, live: Arc<Live>) -> Infallible {
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        looks.tick().await;
        reporter.progress(&live.line());
    }
}
