use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Handle;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Inner;
use super::footprint::Footprint;
use super::keeper::Keeper;
use super::undo::Undo;
use crate::backend::{Acquire, AcquireRequest, Extend, LookupBy};
use crate::{Error, Fence, Grant, Operation};

/// One request's tries at the store, all with the same lock id. If it is dropped while the store
/// may hold a lock for it, the keeper gives that lock back: a cancelled or ambiguous acquire leaves
/// no orphan.
pub(super) struct Attempt<'a> {
    inner: &'a Inner,
    keeper: &'a Keeper,
    request: Arc<AcquireRequest>,
    in_flight: Option<InFlight>,
    footprint: Footprint,
    stray_extend: bool,
    /// No grant we may get was decided before this.
    not_before: Option<Sent>,
    /// Makes `shutdown` wait until the lock is a guard's or on its way back.
    _token: TaskTrackerToken,
}

/// When a try was sent.
#[derive(Clone, Copy)]
struct Sent {
    at: Instant,
    /// The highest fence that was known of the key.
    mark: Option<Fence>,
}

/// A try that was sent and not answered yet.
struct InFlight {
    /// Owned, so that its answer can be waited for even if the caller does not.
    answer: Pin<Box<dyn Future<Output = Result<Acquire, Error>> + Send>>,
    /// Where it was sent. Its answer arrives there and nowhere else. None if the store needs none.
    runtime: Option<Handle>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(inner: &'a Inner, request: Arc<AcquireRequest>) -> Result<Self, Error> {
        Ok(Self {
            inner,
            keeper: inner.keeper()?,
            request,
            in_flight: None,
            footprint: Footprint::default(),
            stray_extend: false,
            not_before: None,
            _token: inner.core.background.token(),
        })
    }

    /// Lets the next try take this grant, if there is one that may be taken.
    pub(super) fn may_take(&mut self, stuck: Option<Fence>) {
        if let Some(fence) = stuck {
            let request = Arc::make_mut(&mut self.request);
            request.steal = request.steal.with_fence(fence);
        }
    }

    /// Sends the request once and waits for the answer.
    pub(super) async fn send(&mut self) -> Result<Acquire, Error> {
        let core = &self.inner.core;
        let sent = Sent { at: core.now(), mark: core.high_water.mark(&self.request.key) };
        let (core, request) = (self.inner.core.clone(), self.request.clone());
        let answer = Box::pin(async move {
            let acquire = core.backend.acquire(&request);
            core.within(core.call_timeout, Operation::Acquire, acquire).await
        });
        let in_flight = self.in_flight.insert(InFlight { answer, runtime: Handle::try_current().ok() });
        self.not_before.get_or_insert(sent);
        let answer = poll_fn(|cx| in_flight.answer.as_mut().poll(cx)).await;
        self.in_flight = None;
        if let Ok(answer) = &answer {
            self.inner.core.heard_from_acquire(answer, self.counts_from(), sent.at);
        }
        let was_late = self.footprint.may_be_late;
        self.footprint.note(&answer);
        match &answer {
            // An earlier try whose answer was lost had not arrived before this one was answered. It
            // still may.
            Ok(Acquire::Held(_)) => self.not_before = was_late.then_some(sent),
            Err(error) if !error.outcome_unknown() && !was_late => self.not_before = None,
            Ok(Acquire::Granted(_)) | Err(_) => {}
        }
        answer
    }

    /// The moment from which a grant counts.
    pub(super) fn counts_from(&self) -> Instant {
        self.not_before.map_or_else(|| self.inner.core.now(), |sent| sent.at)
    }

    /// The fence that a grant must be above.
    pub(super) fn mark(&self) -> Option<Fence> {
        self.not_before.and_then(|sent| sent.mark)
    }

    /// Whether a try may arrive after everything else is done.
    pub(super) fn may_be_late(&self) -> bool {
        self.footprint.may_be_late
    }

    /// Whether an extend was sent that may yet arrive.
    pub(super) fn stray_extend(&self) -> bool {
        self.stray_extend
    }

    /// Makes a grant whose request was sent long ago last a full ttl again.
    pub(super) async fn refresh(&mut self, grant: &mut Grant) -> Result<(), Error> {
        let core = &self.inner.core;
        let ttl = self.request.ttl;
        let sent = core.now();
        if ttl.is_fresh_after(sent.saturating_duration_since(self.counts_from())) {
            return Ok(());
        }
        let extend = core.backend.extend(&grant.lock_id, ttl);
        // Until it is answered, and for ever if it never is.
        let stray_before = std::mem::replace(&mut self.stray_extend, true);
        let answer = core.within(core.call_timeout, Operation::Extend, extend).await;
        self.stray_extend = stray_before || answer.as_ref().is_err_and(Error::outcome_unknown);
        match answer? {
            Extend::Extended { expires_at } => {
                self.not_before = Some(Sent { at: sent, mark: self.mark() });
                grant.expires_at = expires_at;
                Ok(())
            }
            Extend::Absent(_) => {
                self.not_before = None;
                Err(Error::slower_than_its_lock())
            }
        }
    }

    /// Whether the store still has the lock that it granted.
    pub(super) async fn still_holds(&mut self) -> Result<bool, Error> {
        let core = &self.inner.core;
        let lookup = core.backend.lookup(LookupBy::Id(&self.request.lock_id));
        Ok(core.within(core.call_timeout, Operation::Lookup, lookup).await?.is_some())
    }

    /// A guard is responsible for the lock from here on.
    pub(super) fn taken_over(&mut self) {
        self.footprint = Footprint::default();
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        // The try stays on the runtime on which it was sent; only its answer is passed on. If that
        // runtime is gone, so is the answer.
        let mut footprint = self.footprint;
        let in_flight = match self.in_flight.take() {
            Some(InFlight { answer, runtime: Some(runtime) }) => Some(runtime.spawn(async move {
                footprint.note(&answer.await);
                footprint
            })),
            Some(InFlight { runtime: None, .. }) => {
                footprint = Footprint::UNKNOWN;
                None
            }
            None => None,
        };
        if in_flight.is_some() || !footprint.is_none() {
            self.keeper.undo(&self.inner.core, Undo { requests: vec![self.request.clone()], in_flight, footprint });
        }
    }
}
