use std::time::Instant;

use super::core::Core;
use super::hold::{Hold, earlier};
use super::ownership::Ownership;
use crate::backend::Extend;
use crate::sync::lock;
use crate::{Error, Loss, Timestamp, Ttl};

impl Hold {
    /// Sends one extend and takes note of the answer. If the lock is lost, the caller ends the
    /// lease.
    pub(super) async fn extend(&self, core: &Core, ttl: Ttl) -> Result<Ownership, Error> {
        let _turn = self.extending.lock().await;
        let ttl = self.capped(ttl);
        let sent = match ExtendSent::begin(self, ttl) {
            Ok(sent) => sent,
            Err(loss) => return Ok(Ownership::Lost(loss)),
        };
        let answer = tokio::select! {
            biased;
            loss = self.ended() => return Ok(Ownership::Lost(loss)),
            answer = core.backend.extend(&self.lock_id, ttl) => answer,
        };
        match answer {
            Ok(Extend::Extended { expires_at }) => {
                let sent_at = sent.at;
                let outcome = sent.confirmed(expires_at);
                core.heard(expires_at.before(ttl), sent_at);
                Ok(outcome)
            }
            Ok(Extend::Absent(_)) => {
                sent.not_arrived();
                Ok(Ownership::Lost(Loss::Gone))
            }
            Err(error) => {
                if !error.outcome_unknown() {
                    sent.not_arrived();
                }
                Err(error)
            }
        }
    }
}

/// An extend that is on its way. Until its answer is known, and for ever if it never is, the store
/// may have set the lease to its ttl: the deadline is not later than that.
struct ExtendSent<'a> {
    hold: &'a Hold,
    ttl: Ttl,
    at: Instant,
    deadline_before: Instant,
    answered: bool,
}

impl<'a> ExtendSent<'a> {
    /// Fails if the lease has ended.
    fn begin(hold: &'a Hold, ttl: Ttl) -> Result<Self, Loss> {
        let mut state = lock(&hold.state);
        if let Some(loss) = state.end.or_else(|| hold.overdue(&state)) {
            return Err(loss);
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

    /// The store confirmed it. The deadline moves, unless it has passed: an answer that comes too
    /// late changes nothing, because the work was already told to stop.
    fn confirmed(mut self, expires_at: Timestamp) -> Ownership {
        self.answered = true;
        let mut state = lock(&self.hold.state);
        if let Some(loss) = state.end.or_else(|| self.hold.overdue(&state)) {
            return Ownership::Lost(loss);
        }
        let lasts = state.lasts(self.ttl);
        state.deadline = earlier(self.at + lasts.as_duration(), self.hold.hold_until);
        state.expires_at = expires_at;
        state.uncertain = false;
        Ownership::Ours
    }

    /// It certainly did not arrive.
    fn not_arrived(mut self) {
        self.answered = true;
        let mut state = lock(&self.hold.state);
        if self.hold.overdue(&state).is_none() {
            state.deadline = self.deadline_before;
        }
    }
}

impl Drop for ExtendSent<'_> {
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
