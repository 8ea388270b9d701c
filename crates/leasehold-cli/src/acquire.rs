//! Getting the lock while telling who has it, and giving up when asked to.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::{Contention, Error, ErrorCode, Guard, Holder, Key, LockRequest, Locks, Metadata};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::event::{self, Level};
use crate::exit::Failure;
use crate::held;
use crate::options::LockOptions;
use crate::reporter::Reporter;
use crate::signals::{Signal, Signals};
use crate::store::Store;
use crate::text;

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

/// For how long it counts that somebody was seen with the lock.
const FRESH: Duration = Duration::from_secs(10);

/// How long to put up with a store that fails from the start. One that answered once is waited for.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause before such a store is tried again.
const STORE_PAUSE: Duration = Duration::from_millis(250);

/// What to ask for.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) key: &'a Key,
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
    /// The lock is ours.
    Granted(Guard),
    /// It is not, after all the time given to wait. With who was last seen with it.
    Refused(Error, Option<Contention>),
    /// A signal came first. Nothing is held.
    Stopped(Signal),
}

/// Who was last seen with the lock, and when.
#[derive(Default)]
struct Seen {
    last: Mutex<Option<(Contention, Instant)>>,
    changed: Notify,
}

impl Seen {
    fn note(&self, contention: &Contention) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((contention.clone(), Instant::now()));
        self.changed.notify_one();
    }

    /// Who has the lock, and how long ago we saw that. A waiter looks every few seconds; if it has
    /// not seen anybody for longer, the store fails or is silent.
    fn recently(&self) -> Option<(Contention, Duration)> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.map(|(contention, at)| (contention, at.elapsed())).filter(|(_, ago)| *ago <= FRESH)
    }
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
            reporter.report(&event::no_store(self.key, &failure, self.since.elapsed()));
            waiting.due = Some(self.since + next_report(self.since.elapsed()));
        }
        let pause = STORE_PAUSE * (1 << waiting.tries.min(3));
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64()).min(left)).await;
        waiting.tries += 1;
        true
    }

    /// Waits for the lock as the options say.
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
                    Ok(guard) => {
                        reporter.report(&event::acquired(self, guard.fence(), announced));
                        Asked::Granted(guard)
                    }
                    Err(error) => Asked::Refused(error, seen.recently().map(|(contention, _)| contention)),
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
            reporter.report(&event::waiting(self.key, seen.recently().as_ref(), started.elapsed()));
        }
    }

    /// Tries once, and waits if that shows somebody with the lock who does not wait for us. Who
    /// waits only for a store that fails should hear why.
    async fn acquire(&self, locks: &Locks, seen: &Arc<Seen>, reporter: &Reporter) -> Result<Guard, Error> {
        let (started, timeout) = (self.since, self.options.wait_at_most());
        let mut waiting = WaitingForStore::default();
        let contention = loop {
            match self.request(locks, seen).try_acquire_or_see().await {
                Ok(Ok(guard)) => return Ok(guard),
                Ok(Err(contention)) => break contention,
                Err(error) if self.wait_for_store(&error, &mut waiting, reporter).await => {}
                Err(error) => return Err(error),
            }
        };
        let request = self.request(locks, seen);
        let timeout = if held::is_held_around_us(self.key, &contention) { Some(Duration::ZERO) } else { timeout };
        match timeout {
            None => {
                seen.note(&contention);
                request.wait_forever().acquire().await
            }
            Some(time) => {
                if !time.is_zero() {
                    seen.note(&contention);
                }
                request.wait(time.saturating_sub(started.elapsed())).acquire().await
            }
        }
    }

    fn request(&self, locks: &Locks, seen: &Arc<Seen>) -> LockRequest {
        let seen = seen.clone();
        let mut request = locks
            .lock(self.key)
            .ttl(self.options.ttl)
            .holder(&self.holder)
            .metadata(self.metadata.clone())
            .steal(self.options.steal())
            .on_contention(move |contention| seen.note(contention));
        if let Some(time) = self.max_hold {
            request = request.max_hold(time);
        }
        request
    }

    /// What to say when the lock was refused. Whoever was seen with it has it still, if the last
    /// look was not answered in time.
    pub(crate) fn refused(&self, error: &Error, seen: Option<&Contention>) -> Failure {
        let seen = seen.filter(|_| error.code() == ErrorCode::AcquisitionTimeout);
        let Some(contention) = error.contention().or(seen) else { return Failure::from(error) };
        if held::is_held_around_us(self.key, contention) {
            let message = format!("'{}' is held by the `leasehold run` that this is part of", self.key.as_str());
            return Failure::new(self.options.conflict_exit_code, message).hint(
                "do without the second lock, or take another key; what runs in the background and may wait for the \
                 end of the first is started with env -u LEASEHOLD_HELD",
            );
        }
        let message = format!(
            "'{}' is held by {} since {} ({}), for at most {} more unless extended",
            self.key.as_str(),
            text::holder(contention.holder.as_ref()),
            text::moment(contention.acquired_at),
            text::duration(contention.held_for()),
            text::duration(contention.free_in()),
        );
        // That somebody has the lock is an answer. Whoever takes it for success, or wants to hear
        // of errors alone, has it in the exit code.
        let code = self.options.conflict_exit_code;
        Failure::new(code, message)
            .hint("wait for it with a longer --wait, or look at it with leasehold show")
            .level(if code == 0 { Level::Detail } else { Level::Notice })
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
