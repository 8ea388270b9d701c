use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::hold::Hold;
use super::keeper::Store;
use crate::{Acquire, AcquireRequest, Error, Loss, Ttl};

/// Until a lease ends by itself there is a point in trying to release it, but not for years.
const LONGEST_TRY: Duration = Duration::from_secs(300);

/// Something the keeper does in the background. The token makes `shutdown` wait for it.
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) done: oneshot::Sender<Result<(), Error>>,
    pub(super) token: TaskTrackerToken,
}

pub(super) enum Work {
    /// Release an ended hold.
    Release {
        hold: Arc<Hold>,
        /// How long to try; for as long as the lease would last if `None`.
        patience: Option<Duration>,
        /// A release was sent before, and its answer is not known.
        may_have_arrived: bool,
    },
    /// Extend a hold, to `ttl` from now on if `for_good`.
    Extend { hold: Arc<Hold>, ttl: Ttl, for_good: bool },
    /// Undo an acquire that nobody waits for any more.
    Undo(Undo),
}

/// An acquire to be undone.
pub(super) struct Undo {
    pub(super) request: Arc<AcquireRequest>,
    /// The try whose answer was not waited for.
    pub(super) in_flight: Option<JoinHandle<Result<Acquire, Error>>>,
    /// The store may hold a lock for it, because of that try or an earlier one.
    pub(super) may_hold: bool,
    /// An earlier try was given up without an answer, and may arrive at any time.
    pub(super) may_be_late: bool,
}

impl Job {
    pub(super) async fn run(self, store: Arc<Store>) {
        let core = &store.core;
        match self.work {
            Work::Release { hold, patience, may_have_arrived } => {
                let result = release(&store, &hold, patience, may_have_arrived).await;
                let _ = self.done.send(result);
            }
            Work::Extend { hold, ttl, for_good } => {
                let result = store.extend(&hold, ttl).await;
                if result.is_ok() && for_good {
                    hold.set_ttl(ttl);
                }
                // Also after a failure: the deadline may be nearer than it was.
                core.reschedule(&hold);
                let _ = self.done.send(result);
            }
            Work::Undo(undo) => {
                let again = undo.run(&store).await;
                // What follows is a precaution that nobody should wait for.
                drop(self.token);
                if let Some(request) = again {
                    release_late(&store, &request).await;
                }
            }
        }
    }
}

async fn release(store: &Store, hold: &Hold, patience: Option<Duration>, may_have_arrived: bool) -> Result<(), Error> {
    let core = &store.core;
    let patience = patience.unwrap_or_else(|| worth_trying(core.settings.release_timeout, hold.ttl()));
    let backend = store.get_any().await;
    let result = core.release_hold(backend, hold, core.after(patience), may_have_arrived).await;
    if let Err(error) = &result {
        // A lock that was lost before is expected to be gone.
        let expected = error.loss().is_some() && hold.loss() != Some(Loss::Released);
        if !expected {
            core.release_failed(&hold.key, &hold.lock_id, error.duplicate());
        }
    }
    result
}

fn worth_trying(at_least: Duration, ttl: Ttl) -> Duration {
    at_least.max(ttl.as_duration().min(LONGEST_TRY))
}

impl Undo {
    /// Waits for the answer that is still due, and gives back what was granted. Returns the request if a try of it may yet
    /// arrive.
    async fn run(mut self, store: &Store) -> Option<Arc<AcquireRequest>> {
        let core = &store.core;
        if let Some(mut answer) = self.in_flight {
            // The runtime that should wait for the answer may be idle, blocked or gone, so it gets no more than a call's time.
            tokio::select! {
                biased;
                answer = &mut answer => match answer {
                    Ok(Ok(Acquire::Granted(_))) => self.may_hold = true,
                    Ok(Ok(Acquire::Held(_))) => {}
                    Ok(Err(error)) if !error.outcome_unknown() => {}
                    Ok(Err(_)) | Err(_) => (self.may_hold, self.may_be_late) = (true, true),
                },
                () = core.sleep(core.settings.operation_timeout) => {
                    answer.abort();
                    (self.may_hold, self.may_be_late) = (true, true);
                }
            }
        }
        if self.may_hold {
            let request = &self.request;
            let until = core.after(worth_trying(core.settings.release_timeout, request.ttl));
            let released = core.release(store.get_any().await, &request.key, &request.lock_id, until, false).await;
            if let Err(error) = released
                && error.loss().is_none()
            {
                core.release_failed(&request.key, &request.lock_id, error);
            }
        }
        self.may_be_late.then_some(self.request)
    }
}

/// That a lock is not there does not show that a try of unknown outcome will not arrive yet. Looks twice more; what comes
/// even later ends with its ttl.
async fn release_late(store: &Store, request: &AcquireRequest) {
    let core = &store.core;
    for wait in [1, 3] {
        core.sleep(core.settings.operation_timeout.saturating_mul(wait)).await;
        let until = core.after(core.settings.operation_timeout);
        let _ = core.release(store.get_any().await, &request.key, &request.lock_id, until, false).await;
    }
}
