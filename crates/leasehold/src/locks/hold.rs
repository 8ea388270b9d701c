use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::lease::LockState;
use crate::backend::AcquireRequest;
use crate::clock::Clock;
use crate::process::Process;
use crate::sync::lock;
use crate::{Contention, Fence, Grant, Holder, Key, LockId, Loss, Mode, Timestamp, Ttl};

/// What the guards, the keeper and the handle know of one granted lock.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) key: Key,
    holder: Holder,
    pub(super) lock_id: LockId,
    pub(super) fence: Fence,
    pub(super) acquired_at: Timestamp,
    pub(super) mode: Mode,
    pub(super) slot: Option<u16>,
    pub(super) heartbeat: bool,
    /// When the grant reached us, for the metrics.
    pub(super) granted: Instant,
    /// The end of `max_hold`.
    pub(super) hold_until: Option<Instant>,
    pub(super) clock: Clock,
    /// The process that holds it. In a fork, nothing below is looked at: a thread that the fork
    /// does not have may have locked it.
    process: Process,
    pub(super) state: Mutex<State>,
    /// Something in `state` changed that somebody may wait for.
    pub(super) changed: Notify,
    /// The request, if a try of it was given up without an answer and may arrive after the lock is
    /// released.
    pub(super) late: Option<Arc<AcquireRequest>>,
    /// The share of the time until a renewal by which ours comes earlier, so that locks that were
    /// taken together are not all renewed at once.
    early: f64,
}

/// The largest share by which a renewal comes earlier than it must.
const EARLIEST: f64 = 0.1;

/// Renewals are due at whole multiples of this share of the time until a renewal, so that many can
/// travel together.
const GRAINS: u32 = 100;

/// The longest that renewals are gathered for.
const COARSEST_GRAIN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct State {
    ttl: Ttl,
    pub(super) deadline: Instant,
    pub(super) expires_at: Timestamp,
    pub(super) uncertain: bool,
    /// The store has to be asked, although nothing is due.
    pub(super) doubted: bool,
    /// When the store's clock was last found to have been set. What was sent before may have been
    /// answered before the step, and does not tell how long the lease lasts.
    pub(super) stepped_at: Option<Instant>,
    /// The lease does not last longer, whatever was known before.
    pub(super) limit: Option<Instant>,
    /// The shortest extend of which it is unknown whether it arrived. It may still arrive after a
    /// longer one that was confirmed, so no deadline may be further away than this.
    pub(super) shortest_unknown: Option<Ttl>,
    /// Guards on this lease: one, or more if it was re-entered.
    guards: usize,
    pub(super) extend_on_its_way: bool,
    /// The driver panicked over a renewal together with others, which may be this lock's fault: it
    /// is renewed by itself until the store confirms it.
    pub(super) alone: bool,
    pub(super) end: Option<Loss>,
}

impl State {
    /// How long a lease that the store confirmed for `ttl` certainly lasts.
    pub(super) fn lasts(&self, ttl: Ttl) -> Ttl {
        self.shortest_unknown.map_or(ttl, |unknown| unknown.min(ttl))
    }
}

/// The end of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// How it ended.
    pub(super) loss: Loss,
    /// It had not ended before.
    pub(super) first: bool,
}

/// The settings of a lease that the grant does not know.
pub(super) struct Terms {
    pub(super) key: Key,
    pub(super) holder: Holder,
    pub(super) ttl: Ttl,
    pub(super) mode: Mode,
    pub(super) heartbeat: bool,
    pub(super) max_hold: Option<Duration>,
    /// When the request that was granted was sent.
    pub(super) sent: Instant,
    pub(super) process: Process,
    pub(super) late: Option<Arc<AcquireRequest>>,
    /// An extend to the same ttl was sent before, and may yet arrive.
    pub(super) stray_extend: bool,
}

impl Hold {
    pub(super) fn new(grant: &Grant, terms: Terms, clock: Clock) -> Self {
        let hold_until = terms.max_hold.and_then(|time| terms.sent.checked_add(time));
        Self {
            key: terms.key,
            holder: terms.holder,
            lock_id: grant.lock_id,
            fence: grant.fence,
            acquired_at: grant.acquired_at,
            mode: terms.mode,
            slot: grant.slot,
            heartbeat: terms.heartbeat,
            granted: clock.instant(),
            hold_until,
            clock,
            process: terms.process,
            state: Mutex::new(State {
                ttl: terms.ttl,
                deadline: earlier(terms.sent + terms.ttl.as_duration(), hold_until),
                expires_at: grant.expires_at,
                uncertain: false,
                doubted: false,
                stepped_at: None,
                limit: None,
                shortest_unknown: terms.stray_extend.then_some(terms.ttl),
                guards: 1,
                extend_on_its_way: false,
                alone: false,
                end: None,
            }),
            changed: Notify::new(),
            late: terms.late,
            early: fastrand::f64() * EARLIEST,
        }
    }

    /// The loss of a copy of the hold, in a fork of the process that has it.
    pub(super) fn forked(&self) -> Option<Loss> {
        (!self.process.is_current()).then_some(Loss::Forked)
    }

    pub(super) fn state(&self) -> LockState {
        if self.forked().is_some() {
            return LockState::Lost;
        }
        let state = lock(&self.state);
        if state.end.is_some() || self.clock.instant() >= state.deadline {
            LockState::Lost
        } else if state.uncertain {
            LockState::Uncertain
        } else {
            LockState::Held
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        if self.forked().is_some() {
            return Duration::ZERO;
        }
        let state = lock(&self.state);
        match state.end {
            Some(_) => Duration::ZERO,
            None => state.deadline.saturating_duration_since(self.clock.instant()),
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        lock(&self.state).deadline
    }

    /// For how long the lease certainly lasts after an extend that was confirmed.
    pub(super) fn lasts(&self) -> Ttl {
        let state = lock(&self.state);
        state.lasts(state.ttl)
    }

    pub(super) fn ttl(&self) -> Ttl {
        lock(&self.state).ttl
    }

    pub(super) fn grant(&self) -> Grant {
        let expires_at = lock(&self.state).expires_at;
        Grant::new(self.lock_id, self.fence, self.acquired_at, expires_at).with_slot(self.slot)
    }

    /// What the store would say to somebody else who wants the lock now.
    pub(super) fn contention(&self) -> Contention {
        let held_for = self.clock.instant().saturating_duration_since(self.granted);
        let now = self.acquired_at + held_for;
        let expires_at = lock(&self.state).expires_at;
        Contention::new(Some(self.holder.clone()), self.acquired_at, expires_at, now)
            .with_fence(Some(self.fence))
            .with_mode(self.mode)
    }

    /// How it was lost, also if the deadline has passed without anybody having noticed yet.
    pub(super) fn loss(&self) -> Option<Loss> {
        self.forked().or_else(|| {
            let state = lock(&self.state);
            state.end.or_else(|| self.overdue(&state))
        })
    }

    pub(super) fn overdue(&self, state: &State) -> Option<Loss> {
        (self.clock.instant() >= state.deadline).then(|| match self.hold_until {
            Some(until) if state.deadline >= until => Loss::MaxHold,
            _ => Loss::Expired,
        })
    }

    /// When the keeper must look at this lease next: when a renewal is due, or at the deadline if
    /// there is nothing to renew.
    pub(super) fn next_look(&self) -> Instant {
        let state = lock(&self.state);
        let final_deadline = self.hold_until.is_some_and(|until| state.deadline >= until);
        if !self.heartbeat || final_deadline {
            return state.deadline;
        }
        let lasts = state.lasts(state.ttl);
        let renew_after = lasts.renew_after();
        let left = lasts.as_duration().saturating_sub(renew_after.mul_f64(1.0 - self.early));
        let due = state.deadline.checked_sub(left).unwrap_or(state.deadline);
        self.clock.rounded_down(due, (renew_after / GRAINS).min(COARSEST_GRAIN))
    }

    /// One more guard, unless the lease has ended.
    pub(super) fn enter(&self) -> bool {
        let mut state = lock(&self.state);
        let alive = state.end.is_none() && state.guards > 0 && self.overdue(&state).is_none();
        if alive {
            state.guards += 1;
        }
        alive
    }

    /// One guard less; tells whether it was the last. The guards of a fork do not count.
    pub(super) fn leave(&self) -> bool {
        if self.forked().is_some() {
            return false;
        }
        let mut state = lock(&self.state);
        state.guards = state.guards.saturating_sub(1);
        state.guards == 0
    }

    /// Ends the lease, unless it has ended.
    pub(super) fn end(&self, loss: Loss) -> Ended {
        let mut state = lock(&self.state);
        let first = state.end.is_none();
        // A lease that ran out was lost, even if the guard is released before anybody noticed.
        let loss = state.end.or_else(|| self.overdue(&state)).unwrap_or(loss);
        state.end = Some(loss);
        drop(state);
        self.changed.notify_waiters();
        Ended { loss, first }
    }

    /// Waits for the end of the lease.
    ///
    /// It does not wait for the keeper to notice a deadline: whatever happens to that thread, work
    /// stops in time.
    pub(super) async fn ended(&self) -> Loss {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(loss) = self.loss() {
                return loss;
            }
            let deadline = lock(&self.state).deadline;
            tokio::select! {
                () = changed => {}
                () = self.clock.sleep_until(deadline) => {}
            }
        }
    }

    /// Waits until no extend is on its way any more. Once the lease has ended, none is begun.
    pub(super) async fn extends_stopped(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if !lock(&self.state).extend_on_its_way {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn set_uncertain(&self) {
        lock(&self.state).uncertain = true;
    }

    /// The store has to be asked about this lock at the next look.
    pub(super) fn doubt(&self) {
        lock(&self.state).doubted = true;
    }

    /// The store's clock was set: the store has to be asked, and what was sent before `now` does
    /// not tell.
    pub(super) fn clock_stepped(&self, now: Instant) {
        let mut state = lock(&self.state);
        state.doubted = true;
        state.stepped_at = Some(now);
    }

    pub(super) fn renew_alone(&self) {
        lock(&self.state).alone = true;
    }

    pub(super) fn is_alone(&self) -> bool {
        lock(&self.state).alone
    }

    pub(super) fn is_doubted(&self) -> bool {
        lock(&self.state).doubted
    }

    /// Takes note of the answer to a lookup that was sent at `sent`: the lease does not last longer
    /// than until `end`, unless it is extended after this. Tells whether the answer counts. It does
    /// not if an extend has told more in the meantime, or if the store's clock was set again.
    pub(super) fn looked_up(&self, sent: Instant, end: Option<Instant>) -> bool {
        let mut state = lock(&self.state);
        if !state.doubted || state.stepped_at.is_some_and(|at| sent < at) {
            return false;
        }
        state.doubted = false;
        if let Some(end) = end {
            state.deadline = state.deadline.min(end);
            state.limit = Some(state.deadline);
        }
        drop(state);
        self.changed.notify_waiters();
        true
    }

    pub(super) fn set_ttl(&self, ttl: Ttl) {
        lock(&self.state).ttl = ttl;
    }

    /// How long an extend for `ttl` may be without going past the end of `max_hold`.
    pub(super) fn capped(&self, ttl: Ttl) -> Ttl {
        let left = self.hold_until.map(|until| until.saturating_duration_since(self.clock.instant()));
        // Rounded up, so that the deadline is the end of `max_hold` and not a little before it,
        // over and over.
        left.map_or(ttl, |left| ttl.min(Ttl::nearest(left + Duration::from_nanos(999_999))))
    }
}

pub(super) fn earlier(deadline: Instant, limit: Option<Instant>) -> Instant {
    limit.map_or(deadline, |limit| deadline.min(limit))
}
