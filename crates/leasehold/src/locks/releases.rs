use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::core::{Core, LEAST_RELEASE, RELEASE_RETRY};
use super::ownership::Ownership;
use crate::backend::{Absence, MOST_AT_ONCE, Release};
use crate::sync::lock;
use crate::{Error, ErrorCode, Key, LockId, Loss, Operation, TIME_TOLERANCE};

/// How many requests with releases may be on their way at once. While the store fails there is one.
const LANES: usize = 2;

/// So many locks may wait to be given back before new ones have to wait for them.
const MOST_BEHIND: usize = 4096;

/// What is called with the outcome of a release.
type Done = Box<dyn FnOnce(&Arc<Core>, Result<Ownership, Error>) + Send>;

/// The releases that nobody sends himself: of guards that were dropped, of acquires that were
/// cancelled, of a handle that is shut down. They travel together, and never ahead of renewals.
#[derive(Debug, Default)]
pub(super) struct Releases {
    queue: Mutex<Queue>,
    /// Locks to be given back, from the moment that was decided.
    behind: AtomicUsize,
    /// Locks of which it is known what became of them.
    settled: AtomicUsize,
    /// There is room again.
    room: Notify,
    /// What was left in the store since the handle was shut down.
    left: Mutex<Left>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Pending>,
    lanes: usize,
    failing: bool,
}

/// Locks that could not be given back.
#[derive(Clone, Debug, Default)]
pub(super) struct Left {
    pub(super) locks: usize,
    /// Why the first of them could not.
    pub(super) error: Option<Error>,
}

/// One lock to be given back.
pub(super) struct Pending {
    pub(super) key: Key,
    pub(super) lock_id: LockId,
    /// The end of the lease that was given back, if it was a lease.
    pub(super) deadline: Option<Instant>,
    /// A release that failed is tried again until then.
    pub(super) until: Instant,
    /// A release was sent before, and its answer is not known.
    pub(super) may_have_arrived: bool,
    /// The driver had no answer for it, which may be another lock's fault: it is sent once more, by
    /// itself.
    pub(super) alone: bool,
    pub(super) done: Done,
}

impl Queue {
    /// Takes what is to be sent next.
    fn next(&mut self) -> Vec<Pending> {
        let together = self.waiting.iter().take(MOST_AT_ONCE).take_while(|pending| !pending.alone).count();
        let count = together.max(1).min(self.waiting.len());
        self.waiting.drain(..count).collect()
    }
}

impl Releases {
    /// One more lock is to be given back.
    pub(super) fn begun(&self) {
        self.behind.fetch_add(1, Ordering::Relaxed);
    }

    /// It is known what became of it.
    pub(super) fn ended(&self) {
        self.settled.fetch_add(1, Ordering::Relaxed);
        if self.behind.fetch_sub(1, Ordering::Relaxed) == MOST_BEHIND {
            self.room.notify_waiters();
        }
    }

    /// How many locks are not given back yet.
    pub(super) fn behind(&self) -> usize {
        self.behind.load(Ordering::Relaxed)
    }

    /// Grows whenever it is known what became of a lock.
    pub(super) fn settled(&self) -> usize {
        self.settled.load(Ordering::Relaxed)
    }

    /// What was left in the store since the handle was shut down.
    pub(super) fn left(&self) -> Left {
        lock(&self.left).clone()
    }
}

impl Core {
    /// Waits until there are not too many locks to be given back: whoever takes locks faster than
    /// the store can be told of their end has to wait for it.
    pub(super) async fn room(&self) -> Result<(), Error> {
        if self.releases.behind() < MOST_BEHIND {
            return Ok(());
        }
        let room = async {
            loop {
                let mut room = std::pin::pin!(self.releases.room.notified());
                room.as_mut().enable();
                if self.releases.behind() < MOST_BEHIND {
                    return;
                }
                room.await;
            }
        };
        tokio::select! {
            biased;
            () = room => Ok(()),
            () = self.sleep(self.call_timeout) => {
                Err(Error::new(ErrorCode::RateLimited, "too many locks wait to be given back")
                    .with_hint("the store is slower than the program takes and drops locks")
                    .during(Operation::Acquire))
            }
        }
    }

    /// Gives a lock back, together with others. Only for the keeper's runtime.
    pub(super) fn release_soon(self: &Arc<Self>, pending: Pending) {
        lock(&self.releases.queue).waiting.push_back(pending);
        self.start_releasing();
    }

    fn start_releasing(self: &Arc<Self>) {
        let mut queue = lock(&self.releases.queue);
        let most = if queue.failing { 1 } else { LANES };
        if !queue.waiting.is_empty() && queue.lanes < most {
            queue.lanes += 1;
            tokio::spawn(Lane { core: self.clone() }.run());
        }
    }

    /// Until when a release that failed is tried again.
    fn tried_until(&self, pending: &Pending) -> Instant {
        self.closed_at.get().map_or(pending.until, |closed| pending.until.min(*closed))
    }

    /// Tells what became of a lock, and wakes who waits for it here.
    fn released(self: &Arc<Self>, pending: Pending, outcome: Result<Ownership, Error>) {
        log_release(&pending.key, &outcome);
        self.queue.wake(&pending.key);
        if let Err(error) = &outcome
            && self.closing.is_cancelled()
        {
            let mut left = lock(&self.releases.left);
            left.locks += 1;
            left.error.get_or_insert_with(|| error.clone());
        }
        (pending.done)(self, outcome);
    }
}

/// Sends releases, one request after the other, until none waits.
struct Lane {
    core: Arc<Core>,
}

impl Lane {
    async fn run(self) {
        let mut pause = RELEASE_RETRY.0;
        loop {
            let next = lock(&self.core.releases.queue).next();
            if next.is_empty() {
                return;
            }
            self.core.start_releasing();
            let asked = next.len();
            let failed = self.send(next).await;
            if failed.len() < asked {
                lock(&self.core.releases.queue).failing = false;
                pause = RELEASE_RETRY.0;
                self.later(failed, pause);
                continue;
            }
            let last_lane = {
                let mut queue = lock(&self.core.releases.queue);
                queue.failing = true;
                queue.lanes == 1
            };
            self.give_up_or_wait(failed);
            if !last_lane {
                return;
            }
            self.core.sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause = (pause * 2).min(RELEASE_RETRY.1);
        }
    }

    /// Sends one request. Returns those that failed and may be tried again, with their errors.
    async fn send(&self, batch: Vec<Pending>) -> Vec<(Pending, Error)> {
        let core = &self.core;
        let ids: Vec<LockId> = batch.iter().map(|pending| pending.lock_id).collect();
        let until = batch.iter().map(|pending| core.tried_until(pending)).max();
        let left = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(core.now()));
        let timeout = left.max(LEAST_RELEASE.min(core.settings.release_timeout)).min(core.call_timeout);
        let call = async { Ok(core.backend.release_many(&ids).await) };
        let (answers, no_answer) = match core.within(timeout, Operation::Release, call).await {
            Ok(answers) => (answers, no_answer()),
            Err(error) if error.is_retryable() => (vec![Err(error.clone()); batch.len()], error),
            Err(panicked) => (Vec::new(), panicked),
        };
        let mut answers = answers.into_iter();
        let (mut failed, mut again) = (Vec::new(), Vec::new());
        for mut pending in batch {
            match answers.next() {
                Some(Ok(answer)) => {
                    let outcome = core.owned(answer, pending.may_have_arrived, pending.deadline);
                    core.released(pending, Ok(outcome));
                }
                Some(Err(error)) if error.is_retryable() => {
                    pending.may_have_arrived |= error.outcome_unknown();
                    failed.push((pending, error));
                }
                Some(Err(error)) => core.released(pending, Err(error)),
                None if pending.alone => core.released(pending, Err(no_answer.clone())),
                None => again.push(Pending { may_have_arrived: true, alone: true, ..pending }),
            }
        }
        lock(&core.releases.queue).waiting.extend(again);
        failed
    }

    /// Tries these again after a pause; the store answers for others.
    fn later(&self, failed: Vec<(Pending, Error)>, pause: Duration) {
        let mut again = Vec::new();
        for (pending, error) in failed {
            if self.core.after(pause) < self.core.tried_until(&pending) {
                again.push(pending);
            } else {
                self.core.released(pending, Err(error));
            }
        }
        if !again.is_empty() {
            let core = self.core.clone();
            tokio::spawn(async move {
                core.sleep(pause).await;
                again.into_iter().for_each(|pending| core.release_soon(pending));
            });
        }
    }

    /// The store fails for everybody: whose time is over has nothing to wait for, not even for a
    /// try of his own. The others go on.
    fn give_up_or_wait(&self, failed: Vec<(Pending, Error)>) {
        let core = &self.core;
        let Some(reason) = failed.first().map(|(_, error)| error.clone()) else { return };
        let now = core.now();
        let (mut over, mut again) = (Vec::new(), VecDeque::new());
        for (pending, error) in failed {
            if core.tried_until(&pending) <= now { over.push((pending, error)) } else { again.push_back(pending) }
        }
        let mut queue = lock(&core.releases.queue);
        for pending in queue.waiting.drain(..) {
            if core.tried_until(&pending) <= now {
                over.push((pending, reason.clone()));
            } else {
                again.push_back(pending);
            }
        }
        queue.waiting = again;
        drop(queue);
        for (pending, error) in over {
            core.released(pending, Err(error));
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        lock(&self.core.releases.queue).lanes -= 1;
    }
}

impl Core {
    /// What the answer to a release means to the holder.
    pub(super) fn owned(&self, answer: Release, may_have_arrived: bool, deadline: Option<Instant>) -> Ownership {
        let absence = match answer {
            Release::Released => return Ownership::Ours,
            // The release whose answer was lost is the one that freed it.
            Release::Absent(_) if may_have_arrived => return Ownership::Ours,
            Release::Absent(absence) => absence,
        };
        // It was ours until it was given back, and the store was told too late: the lease ran out
        // on the way. Until the tolerance has passed as well, nobody could have been let in by that.
        // Afterwards a lock that was taken from us before looks the same.
        let ran_out = deadline.map(|deadline| match absence {
            Absence::Expired => deadline,
            Absence::NotFound => deadline + TIME_TOLERANCE,
        });
        if ran_out.is_some_and(|at| at <= self.now()) { Ownership::Ours } else { Ownership::Lost(Loss::Gone) }
    }
}

fn no_answer() -> Error {
    Error::new(ErrorCode::Internal, "the store's driver left a release without an answer")
        .during(Operation::Release)
        .with_outcome_unknown()
}

pub(super) fn log_release(key: &Key, outcome: &Result<Ownership, Error>) {
    match outcome {
        Ok(Ownership::Ours) => tracing::debug!(key = %key.hash_id(), "lock released"),
        Ok(Ownership::Lost(loss)) => {
            tracing::debug!(key = %key.hash_id(), %loss, "the lock to be released was not there");
        }
        Err(error) => tracing::debug!(key = %key.hash_id(), %error, "a lock could not be released"),
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("key", &self.key).finish_non_exhaustive()
    }
}
