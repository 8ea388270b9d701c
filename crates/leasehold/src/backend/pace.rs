use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// How many may come at once: more than a waiter is woken in vain while others are quicker, time
/// after time.
const BURST: u32 = 32;

/// The time between two after that. An idle waiter that a stranger keeps waking looks ten times a
/// second, and a lock that is freed in the middle of it is handed over within a tenth.
const EVERY: Duration = Duration::from_millis(100);

/// Lets some through at once and the rest at an even pace.
pub(super) struct Pace {
    /// When all that came would have come at an even pace.
    worked_off: Option<Instant>,
    /// Ends when the next may come.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { worked_off: None, pause: None }
    }

    /// Ready when the next one may come, which counts it.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            let now = Instant::now();
            let worked_off = self.worked_off.map_or(now, |worked_off| worked_off.max(now));
            let too_early = worked_off.duration_since(now).saturating_sub(EVERY * (BURST - 1));
            if too_early.is_zero() {
                self.worked_off = Some(worked_off + EVERY);
                return Poll::Ready(());
            }
            self.pause = Some(Box::pin(tokio::time::sleep(too_early)));
        }
    }
}
