use std::future::poll_fn;
use std::sync::Arc;
use std::time::Instant;

use super::keeper::{InFlight, Keeper};
use super::{Inner, PlantedBug};
use crate::{Acquire, AcquireRequest, Error, Extend, Grant, Operation};

/// One request's tries at the store, all with the same lock id. If it is dropped while the store may hold a lock for
/// it, the keeper gives that lock back: a cancelled or ambiguous acquire leaves no orphan.
pub(super) struct Attempt<'a> {
    inner: &'a Inner,
    keeper: &'a Keeper,
    request: Arc<AcquireRequest>,
    in_flight: Option<InFlight>,
    /// The store may hold a lock with our id.
    may_hold: bool,
    /// No grant we may get was decided before this moment.
    not_before: Option<Instant>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(inner: &'a Inner, request: Arc<AcquireRequest>) -> Result<Self, Error> {
        let keeper = inner.keeper()?;
        Ok(Self { inner, keeper, request, in_flight: None, may_hold: false, not_before: None })
    }

    /// Sends the request once and waits for the answer, or goes on waiting for the answer of the one before.
    pub(super) async fn send(&mut self) -> Result<Acquire, Error> {
        let core = &self.inner.core;
        let sent = core.now();
        let in_flight = self.in_flight.get_or_insert_with(|| {
            let (core, request) = (core.clone(), self.request.clone());
            // Owned, so that the keeper can wait for the answer if the caller does not.
            Box::pin(async move {
                let acquire = core.backend.acquire(&request);
                core.within(core.settings.operation_timeout, Operation::Acquire, acquire).await
            })
        });
        self.not_before.get_or_insert(sent);
        let answer = poll_fn(|cx| in_flight.as_mut().poll(cx)).await;
        self.in_flight = None;
        match &answer {
            Ok(Acquire::Granted(_)) => self.may_hold = true,
            // An earlier try whose answer was lost had not arrived before this one was answered. It still may.
            Ok(Acquire::Held(_)) => self.not_before = self.may_hold.then_some(sent),
            Err(error) if error.outcome_unknown() => self.may_hold = true,
            Err(_) if !self.may_hold => self.not_before = None,
            Err(_) => {}
        }
        answer
    }

    /// The moment from which a grant counts.
    pub(super) fn counts_from(&self) -> Instant {
        let core = &self.inner.core;
        match self.not_before {
            Some(sent) if !core.settings.planted(PlantedBug::CountFromAnswer) => sent,
            _ => core.now(),
        }
    }

    /// Makes a grant whose request was sent long ago last a full ttl again. False if it is gone already.
    pub(super) async fn refresh(&mut self, grant: &mut Grant) -> Result<bool, Error> {
        let core = &self.inner.core;
        let ttl = self.request.ttl;
        if core.now().saturating_duration_since(self.counts_from()) <= ttl.as_duration() * 2 / 3 {
            return Ok(true);
        }
        let sent = core.now();
        let extend = core.backend.extend(&grant.lock_id, ttl);
        match core.within(core.settings.operation_timeout, Operation::Extend, extend).await? {
            Extend::Extended { expires_at } => {
                self.not_before = Some(sent);
                grant.expires_at = expires_at;
                Ok(true)
            }
            Extend::Absent(_) => Ok(false),
        }
    }

    /// A guard is responsible for the lock from here on.
    pub(super) fn taken_over(mut self) {
        self.may_hold = false;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.inner.core.settings.planted(PlantedBug::ForgetCancelled) {
            return;
        }
        let in_flight = self.in_flight.take();
        if in_flight.is_some() || self.may_hold {
            self.keeper.undo(&self.inner.core, self.request.clone(), in_flight, self.may_hold);
        }
    }
}
