use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::core::Core;
use super::extend::{ExtendSent, NotBegun};
use super::hold::Hold;
use super::ownership::Ownership;
use super::schedule::Urgency;
use crate::sync::lock;
use crate::{Error, ErrorCode, LockId, Operation, Ttl};

/// How many requests with renewals may be on their way at once. While the store fails there is one.
/// More of them go out only for leases that cannot wait until one of these is given up.
const LANES: usize = 4;

/// The pause after a failed request, as a part of the shortest ttl that waits, and its bounds. All
/// renewals of a handle share it.
const PAUSE_PARTS: u32 = 20;
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(250));

/// The last try before a lease ends is made so long before, or this part of its ttl.
const LAST_TRY: Duration = Duration::from_millis(50);
const LAST_TRY_PARTS: u32 = 50;

/// The sending of renewals. What waits to be sent is in the schedule.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    lanes: Mutex<Lanes>,
    /// Something more waits to be sent.
    more: Notify,
}

#[derive(Debug, Default)]
struct Lanes {
    /// When each lane that runs has an answer at the latest, or gives up.
    free_at: Vec<Instant>,
    store: Store,
}

/// What is known of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Store {
    #[default]
    Answers,
    /// A request failed for all its locks, and one lane waits to try again. The others may be in
    /// the middle of a request, and do not count.
    Failed,
    /// That lane tries again. Others go out only for leases that cannot wait for it.
    TriedAgain,
}

impl Lanes {
    /// The leases that one more lane may take: those that end before this, or all if it is `None`.
    /// What ends later still has a quarter of its time when the first of the others is free.
    ///
    /// So whatever hangs, what is more urgent gets out. And as a request for such leases takes half
    /// of their time, or [`LAST_TRY`], each further lane is free earlier: there are never many.
    fn cannot_wait(&self, now: Instant) -> Option<Instant> {
        let enough = if self.store == Store::Answers { LANES } else { 1 };
        let first = self.free_at.iter().min().filter(|_| self.free_at.len() >= enough)?;
        let wait = first.saturating_duration_since(now);
        Some(if wait > LAST_TRY { now + wait * 4 / 3 } else { now })
    }

    fn remove(&mut self, free_at: Instant) {
        if let Some(lane) = self.free_at.iter().position(|at| *at == free_at) {
            self.free_at.swap_remove(lane);
        }
    }
}

impl Renewals {
    /// The store answers.
    fn answered(&self) {
        let before = std::mem::replace(&mut lock(&self.lanes).store, Store::Answers);
        if before != Store::Answers {
            self.more.notify_one();
        }
    }

    fn store_answers(&self) -> bool {
        lock(&self.lanes).store == Store::Answers
    }
}

impl Core {
    /// Looks at the holds that are due: notices that their time is over, or has them renewed. Only
    /// for the keeper's thread.
    pub(super) fn tend(self: &Arc<Self>) {
        for hold in self.take_due() {
            if let Some(loss) = hold.loss() {
                self.lose(&hold, loss);
                continue;
            }
            let doubted = hold.is_doubted();
            if doubted && !hold.heartbeat {
                self.await_lookup(hold);
            } else if !hold.heartbeat || (!doubted && hold.next_look() > self.now()) {
                self.reschedule(&hold);
            } else {
                self.await_renewal(&hold);
            }
        }
        self.start_renewing();
        self.start_looking_up();
    }

    /// Starts to send what waits, unless enough is on its way.
    fn start_renewing(self: &Arc<Self>) {
        let Some(urgency) = self.urgency() else { return };
        let now = self.now();
        let mut lanes = lock(&self.renewals.lanes);
        if lanes.store == Store::Failed {
            self.renewals.more.notify_one();
        } else if lanes.cannot_wait(now).is_none_or(|before| urgency.deadline < before) {
            lanes.free_at.push(now);
            tokio::spawn(Lane { core: self.clone(), free_at: now, tries_again: false }.run());
        }
    }
}

/// Sends renewals, one request after the other, until none waits.
struct Lane {
    core: Arc<Core>,
    free_at: Instant,
    /// The store failed, and this lane is the one that tries again.
    tries_again: bool,
}

impl Lane {
    async fn run(mut self) {
        loop {
            let next = self.next();
            if next.is_empty() {
                self.core.start_looking_up();
                return;
            }
            let Some(request) = self.core.begin_renewals(next) else { continue };
            self.busy_for(request.timeout);
            self.core.start_renewing();
            match self.core.renew(request).await {
                Sent::Nothing => {}
                Sent::Answered => {
                    self.tries_again = false;
                    self.core.renewals.answered();
                }
                Sent::Failed if self.is_to_try_again() => {
                    self.pause().await;
                    self.try_again();
                }
                // Whoever tries again may hang, and these could not wait for it.
                Sent::Failed => self.pause().await,
            }
        }
    }

    /// Takes what is to be sent next.
    fn next(&mut self) -> Vec<Arc<Hold>> {
        let now = self.core.now();
        let mut lanes = lock(&self.core.renewals.lanes);
        lanes.remove(self.free_at);
        let before = lanes.cannot_wait(now);
        lanes.free_at.push(now);
        drop(lanes);
        self.free_at = now;
        self.core.next_renewals(before)
    }

    fn busy_for(&mut self, time: Duration) {
        let free_at = self.core.after(time);
        let mut lanes = lock(&self.core.renewals.lanes);
        lanes.remove(self.free_at);
        lanes.free_at.push(free_at);
        drop(lanes);
        self.free_at = free_at;
    }

    /// Its request failed. Tells whether it is the lane that tries again.
    fn is_to_try_again(&mut self) -> bool {
        let mut lanes = lock(&self.core.renewals.lanes);
        self.tries_again |= lanes.store == Store::Answers;
        if self.tries_again {
            lanes.store = Store::Failed;
        }
        self.tries_again
    }

    /// The pause is over, or the store answers another lane.
    fn try_again(&mut self) {
        let mut lanes = lock(&self.core.renewals.lanes);
        if lanes.store == Store::Failed {
            lanes.store = Store::TriedAgain;
        } else {
            self.tries_again = false;
        }
    }

    /// Waits until the next try is worth while, or another lane is answered.
    async fn pause(&mut self) {
        self.busy_for(PAUSE.1);
        let failed = self.core.now();
        let share = 0.5 + fastrand::f64() / 2.0;
        while !self.core.renewals.store_answers()
            && let Some(urgency) = self.core.urgency()
        {
            tokio::select! {
                () = self.core.sleep_until(Some(next_try(failed, share, urgency))) => return,
                () = self.core.renewals.more.notified() => {}
            }
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut lanes = lock(&self.core.renewals.lanes);
        lanes.remove(self.free_at);
        if self.tries_again {
            lanes.store = Store::Answers;
        }
    }
}

/// When to try again after a failure: soon, and in any case shortly before a lease ends.
fn next_try(failed: Instant, share: f64, Urgency { deadline, ttl }: Urgency) -> Instant {
    let soon = failed + (ttl / PAUSE_PARTS).clamp(PAUSE.0, PAUSE.1).mul_f64(share);
    let last = deadline.checked_sub(LAST_TRY.min(ttl / LAST_TRY_PARTS)).unwrap_or(deadline);
    if last > failed { soon.min(last) } else { soon }
}

/// Extends of many leases, to be sent together.
struct Request {
    extends: Vec<ExtendSent>,
    timeout: Duration,
}

/// What came of a request.
enum Sent {
    /// Nobody waits for the answer any more, or the driver panicked, which tells nothing of the
    /// store.
    Nothing,
    /// The store answered for one lock at least.
    Answered,
    /// The store failed for all of them.
    Failed,
}

impl Core {
    /// How long one extend to `ttl` may take: it leaves time for another one, and never hides the
    /// deadline.
    pub(super) fn extend_timeout(&self, hold: &Hold, ttl: Ttl) -> Duration {
        self.call_timeout.min(hold.ttl().renew_after()).min(ttl.as_duration()).min(share_of_rest(hold))
    }

    /// Begins to renew leases with one request, unless there is nothing to be sent.
    fn begin_renewals(&self, holds: Vec<Arc<Hold>>) -> Option<Request> {
        let mut extends = Vec::with_capacity(holds.len());
        let (mut timeout, mut rest) = (self.call_timeout, Duration::ZERO);
        for hold in holds {
            let ttl = hold.ttl();
            match ExtendSent::begin(hold.clone(), ttl) {
                Ok(extend) => {
                    timeout = timeout.min(ttl.renew_after());
                    // Of the one with the most left: those whose lease ends meanwhile are lost
                    // anyway, and must not take the others with them.
                    rest = rest.max(share_of_rest(&hold));
                    extends.push(extend);
                }
                Err(NotBegun::Ended(loss)) => self.lose(&hold, loss),
                // Whoever sent that one looks after the hold.
                Err(NotBegun::Busy) => {}
            }
        }
        (!extends.is_empty()).then_some(Request { extends, timeout: timeout.min(rest) })
    }

    async fn renew(&self, Request { extends: sent, timeout }: Request) -> Sent {
        let locks: Vec<(LockId, Ttl)> = sent.iter().map(|extend| (extend.hold.lock_id, extend.ttl)).collect();
        let call = async { Ok(self.backend.extend_many(&locks).await) };
        let answers = tokio::select! {
            biased;
            () = all_ended(&sent) => return Sent::Nothing,
            answers = self.within(timeout, Operation::Extend, call) => answers,
        };
        let panicked = answers.as_ref().is_err_and(|error| !error.is_retryable());
        let mut answers = match answers {
            Ok(answers) => answers,
            Err(error) => vec![Err(error); sent.len()],
        }
        .into_iter();
        let asked = sent.len();
        let mut failed = Vec::new();
        for extend in sent {
            let hold = extend.hold.clone();
            let answer = answers.next().unwrap_or_else(|| Err(no_answer()));
            match self.settle(extend, answer) {
                Ok(Ownership::Ours) => self.reschedule(&hold),
                Ok(Ownership::Lost(loss)) => self.lose(&hold, loss),
                Err(error) => {
                    tracing::debug!(key = %hold.key.hash_id(), %error, "a renewal failed and is tried again");
                    hold.set_uncertain();
                    // Also if nothing was due but the answer.
                    hold.doubt();
                    failed.push(hold);
                }
            }
        }
        if failed.len() == asked && !panicked {
            failed.iter().for_each(|hold| self.await_renewal(hold));
            return Sent::Failed;
        }
        for hold in failed {
            if panicked {
                hold.renew_alone();
            }
            let ttl = hold.ttl().as_duration();
            let urgency = Urgency { deadline: hold.deadline(), ttl };
            self.look_again_at(&hold, next_try(self.now(), 1.0, urgency));
        }
        if panicked { Sent::Nothing } else { Sent::Answered }
    }
}

/// How much of what is left of a lease one request may take.
fn share_of_rest(hold: &Hold) -> Duration {
    let remaining = hold.remaining();
    remaining.min((remaining / 2).max(LAST_TRY))
}

/// Waits until the leases of all these have ended.
async fn all_ended(sent: &[ExtendSent]) {
    for extend in sent {
        extend.hold.ended().await;
    }
}

fn no_answer() -> Error {
    Error::new(ErrorCode::Internal, "the store's driver left a question without an answer")
        .during(Operation::Extend)
        .with_outcome_unknown()
}
