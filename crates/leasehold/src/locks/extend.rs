use std::sync::Arc;
use std::time::Instant;

use super::core::Core;
use super::hold::{Hold, earlier};
use super::ownership::Ownership;
use crate::backend::Extend;
use crate::sync::lock;
use crate::{Error, Loss, Timestamp, Ttl};

impl Core {
    /// Takes note of the answer to an extend, and of the time that it tells. If the lock is lost,
    /// the caller ends the lease.
    pub(super) fn settle(&self, sent: ExtendSent, answer: Result<Extend, Error>) -> Result<Ownership, Error> {
        let (at, ttl) = (sent.at, sent.ttl);
        let time = match &answer {
            Ok(Extend::Extended { expires_at }) => Some(expires_at.before(ttl)),
            _ => None,
        };
        let outcome = sent.settle(answer);
        if let Some(time) = time {
            self.heard(time, at);
        }
        outcome
    }
}

/// An extend that is on its way. Until its answer is known, and for ever if it never is, the store
/// may have set the lease to its ttl: the deadline is not later than that.
///
/// Extends of one lock are sent one after the other: two on the way at once could arrive in the
/// other order and leave the store with the shorter one. Only the keeper makes these, because a
/// user's task that is not polled would keep renewals waiting.
pub(super) struct ExtendSent {
    pub(super) hold: Arc<Hold>,
    pub(super) ttl: Ttl,
    at: Instant,
    deadline_before: Instant,
    answered: bool,
}

/// Why an extend was not begun.
#[derive(Clone, Copy, Debug)]
pub(super) enum NotBegun {
    /// The lease has ended.
    Ended(Loss),
    /// Another one is on its way.
    Busy,
}

impl ExtendSent {
    pub(super) fn begin(hold: Arc<Hold>, ttl: Ttl) -> Result<Self, NotBegun> {
        let ttl = hold.capped(ttl);
        let mut state = lock(&hold.state);
        if let Some(loss) = state.end.or_else(|| hold.overdue(&state)) {
            return Err(NotBegun::Ended(loss));
        }
        if state.extend_on_its_way {
            return Err(NotBegun::Busy);
        }
        let at = hold.clock.instant();
        let deadline_before = state.deadline;
        state.deadline = deadline_before.min(at + ttl.as_duration());
        state.extend_on_its_way = true;
        drop(state);
        // The deadline may have come nearer.
        hold.changed.notify_waiters();
        Ok(Self { hold, ttl, at, deadline_before, answered: false })
    }

    /// The same, once no other extend of this lock is on its way.
    pub(super) async fn begin_next(hold: &Arc<Hold>, ttl: Ttl) -> Result<Self, Loss> {
        loop {
            match Self::begin(hold.clone(), ttl) {
                Ok(sent) => return Ok(sent),
                Err(NotBegun::Ended(loss)) => return Err(loss),
                Err(NotBegun::Busy) => hold.extends_stopped().await,
            }
        }
    }

    fn settle(mut self, answer: Result<Extend, Error>) -> Result<Ownership, Error> {
        match answer {
            Ok(Extend::Extended { expires_at }) => Ok(self.confirmed(expires_at)),
            Ok(Extend::Absent(_)) => {
                self.not_arrived();
                Ok(Ownership::Lost(Loss::Gone))
            }
            Err(error) => {
                if !error.outcome_unknown() {
                    self.not_arrived();
                }
                Err(error)
            }
        }
    }

    /// The store confirmed it. The deadline moves, unless it has passed: an answer that comes too
    /// late changes nothing, because the work was already told to stop.
    fn confirmed(&mut self, expires_at: Timestamp) -> Ownership {
        self.answered = true;
        let mut state = lock(&self.hold.state);
        if let Some(loss) = state.end.or_else(|| self.hold.overdue(&state)) {
            return Ownership::Lost(loss);
        }
        let lasts = state.lasts(self.ttl);
        let deadline = earlier(self.at + lasts.as_duration(), self.hold.hold_until);
        if state.stepped_at.is_some_and(|at| self.at < at) {
            // The store may have said so before its clock was set.
            state.deadline = state.deadline.min(deadline);
        } else {
            state.deadline = deadline;
            state.limit = None;
            state.doubted = false;
        }
        state.expires_at = expires_at;
        state.uncertain = false;
        state.alone = false;
        Ownership::Ours
    }

    /// It certainly did not arrive.
    fn not_arrived(&mut self) {
        self.answered = true;
        let mut state = lock(&self.hold.state);
        if self.hold.overdue(&state).is_none() {
            state.deadline = earlier(self.deadline_before, state.limit);
        }
    }
}

impl Drop for ExtendSent {
    fn drop(&mut self) {
        let mut state = lock(&self.hold.state);
        state.extend_on_its_way = false;
        if !self.answered {
            state.shortest_unknown = Some(state.lasts(self.ttl));
        }
        drop(state);
        self.hold.changed.notify_waiters();
    }
}
