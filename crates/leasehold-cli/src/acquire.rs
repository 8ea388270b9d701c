//! Getting the lock while telling who has it, and giving up when asked to.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::{Contention, Error, ErrorCode, Guard, Holder, Key, LockRequest, Locks, Metadata};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::event;
use crate::exit::Failure;
use crate::held;
use crate::options::LockOptions;
use crate::reporter::Reporter;
use crate::signals::{Signal, Signals};
use crate::store::Store;
use crate::text;

/// The time between two messages that we still wait.
const REPORT: Duration = Duration::from_secs(10);

/// How long to put up with a store that fails from the start. One that answered once is waited for.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause before such a store is tried again.
const STORE_PAUSE: Duration = Duration::from_millis(250);

/// What to ask for.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) key: &'a Key,
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
        last.map(|(contention, at)| (contention, at.elapsed())).filter(|(_, ago)| *ago <= REPORT)
    }
}

impl Wanted<'_> {
    /// Connects to the store. One that has no room for more is waited for, as a lock is that
    /// somebody else has.
    pub(crate) async fn connect(&self, store: &Store, reporter: &Reporter) -> Result<Locks, Failure> {
        let (mut tries, mut next_report) = (0, Instant::now());
        loop {
            let error = match store.try_connect().await {
                Ok(locks) => return Ok(locks),
                Err(error) => error,
            };
            let Some(pause) = self.pause_for_room(&error, tries) else { return Err(Failure::from(error)) };
            if Instant::now() >= next_report {
                reporter.report(&event::no_room(self.key, &error, self.since.elapsed()));
                next_report = Instant::now() + REPORT;
            }
            tokio::time::sleep(pause).await;
            tries += 1;
        }
    }

    /// How long to wait for a store that only has no room for more. None if that is not what it
    /// lacks, or if there is no time left. Those who come together should not come back together.
    fn pause_for_room(&self, error: &Error, tries: u32) -> Option<Duration> {
        let left = |wait: Duration| wait.saturating_sub(self.since.elapsed());
        let left = self.options.wait_at_most().map_or(Duration::MAX, left);
        if error.code() != ErrorCode::RateLimited || left.is_zero() {
            return None;
        }
        let pause = STORE_PAUSE * (1 << tries.min(3));
        Some(pause.mul_f64(0.5 + fastrand::f64()).min(left))
    }

    /// Waits for the lock as the options say.
    pub(crate) async fn ask(&self, locks: &Locks, signals: &mut Signals, reporter: &Reporter) -> Asked {
        let started = self.since;
        let seen = Arc::new(Seen::default());
        let mut announced = false;
        let mut next_report = Instant::now() + REPORT;
        let mut acquiring = pin!(self.acquire(locks, &seen, started));
        loop {
            tokio::select! {
                biased;
                result = &mut acquiring => return match result {
                    Ok(guard) => {
                        reporter.report(&event::acquired(self.key, guard.fence(), &self.holder, started.elapsed(), announced));
                        Asked::Granted(guard)
                    }
                    Err(error) => Asked::Refused(error, seen.recently().map(|(contention, _)| contention)),
                },
                signal = signals.next_deadly() => {
                    reporter.report(&event::signal(signal));
                    return Asked::Stopped(signal);
                }
                () = seen.changed.notified(), if !announced => {}
                () = tokio::time::sleep_until(next_report) => {}
            }
            announced = true;
            next_report = Instant::now() + REPORT;
            reporter.report(&event::waiting(self.key, seen.recently().as_ref(), started.elapsed()));
        }
    }

    /// Tries once, and waits if that shows somebody with the lock who does not wait for us. Who
    /// waits only for a store that fails should hear why.
    async fn acquire(&self, locks: &Locks, seen: &Arc<Seen>, started: Instant) -> Result<Guard, Error> {
        let timeout = self.options.wait_at_most();
        let patience = Instant::now() + STORE_TIMEOUT;
        let tries_end = timeout.map_or(patience, |timeout| patience.min(started + timeout));
        let mut tries = 0;
        let contention = loop {
            match self.request(locks, seen).try_acquire_or_see().await {
                Ok(Ok(guard)) => return Ok(guard),
                Ok(Err(contention)) => break contention,
                Err(error) if error.is_retryable() => {
                    let pause = self.pause_for_room(&error, tries);
                    let pause = pause.or_else(|| (Instant::now() + STORE_PAUSE < tries_end).then_some(STORE_PAUSE));
                    let Some(pause) = pause else { return Err(error) };
                    tokio::time::sleep(pause).await;
                    tries += 1;
                }
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
        Failure::new(self.options.conflict_exit_code, message)
            .hint("wait for it with a longer --wait, or look at it with leasehold show")
    }
}
