use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::high_water::HighWater;
use super::hold::Hold;
use super::queue::Queue;
use super::schedule::Schedule;
use super::settings::{ReleaseFailure, Settings};
use crate::sync::lock;
use crate::{Backend, Error, Key, LockId, Loss, Operation, Release, Ttl};

/// The pause between two tries of a release that failed.
const RELEASE_RETRY: Duration = Duration::from_millis(50);

/// What the handle, its guards and its keeper share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) settings: Settings,
    pub(super) queue: Queue,
    pub(super) high_water: HighWater,
    schedule: Mutex<Schedule>,
    /// The keeper must look at the schedule: something is due earlier than it thinks.
    pub(super) sooner: Notify,
    /// Cancelled by `shutdown`.
    pub(super) closing: CancellationToken,
    /// What goes on in the background and must be done before `shutdown` returns.
    pub(super) background: TaskTracker,
}

impl Core {
    pub(super) fn new(backend: Arc<dyn Backend>, settings: Settings) -> Self {
        Self {
            backend,
            settings,
            queue: Queue::new(),
            high_water: HighWater::new(),
            schedule: Mutex::default(),
            sooner: Notify::new(),
            closing: CancellationToken::new(),
            background: TaskTracker::new(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.settings.clock.instant()
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
        self.settings.clock.sleep_until(self.now() + time).await;
    }

    /// Runs an operation of the store for at most `timeout`.
    pub(super) async fn within<T>(
        &self,
        timeout: Duration,
        operation: Operation,
        run: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::select! {
            biased;
            result = run => result,
            () = self.sleep(timeout) => Err(Error::timed_out(operation, timeout)),
        }
    }

    /// Has the keeper watch a new hold.
    pub(super) fn watch(&self, hold: &Arc<Hold>) {
        if lock(&self.schedule).set(hold.clone(), hold.next_look()) {
            self.sooner.notify_one();
        }
    }

    /// Tells the keeper that a hold's deadline or ttl changed.
    pub(super) fn reschedule(&self, hold: &Arc<Hold>) {
        self.look_again_at(hold, hold.next_look());
    }

    pub(super) fn look_again_at(&self, hold: &Arc<Hold>, due: Instant) {
        if lock(&self.schedule).reset(hold, due) {
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

    pub(super) fn held(&self) -> Vec<Arc<Hold>> {
        lock(&self.schedule).all()
    }

    /// Ends a hold that we give back. Returns whether the store still has to be told.
    pub(super) fn give_back(&self, hold: &Hold) -> (Loss, bool) {
        let (loss, first) = hold.end(Loss::Released);
        self.forget(hold);
        if first {
            self.over(hold, loss);
        }
        let tell = match loss {
            // Past the deadline the record may still be in the way of others, for the rest of the tolerance.
            Loss::Expired | Loss::MaxHold => true,
            Loss::Released => first,
            Loss::Gone | Loss::Stolen | Loss::ForceReleased => false,
        };
        (loss, tell)
    }

    /// Ends a hold that was taken from us.
    pub(super) fn lose(&self, hold: &Hold, loss: Loss) {
        let (loss, first) = hold.end(loss);
        self.forget(hold);
        if first && loss != Loss::Released {
            tracing::warn!(key = %hold.key.hash_id(), fence = %hold.fence, reason = loss.as_str(), "lock lost");
            self.over(hold, loss);
            self.queue.wake(&hold.key);
        }
    }

    fn over(&self, hold: &Hold, loss: Loss) {
        self.settings.metrics.held(|| self.now().saturating_duration_since(hold.granted));
        if loss != Loss::Released {
            self.settings.metrics.lost(loss);
        }
    }

    /// How long one extend to `ttl` may take: it leaves time for another one, and never hides the deadline.
    pub(super) fn patience(&self, hold: &Hold, ttl: Ttl) -> Duration {
        let third = hold.ttl().as_duration() / 3;
        self.settings.operation_timeout.min(third).min(ttl.as_duration()).min(hold.remaining())
    }

    /// The store reports that this lock was taken from its holder, who may or may not be us.
    pub(super) fn taken(&self, id: &LockId, how: Loss) {
        let hold = lock(&self.schedule).get(id);
        if let Some(hold) = hold {
            self.lose(&hold, how);
        }
    }

    pub(super) fn forget(&self, hold: &Hold) {
        if !self.settings.planted(super::PlantedBug::RenewAfterRelease) {
            lock(&self.schedule).remove(&hold.lock_id);
        }
    }

    /// Gives an ended hold back to the store, trying again until `until` if the store fails.
    pub(super) async fn release_hold(&self, backend: &dyn Backend, hold: &Hold, until: Instant) -> Result<(), Error> {
        tokio::select! {
            biased;
            () = hold.extends_stopped() => {}
            () = self.settings.clock.sleep_until(until) => {}
        }
        self.release(backend, &hold.key, &hold.lock_id, until).await
    }

    /// Gives a lock back to the store, trying again until `until` if the store fails. Fails with [`Loss::Gone`] if the
    /// store does not know the lock.
    pub(super) async fn release(
        &self,
        backend: &dyn Backend,
        key: &Key,
        id: &LockId,
        until: Instant,
    ) -> Result<(), Error> {
        let mut may_have_arrived = false;
        let result = loop {
            let left = until.saturating_duration_since(self.now()).max(Duration::from_millis(1));
            let timeout = left.min(self.settings.operation_timeout);
            match self.within(timeout, Operation::Release, backend.release(id)).await {
                Ok(Release::Released) => break Ok(()),
                // The release whose answer was lost is the one that freed it.
                Ok(Release::Absent(_)) if may_have_arrived => break Ok(()),
                Ok(Release::Absent(_)) => break Err(Error::lost(Loss::Gone)),
                Err(error) if error.is_retryable() && self.now() + RELEASE_RETRY < until => {
                    may_have_arrived |= error.outcome_unknown();
                    self.sleep(RELEASE_RETRY).await;
                }
                Err(error) => break Err(error),
            }
        };
        self.queue.wake(key);
        result
    }

    /// Reports a release that failed where no caller could be told.
    pub(super) fn release_failed(&self, key: &Key, lock_id: &LockId, error: &Error) {
        let failure = ReleaseFailure { key, lock_id, error };
        let hook = AssertUnwindSafe(|| (self.settings.on_release_error)(&failure));
        if catch_unwind(hook).is_err() {
            tracing::warn!("the on_release_error hook panicked");
        }
    }
}
