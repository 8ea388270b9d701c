use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Handle;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::background::{Undo, Work};
use super::keeper::Keeper;
use super::{Inner, PlantedBug};
use crate::{Acquire, AcquireRequest, Error, ErrorCode, Extend, Grant, Operation};

type InFlight = Pin<Box<dyn Future<Output = Result<Acquire, Error>> + Send>>;

/// One request's tries at the store, all with the same lock id. If it is dropped while the store may hold a lock for
/// it, the keeper gives that lock back: a cancelled or ambiguous acquire leaves no orphan.
pub(super) struct Attempt<'a> {
    inner: &'a Inner,
    keeper: &'a Keeper,
    request: Arc<AcquireRequest>,
    in_flight: Option<InFlight>,
    /// The store may hold a lock with our id.
    may_hold: bool,
    /// A try was given up without an answer, and may arrive at any time.
    may_be_late: bool,
    /// No grant we may get was decided before this moment.
    not_before: Option<Instant>,
    /// Makes `shutdown` wait until the lock is a guard's or on its way back.
    _token: TaskTrackerToken,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(inner: &'a Inner, request: Arc<AcquireRequest>) -> Result<Self, Error> {
        Ok(Self {
            inner,
            keeper: inner.keeper()?,
            request,
            in_flight: None,
            may_hold: false,
            may_be_late: false,
            not_before: None,
            _token: inner.core.background.token(),
        })
    }

    /// Sends the request once and waits for the answer.
    pub(super) async fn send(&mut self) -> Result<Acquire, Error> {
        let core = &self.inner.core;
        let sent = core.now();
        let (core, request) = (core.clone(), self.request.clone());
        // Owned, so that its answer can be waited for even if the caller does not.
        let in_flight: &mut InFlight = self.in_flight.insert(Box::pin(async move {
            let acquire = core.backend.acquire(&request);
            core.within(core.settings.operation_timeout, Operation::Acquire, acquire).await
        }));
        self.not_before.get_or_insert(sent);
        let answer = poll_fn(|cx| in_flight.as_mut().poll(cx)).await;
        self.in_flight = None;
        match &answer {
            Ok(Acquire::Granted(_)) => self.may_hold = true,
            // An earlier try whose answer was lost had not arrived before this one was answered. It still may.
            Ok(Acquire::Held(_)) => self.not_before = self.may_be_late.then_some(sent),
            Err(error) if error.outcome_unknown() => (self.may_hold, self.may_be_late) = (true, true),
            Err(_) if !self.may_be_late => self.not_before = None,
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

    /// Whether a try may arrive after everything else is done.
    pub(super) fn may_be_late(&self) -> bool {
        self.may_be_late
    }

    /// Makes a grant whose request was sent long ago last a full ttl again.
    pub(super) async fn refresh(&mut self, grant: &mut Grant) -> Result<(), Error> {
        let core = &self.inner.core;
        let ttl = self.request.ttl;
        if core.now().saturating_duration_since(self.counts_from()) <= ttl.as_duration() * 2 / 3 {
            return Ok(());
        }
        let sent = core.now();
        let extend = core.backend.extend(&grant.lock_id, ttl);
        match core.within(core.settings.operation_timeout, Operation::Extend, extend).await? {
            Extend::Extended { expires_at } => {
                self.not_before = Some(sent);
                grant.expires_at = expires_at;
                Ok(())
            }
            Extend::Absent(_) => {
                self.not_before = None;
                Err(Error::new(ErrorCode::NetworkTimeout, "the store answers more slowly than the lock lasts")
                    .with_hint("use a longer ttl"))
            }
        }
    }

    /// Whether the store still has the lock that it granted.
    pub(super) async fn still_holds(&mut self) -> Result<bool, Error> {
        let core = &self.inner.core;
        let lookup = core.backend.lookup(crate::LookupBy::Id(&self.request.lock_id));
        Ok(core.within(core.settings.operation_timeout, Operation::Lookup, lookup).await?.is_some())
    }

    /// A guard is responsible for the lock from here on.
    pub(super) fn taken_over(&mut self) {
        (self.may_hold, self.may_be_late) = (false, false);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.inner.core.settings.planted(PlantedBug::ForgetCancelled) {
            return;
        }
        // The answer can be had only on the runtime on which it was asked for. If that is gone, so is the answer.
        let runtime = Handle::try_current().ok();
        let asked = self.in_flight.is_some();
        let in_flight = self.in_flight.take().zip(runtime).map(|(in_flight, runtime)| runtime.spawn(in_flight));
        let unanswered = asked && in_flight.is_none();
        if asked || self.may_hold {
            let undo = Undo {
                request: self.request.clone(),
                in_flight,
                may_hold: self.may_hold || unanswered,
                may_be_late: self.may_be_late || unanswered,
            };
            drop(self.keeper.send(&self.inner.core, Work::Undo(undo)));
        }
    }
}
