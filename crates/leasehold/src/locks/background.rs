use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::core::Core;
use super::hold::Hold;
use super::ownership::Ownership;
use super::releases::Pending;
use super::undo::{Undo, release_late};
use crate::backend::{Subscription, Topic};
use crate::sync::lock;
use crate::{Error, Key, LockId, Loss, Operation, Ttl};

/// Something the keeper does for a caller, on its own runtime.
#[derive(Debug)]
pub(super) enum Job {
    /// Release an ended hold.
    Release { release: Release, done: oneshot::Sender<Result<Ownership, Error>>, token: TaskTrackerToken },
    /// Extend a hold, to `ttl` from now on if `for_good`.
    Extend { hold: Arc<Hold>, ttl: Ttl, for_good: bool, done: oneshot::Sender<Result<Ownership, Error>> },
    /// Undo an acquire that nobody waits for any more.
    Undo { undo: Undo, token: TaskTrackerToken },
    /// Subscribe to the releases of a key, or to the turn of a lock id in its line. The connection
    /// for that must not depend on a runtime that may stand still while another one waits.
    Subscribe { key: Key, turn_of: Option<LockId>, done: oneshot::Sender<Result<Subscription, Error>> },
}

/// A release that the keeper does.
#[derive(Debug)]
pub(super) struct Release {
    pub(super) hold: Arc<Hold>,
    /// How long to try; for as long as the lease would last if `None`.
    pub(super) timeout: Option<Duration>,
    /// A release was sent before, and its answer is not known.
    pub(super) may_have_arrived: bool,
}

impl Job {
    /// Does the job. A token is held until then, and makes `shutdown` wait for it.
    pub(super) fn start(self, core: &Arc<Core>) {
        let core = core.clone();
        match self {
            Job::Release { release, done, token } => release.start(&core, done, token),
            Job::Extend { hold, ttl, for_good, done } => {
                tokio::spawn(async move {
                    let outcome = core.extend(&hold, ttl).await;
                    if for_good && matches!(outcome, Ok(Ownership::Ours)) {
                        hold.set_ttl(ttl);
                    }
                    // Also after a failure: the deadline may be nearer than it was.
                    core.reschedule(&hold);
                    let _ = done.send(outcome);
                });
            }
            Job::Undo { undo, token } => {
                tokio::spawn(async move {
                    let again = undo.run(&core).await;
                    core.releases.ended();
                    for request in again {
                        core.precautions.spawn(release_late(core.clone(), request));
                    }
                    drop(token);
                });
            }
            Job::Subscribe { key, turn_of, done } => {
                tokio::spawn(async move {
                    let topic = turn_of.as_ref().map_or(Topic::Freed(&key), |id| Topic::Turn(&key, id));
                    let subscribe = core.backend.subscribe(topic);
                    let _ = done.send(core.within(core.call_timeout, Operation::Subscribe, subscribe).await);
                });
            }
        }
    }
}

impl Release {
    fn start(self, core: &Arc<Core>, done: oneshot::Sender<Result<Ownership, Error>>, token: TaskTrackerToken) {
        let timeout = self.timeout.unwrap_or_else(|| core.worth_trying(self.hold.ttl()));
        let until = core.after(timeout);
        let hold = self.hold;
        let pending = Pending {
            key: hold.key.clone(),
            lock_id: hold.lock_id,
            deadline: Some(hold.deadline()),
            until,
            may_have_arrived: self.may_have_arrived,
            alone: false,
            done: {
                let hold = hold.clone();
                Box::new(move |core, outcome| {
                    match &outcome {
                        Err(error) => core.reports.add(&hold.key, &hold.lock_id, error.clone()),
                        // A lock that was lost before is expected to be gone.
                        Ok(Ownership::Lost(loss)) if hold.loss() == Some(Loss::Released) => {
                            core.reports.add(&hold.key, &hold.lock_id, Error::lost(*loss));
                        }
                        Ok(_) => {}
                    }
                    // The caller may have stopped waiting.
                    let _ = done.send(outcome);
                    if let Some(request) = hold.late.clone() {
                        core.precautions.spawn(release_late(core.clone(), request));
                    }
                    core.releases.ended();
                    drop(token);
                })
            },
        };
        if lock(&hold.state).extend_on_its_way {
            let core = core.clone();
            tokio::spawn(async move {
                core.extends_stopped(&hold, until).await;
                core.release_soon(pending);
            });
        } else {
            core.release_soon(pending);
        }
    }
}
