use std::time::Instant;

use super::hold::{Hold, earlier};
use crate::sync::lock;
use crate::{Backend, Error, Extend, Loss, Timestamp, Ttl};

impl Hold {
    /// Sends one extend and takes note of the answer. Fails with [`Loss::Gone`] if the store refuses; the caller ends
    /// the lease then.
    pub(super) async fn extend(&self, backend: &dyn Backend, ttl: Ttl) -> Result<(), Error> {
        let _turn = self.extending.lock().await;
        if let Some(loss) = self.loss() {
            return Err(Error::lost(loss));
        }
        let ttl = self.capped(ttl);
        let sent = ExtendSent { hold: self, ttl, at: self.clock.instant(), answered: false };
        let answer = tokio::select! {
            biased;
            loss = self.ended() => return Err(Error::lost(loss)),
            answer = backend.extend(&self.lock_id, ttl) => answer,
        };
        match answer {
            Ok(Extend::Extended { expires_at }) => sent.confirmed(expires_at),
            Ok(Extend::Absent(_)) => {
                sent.not_arrived();
                Err(Error::lost(Loss::Gone))
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

/// An extend that is on its way. Dropping it unanswered, because of an error or a cancelled call, leaves its outcome
/// unknown.
struct ExtendSent<'a> {
    hold: &'a Hold,
    ttl: Ttl,
    at: Instant,
    answered: bool,
}

impl ExtendSent<'_> {
    /// The store confirmed it. The deadline moves, unless it has passed: an answer that comes too late changes
    /// nothing, because the work was already told to stop.
    fn confirmed(mut self, expires_at: Timestamp) -> Result<(), Error> {
        self.answered = true;
        let mut state = lock(&self.hold.state);
        if let Some(loss) = state.end.or_else(|| self.hold.overdue(&state)) {
            return Err(Error::lost(loss));
        }
        let ttl = state.shortest_unknown.map_or(self.ttl, |unknown| unknown.min(self.ttl));
        state.deadline = earlier(self.at + ttl.as_duration(), self.hold.hold_until);
        state.expires_at = expires_at;
        state.uncertain = false;
        Ok(())
    }

    /// It certainly did not arrive.
    fn not_arrived(mut self) {
        self.answered = true;
    }
}

impl Drop for ExtendSent<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let mut state = lock(&self.hold.state);
            let shortest = state.shortest_unknown.map_or(self.ttl, |unknown| unknown.min(self.ttl));
            state.shortest_unknown = Some(shortest);
            // It may have replaced a longer lease with a shorter one.
            state.deadline = state.deadline.min(self.at + self.ttl.as_duration());
        }
    }
}
