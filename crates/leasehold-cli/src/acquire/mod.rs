//! Getting locks while telling who has them, and giving up when asked to.

mod refused;
mod request;
mod seen;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Error, ErrorCode, Holder, Key, Locks, Metadata};
use tokio::time::Instant;

pub(crate) use refused::Refused;
pub(crate) use seen::Obstacle;

use self::request::Request;
use self::seen::Seen;
use crate::event;
use crate::exit::Failure;
use crate::granted::Granted;
use crate::held::{self, Around};
use crate::options::LockOptions;
use crate::reporter::Reporter;
use crate::signals::{Signal, Signals};
use crate::store::Store;

/// After how much waiting we say that we still wait. In the end it is said again and again, with
/// the last of these between two messages.
const REPORTS: [Duration; 4] =
    [Duration::from_secs(10), Duration::from_secs(30), Duration::from_secs(60), Duration::from_secs(300)];

/// The time after which the next message is due for somebody who has waited for `waited`.
fn next_report(waited: Duration) -> Duration {
    let last = REPORTS[REPORTS.len() - 1];
    let number = u32::try_from(waited.as_secs() / last.as_secs()).unwrap_or(u32::MAX);
    REPORTS.into_iter().find(|time| *time > waited).unwrap_or(last.saturating_mul(number.saturating_add(1)))
}

/// How long to put up with a store that fails from the start. One that answered once is waited for.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause before such a store is tried again.
const STORE_PAUSE: Duration = Duration::from_millis(250);

/// What to ask for.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// One, or several that are taken together.
    pub(crate) keys: &'a [Key],
    pub(crate) store: &'a Store,
    pub(crate) options: &'a LockOptions,
    pub(crate) holder: Holder,
    pub(crate) metadata: Metadata,
    pub(crate) max_hold: Option<Duration>,
    /// When the waiting began.
    pub(crate) since: Instant,
}

/// How asking ended.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The locks are ours.
    Granted(Granted),
    /// They are not.
    Refused(Refused),
    /// A signal came first. Nothing is held, and no place in line is kept.
    Stopped(Signal),
}

/// What is known of a wait for a store that fails.
#[derive(Debug, Default)]
struct WaitingForStore {
    tries: u32,
    /// When to say again that we wait.
    due: Option<Instant>,
}

impl Wanted<'_> {
    /// Connects to the store. One that cannot be reached or has no room for more is waited for, as
    /// a lock is that somebody else has.
    pub(crate) async fn connect(&self, reporter: &Reporter) -> Result<Locks, Failure> {
        let mut waiting = WaitingForStore::default();
        loop {
            match self.store.try_connect().await {
                Ok(locks) => return Ok(locks),
                Err(error) if self.wait_for_store(&error, &mut waiting, reporter).await => {}
                Err(error) => return Err(Failure::from(error)),
            }
        }
    }

    /// Waits a moment for a store that fails, and says so; false if there is no time left, or it is
    /// not a failure that time would mend. Those who come together should not come back together.
    async fn wait_for_store(&self, error: &Error, waiting: &mut WaitingForStore, reporter: &Reporter) -> bool {
        let left = match self.options.wait_at_most() {
            Some(wait) => wait.saturating_sub(self.since.elapsed()),
            // Whoever waits for ever may have mistyped the address.
            None if error.code() == ErrorCode::RateLimited => Duration::MAX,
            None => STORE_TIMEOUT.saturating_sub(self.since.elapsed()),
        };
        if !error.is_retryable() || left.is_zero() {
            return false;
        }
        if waiting.due.is_none_or(|due| Instant::now() >= due) {
            let failure = Failure::from(error).at(reporter.store());
            reporter.report(&event::no_store(self.keys, &failure, self.since.elapsed()));
            waiting.due = Some(self.since + next_report(self.since.elapsed()));
        }
        let pause = STORE_PAUSE * (1 << waiting.tries.min(3));
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64()).min(left)).await;
        waiting.tries += 1;
        true
    }

    /// Waits for the locks as the options say.
    pub(crate) async fn ask(&self, locks: &Locks, signals: &mut Signals, reporter: &Reporter) -> Asked {
        let started = self.since;
        let seen = Arc::new(Seen::default());
        let mut announced = false;
        let mut due = started + next_report(started.elapsed());
        let mut acquiring = pin!(self.acquire(locks, &seen, reporter));
        loop {
            tokio::select! {
                biased;
                result = &mut acquiring => return match result {
                    Ok(granted) => {
                        reporter.report(&event::acquired(self, &granted, announced));
                        Asked::Granted(granted)
                    }
                    Err(refused) => Asked::Refused(refused),
                },
                signal = signals.next_to_stop() => {
                    reporter.report(&event::signal(signal));
                    return Asked::Stopped(signal);
                }
                () = seen.changed.notified(), if !announced => {}
                () = tokio::time::sleep_until(due) => {}
            }
            announced = true;
            due = started + next_report(started.elapsed());
            reporter.report(&event::waiting(self.keys, seen.recently().as_ref(), started.elapsed()));
        }
    }

    /// Tries once, and waits if that shows somebody with a lock who does not wait for us. Who waits
    /// only for a store that fails should hear why.
    async fn acquire(&self, locks: &Locks, seen: &Arc<Seen>, reporter: &Reporter) -> Result<Granted, Refused> {
        let mut waiting = WaitingForStore::default();
        let around = loop {
            let error = match self.try_once(locks, seen).await {
                Ok(Ok(granted)) => return Ok(granted),
                Ok(Err(around)) => break around,
                Err(error) => error,
            };
            if !self.wait_for_store(&error, &mut waiting, reporter).await {
                return Err(Refused::Error(error, None));
            }
        };
        let beside_ours = match around {
            Around::Nothing => false,
            Around::Beside => true,
            Around::InTheWay(key) => return Err(Refused::HeldAroundUs(key)),
        };
        let time = self.options.wait_at_most().map(|time| time.saturating_sub(self.since.elapsed()));
        let acquired = Request::new(self, locks, seen, beside_ours).acquire(time).await;
        acquired.map_err(|error| Refused::Error(error, seen.recently().map(|(obstacle, _)| obstacle)))
    }

    /// Tries once. If somebody is in the way, tells what is held around us.
    async fn try_once(&self, locks: &Locks, seen: &Arc<Seen>) -> Result<Result<Granted, Around>, Error> {
        let obstacle = match Request::new(self, locks, seen, false).try_once().await? {
            Ok(granted) => return Ok(Ok(granted)),
            Err(obstacle) => obstacle,
        };
        let around = held::around_us(locks, self.keys, self.options.mode()).await?;
        seen.note_quietly(obstacle);
        Ok(Err(around))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_says_so_less_and_less_often() {
        let mut waited = Duration::ZERO;
        let reports = std::iter::repeat_with(|| {
            waited = next_report(waited);
            waited.as_secs()
        });
        let reports: Vec<_> = reports.take(7).collect();
        assert_eq!(reports, [10, 30, 60, 300, 600, 900, 1200]);
        // A timer may be late.
        assert_eq!(next_report(Duration::from_millis(10_900)), Duration::from_secs(30));
        assert_eq!(next_report(Duration::from_secs(610)), Duration::from_secs(900));
    }
}
