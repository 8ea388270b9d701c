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
use crate::backend::{AcquireAll, AcquireRequest, Extend, LookupBy};
use crate::{Error, Fence, Grant, Operation};

/// What [`Attempt`](super::attempt::Attempt) is to one lock, for several that are asked for
/// together.
pub(super) struct AttemptAll<'a> {
    inner: &'a Inner,
    keeper: &'a Keeper,
    requests: Arc<[AcquireRequest]>,
    in_flight: Option<InFlight>,
    footprint: Footprint,
    stray_extend: bool,
    /// No grant we may get was decided before this.
    not_before: Option<Sent>,
    /// Makes `shutdown` wait until the locks are guards' or on their way back.
    _token: TaskTrackerToken,
}

/// When a try was sent, and the highest fence that was known of each key.
#[derive(Clone)]
struct Sent {
    at: Instant,
    marks: Arc<[Option<Fence>]>,
}

struct InFlight {
    answer: Pin<Box<dyn Future<Output = Result<AcquireAll, Error>> + Send>>,
    runtime: Option<Handle>,
}

impl<'a> AttemptAll<'a> {
    pub(super) fn new(inner: &'a Inner, requests: Arc<[AcquireRequest]>) -> Result<Self, Error> {
        Ok(Self {
            inner,
            keeper: inner.keeper()?,
            requests,
            in_flight: None,
            footprint: Footprint::default(),
            stray_extend: false,
            not_before: None,
            _token: inner.core.background.token(),
        })
    }

    /// Sends the requests once and waits for the answer.
    pub(super) async fn send(&mut self) -> Result<AcquireAll, Error> {
        let core = self.inner.core.clone();
        let marks = self.requests.iter().map(|request| core.high_water.mark(&request.key)).collect();
        let sent = Sent { at: core.now(), marks };
        let requests = self.requests.clone();
        let answer = Box::pin(async move {
            let acquire = core.backend.acquire_all(&requests);
            core.within(core.call_timeout, Operation::Acquire, acquire).await
        });
        let in_flight = self.in_flight.insert(InFlight { answer, runtime: Handle::try_current().ok() });
        self.not_before.get_or_insert(sent.clone());
        let answer = poll_fn(|cx| in_flight.answer.as_mut().poll(cx)).await;
        self.in_flight = None;
        let was_late = self.footprint.may_be_late;
        note(&mut self.footprint, &answer);
        match &answer {
            Ok(AcquireAll::Held { .. }) => self.not_before = was_late.then_some(sent),
            Err(error) if !error.outcome_unknown() && !was_late => self.not_before = None,
            Ok(AcquireAll::Granted(_)) | Err(_) => {}
        }
        answer
    }

    /// The moment from which a grant counts.
    pub(super) fn counts_from(&self) -> Instant {
        self.not_before.as_ref().map_or_else(|| self.inner.core.now(), |sent| sent.at)
    }

    /// The fence that the grant of this request must be above.
    pub(super) fn mark(&self, which: usize) -> Option<Fence> {
        self.not_before.as_ref().and_then(|sent| sent.marks.get(which).copied().flatten())
    }

    /// Whether a try may arrive after everything else is done.
    pub(super) fn may_be_late(&self) -> bool {
        self.footprint.may_be_late
    }

    /// Whether an extend was sent that may yet arrive.
    pub(super) fn stray_extend(&self) -> bool {
        self.stray_extend
    }

    /// Makes grants whose request was sent long ago last a full ttl again.
    pub(super) async fn refresh(&mut self, grants: &mut [Grant]) -> Result<(), Error> {
        let core = self.inner.core.clone();
        let sent = core.now();
        let waited = sent.saturating_duration_since(self.counts_from());
        if self.requests.iter().all(|request| request.ttl.is_fresh_after(waited)) {
            return Ok(());
        }
        let locks: Vec<_> = self.requests.iter().map(|request| (request.lock_id, request.ttl)).collect();
        let extend = async { Ok(core.backend.extend_many(&locks).await) };
        // Until it is answered, and for ever if it never is.
        let stray_before = std::mem::replace(&mut self.stray_extend, true);
        let answers = core.within(core.call_timeout, Operation::Extend, extend).await?;
        let unknown = |answer: &Result<Extend, Error>| answer.as_ref().is_err_and(Error::outcome_unknown);
        self.stray_extend = stray_before || answers.iter().any(unknown);
        for (grant, answer) in grants.iter_mut().zip(answers) {
            let Extend::Extended { expires_at } = answer? else {
                self.not_before = None;
                return Err(Error::slower_than_its_lock());
            };
            grant.expires_at = expires_at;
        }
        if let Some(before) = &mut self.not_before {
            before.at = sent;
        }
        Ok(())
    }

    /// Whether the store still has all the locks that it granted.
    pub(super) async fn still_holds_all(&mut self) -> Result<bool, Error> {
        let core = &self.inner.core;
        for request in self.requests.iter() {
            let lookup = core.backend.lookup(LookupBy::Id(&request.lock_id));
            if core.within(core.call_timeout, Operation::Lookup, lookup).await?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Guards are responsible for the locks from here on.
    pub(super) fn taken_over(&mut self) {
        self.footprint = Footprint::default();
    }
}

fn note(footprint: &mut Footprint, answer: &Result<AcquireAll, Error>) {
    match answer {
        Ok(AcquireAll::Granted(_)) => footprint.may_hold = true,
        Err(error) if error.outcome_unknown() => *footprint = Footprint::UNKNOWN,
        Ok(AcquireAll::Held { .. }) | Err(_) => {}
    }
}

impl Drop for AttemptAll<'_> {
    fn drop(&mut self) {
        let mut footprint = self.footprint;
        let in_flight = match self.in_flight.take() {
            Some(InFlight { answer, runtime: Some(runtime) }) => Some(runtime.spawn(async move {
                note(&mut footprint, &answer.await);
                footprint
            })),
            Some(InFlight { runtime: None, .. }) => {
                footprint = Footprint::UNKNOWN;
                None
            }
            None => None,
        };
        if in_flight.is_some() || !footprint.is_none() {
            let requests = self.requests.iter().cloned().map(Arc::new).collect();
            self.keeper.undo(&self.inner.core, Undo { requests, in_flight, footprint });
        }
    }
}
