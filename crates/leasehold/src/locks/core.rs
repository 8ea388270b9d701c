use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::extend::ExtendSent;
use super::high_water::HighWater;
use super::hold::{Ended, Hold};
use super::lookups::Lookups;
use super::ownership::Ownership;
use super::queue::Queue;
use super::releases::{Releases, log_release};
use super::renewals::Renewals;
use super::reports::Reports;
use super::schedule::{Schedule, Urgency};
use super::settings::Settings;
use super::store_clock::StoreClock;
use crate::backend::Backend;
use crate::process::Process;
use crate::sync::lock;
use crate::{Error, Fence, Key, LockId, Loss, Operation, Ttl};

/// The first pause between two tries of a release that failed, and the longest.
pub(super) const RELEASE_RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// The least time for one try of a release: a shorter one only shows that a store is not in memory.
pub(super) const LEAST_RELEASE: Duration = Duration::from_secs(1);

/// Until a lease ends by itself there is a point in trying to release it, but not for years.
const LONGEST_RELEASE: Duration = Duration::from_secs(300);

/// A store gets so many times its own call timeout before a handle gives up on it: the store's own
/// error tells more, and is certain about what was sent.
const CALL_TIMEOUTS: u32 = 2;

/// As good as for ever.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// What is left of a hold that we give back.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenBack {
    /// How it ended: [`Loss::Released`] if it was ours until now.
    pub(super) loss: Loss,
    /// The store may still have it, and has to be told.
    pub(super) store_has_it: bool,
}

/// What the handle, its guards and its keeper share.
#[derive(Debug)]
pub(super) struct Core {
    /// Where the handle was made, and where alone it may be used.
    pub(super) process: Process,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) settings: Settings,
    /// The longest that a call to the store may take.
    pub(super) call_timeout: Duration,
    pub(super) queue: Queue<Key>,
    /// Those who want the same several keys at once.
    pub(super) queue_of_several: Queue<Arc<[Key]>>,
    pub(super) high_water: HighWater,
    pub(super) store_clock: StoreClock,
    schedule: Mutex<Schedule>,
    pub(super) renewals: Renewals,
    pub(super) lookups: Lookups,
    pub(super) releases: Releases,
    pub(super) reports: Arc<Reports>,
    /// The keeper must look at the schedule: something is due earlier than it thinks.
    pub(super) sooner: Notify,
    /// Cancelled by `shutdown`.
    pub(super) closing: CancellationToken,
    /// How long releases are tried after `shutdown`.
    pub(super) closed_at: OnceLock<Instant>,
    /// What goes on in the background and must be done before `shutdown` returns.
    pub(super) background: TaskTracker,
    /// Precautions that the keeper takes before it ends, and that nobody else waits for.
    pub(super) precautions: TaskTracker,
}

impl Core {
    pub(super) fn new(backend: Arc<dyn Backend>, settings: Settings) -> Self {
        let its_own = || backend.capabilities().call_timeout.saturating_mul(CALL_TIMEOUTS);
        Self {
            call_timeout: settings.call_timeout.unwrap_or_else(its_own),
            process: Process::current(),
            store_clock: StoreClock::new(settings.clock.instant()),
            reports: Reports::new(settings.on_release_error.clone()),
            backend,
            settings,
            queue: Queue::new(),
            queue_of_several: Queue::new(),
            high_water: HighWater::new(),
            schedule: Mutex::default(),
            renewals: Renewals::default(),
            lookups: Lookups::default(),
            releases: Releases::default(),
            sooner: Notify::new(),
            closing: CancellationToken::new(),
            closed_at: OnceLock::new(),
            background: TaskTracker::new(),
            precautions: TaskTracker::new(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.settings.clock.instant()
    }

    /// The moment `time` from now, however far away.
    pub(super) fn after(&self, time: Duration) -> Instant {
        let now = self.now();
        now.checked_add(time).unwrap_or(now + CENTURY)
    }

    /// Sleeps until `at`, or for ever.
    pub(super) async fn sleep_until(&self, at: Option<Instant>) {
        match at {
            Some(at) => self.settings.clock.sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Sleeps for `time`, counted from the first poll: a clock that nobody waits for is not read.
    pub(super) async fn sleep(&self, time: Duration) {
        self.settings.clock.sleep_until(self.after(time)).await;
    }

    /// Waits until the handle has been shut down for `time`: what is left to do must not wait much
    /// longer.
    pub(super) async fn closing_for(&self, time: Duration) {
        self.closing.cancelled().await;
        self.sleep(time).await;
    }

    /// Runs an operation of the store for at most `timeout`. A driver that panics is an error like
    /// others: it must not take the keeper's work with it.
    pub(super) async fn within<T>(
        &self,
        timeout: Duration,
        operation: Operation,
        run: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let call = async {
            tokio::select! {
                biased;
                result = caught(operation, run) => result,
                () = self.sleep(timeout) => Err(Error::timed_out(operation, timeout)),
            }
        };
        call.instrument(tracing::debug_span!("store", operation = operation.as_str())).await
    }

    /// Has the keeper watch a new hold.
    pub(super) fn watch(&self, hold: &Arc<Hold>) {
        self.settings.metrics.begun();
        if lock(&self.schedule).set(hold.clone(), hold.next_look()) {
            self.sooner.notify_one();
        }
    }

    /// Tells the keeper that a hold's deadline or ttl changed.
    pub(super) fn reschedule(&self, hold: &Arc<Hold>) {
        let due = if hold.is_doubted() { self.now() } else { hold.next_look() };
        self.look_again_at(hold, due);
    }

    pub(super) fn look_again_at(&self, hold: &Arc<Hold>, due: Instant) {
        if lock(&self.schedule).reset(hold, due) {
            self.sooner.notify_one();
        }
    }

    /// The same for many, so that the keeper sees all of them at its next look.
    pub(super) fn look_again_at_all(&self, holds: &[Arc<Hold>], due: Instant) {
        let mut schedule = lock(&self.schedule);
        let mut sooner = false;
        for hold in holds {
            sooner |= schedule.reset(hold, due);
        }
        drop(schedule);
        if sooner {
            self.sooner.notify_one();
        }
    }

    /// When the keeper must look next. It sleeps until then.
    pub(super) fn plan(&self) -> Option<Instant> {
        lock(&self.schedule).plan()
    }

    pub(super) fn take_due(&self) -> Vec<Arc<Hold>> {
        let now = self.now();
        lock(&self.schedule).take_due(now)
    }

    pub(super) fn await_renewal(&self, hold: &Arc<Hold>) {
        lock(&self.schedule).await_renewal(hold);
    }

    pub(super) fn next_renewals(&self, before: Option<Instant>) -> Vec<Arc<Hold>> {
        lock(&self.schedule).next_renewals(before)
    }

    pub(super) fn urgency(&self) -> Option<Urgency> {
        lock(&self.schedule).urgency()
    }

    /// The exclusive hold of `key` through this handle, if its lease has not ended. Those who want
    /// a key that is shared, or permits of it, have to ask the store and stand in line there.
    pub(super) fn held_here(&self, key: &Key) -> Option<Arc<Hold>> {
        let hold = lock(&self.schedule).of_key(key)?;
        hold.loss().is_none().then_some(hold)
    }

    pub(super) fn held(&self) -> Vec<Arc<Hold>> {
        lock(&self.schedule).all()
    }

    /// Ends a hold that we give back.
    pub(super) fn give_back(&self, hold: &Hold) -> GivenBack {
        let Ended { loss, first } = hold.end(Loss::Released);
        self.forget(hold);
        if first {
            self.over(hold, loss);
        }
        let store_has_it = match loss {
            // Past the deadline the record may still be in the way of others, for the rest of the
            // tolerance.
            Loss::Expired | Loss::MaxHold => true,
            Loss::Released => first,
            Loss::Gone | Loss::Stolen | Loss::ForceReleased | Loss::Forked => false,
        };
        GivenBack { loss, store_has_it }
    }

    /// Ends a hold whose lock somebody else is responsible for from now on.
    pub(super) fn let_go(&self, hold: &Hold) {
        let Ended { loss, first } = hold.end(Loss::Released);
        self.forget(hold);
        if first {
            self.over(hold, loss);
        }
        // Who waits here has to hear of its end from the store from now on.
        self.queue.wake(&hold.key);
    }

    /// Ends a hold that was taken from us.
    pub(super) fn lose(&self, hold: &Hold, loss: Loss) {
        let Ended { loss, first } = hold.end(loss);
        self.forget(hold);
        if first && loss != Loss::Released {
            tracing::warn!(key = %hold.key.hash_id(), fence = %hold.fence, reason = loss.as_str(), "lock lost");
            self.over(hold, loss);
            self.queue.wake(&hold.key);
        }
    }

    fn over(&self, hold: &Hold, loss: Loss) {
        self.settings.metrics.ended(|| self.now().saturating_duration_since(hold.granted), loss);
    }

    /// Extends a hold. If the lock turns out to be lost, the hold is ended. Only the keeper may
    /// call this: a user's task that is not polled would keep renewals waiting.
    pub(super) async fn extend(&self, hold: &Arc<Hold>, ttl: Ttl) -> Result<Ownership, Error> {
        let extend = async {
            let sent = match ExtendSent::begin_next(hold, ttl).await {
                Ok(sent) => sent,
                Err(loss) => return Ok(Ownership::Lost(loss)),
            };
            let answer = tokio::select! {
                biased;
                loss = hold.ended() => return Ok(Ownership::Lost(loss)),
                answer = self.backend.extend(&hold.lock_id, sent.ttl) => answer,
            };
            self.settle(sent, answer)
        };
        let outcome = self.within(self.extend_timeout(hold, ttl), Operation::Extend, extend).await?;
        if let Ownership::Lost(loss) = outcome {
            self.lose(hold, loss);
        }
        Ok(outcome)
    }

    /// How long a release is worth trying if nobody waits for it.
    pub(super) fn worth_trying(&self, ttl: Ttl) -> Duration {
        self.settings.release_timeout.max(ttl.as_duration().min(LONGEST_RELEASE))
    }

    /// The store reports that this lock was taken from its holder, who may or may not be us.
    pub(super) fn taken(&self, key: &Key, fence: Fence, how: Loss) {
        let hold = lock(&self.schedule).find(key, fence);
        if let Some(hold) = hold {
            self.lose(&hold, how);
        }
    }

    /// The hold of this handle with this lock id.
    pub(super) fn hold_of(&self, id: &LockId) -> Option<Arc<Hold>> {
        lock(&self.schedule).get(id)
    }

    fn forget(&self, hold: &Hold) {
        lock(&self.schedule).remove(&hold.lock_id);
    }

    /// Waits until no extend of an ended hold is on its way any more, but not past `until`.
    pub(super) async fn extends_stopped(&self, hold: &Hold, until: Instant) {
        tokio::select! {
            biased;
            () = hold.extends_stopped() => {}
            () = self.settings.clock.sleep_until(until) => {}
        }
    }

    /// Gives an ended hold back to the store, trying again until `until` if the store fails.
    pub(super) async fn release_hold(
        &self,
        hold: &Hold,
        until: Instant,
        may_have_arrived: bool,
    ) -> Result<Ownership, Error> {
        self.extends_stopped(hold, until).await;
        self.release(&hold.key, &hold.lock_id, Some(hold.deadline()), until, may_have_arrived).await
    }

    /// Gives a lock back to the store, trying again until `until` if the store fails. It is lost if
    /// the store does not know it, unless an earlier release may have freed it, or its lease ended
    /// at its `deadline` while the release was on its way.
    pub(super) async fn release(
        &self,
        key: &Key,
        id: &LockId,
        deadline: Option<Instant>,
        until: Instant,
        mut may_have_arrived: bool,
    ) -> Result<Ownership, Error> {
        let mut pause = RELEASE_RETRY.0;
        // However late it is, the store gets the time for one answer.
        let mut least = LEAST_RELEASE.min(self.settings.release_timeout);
        let result = loop {
            let until = self.closed_at.get().map_or(until, |closed| until.min(*closed));
            let left = until.saturating_duration_since(self.now());
            let timeout = left.max(least).min(self.call_timeout);
            least = RELEASE_RETRY.0;
            match self.within(timeout, Operation::Release, self.backend.release(id)).await {
                Ok(answer) => break Ok(self.owned(answer, may_have_arrived, deadline)),
                // A try that has hardly any time says nothing that this one did not say better.
                Err(error) if error.is_retryable() && pause + least < left => {
                    may_have_arrived |= error.outcome_unknown();
                    self.sleep(pause).await;
                    pause = (pause * 2).min(RELEASE_RETRY.1);
                }
                Err(error) => break Err(error),
            }
        };
        log_release(key, &result);
        self.queue.wake(key);
        result
    }
}

/// Turns a panic in `run` into an error.
async fn caught<T>(operation: Operation, run: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let mut run = std::pin::pin!(run);
    std::future::poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| Poll::Ready(Err(Error::panicked(operation))))
    })
    .await
}
