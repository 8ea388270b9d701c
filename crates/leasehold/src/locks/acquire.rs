use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::Inner;
use super::attempt::Attempt;
use super::guard::Guard;
use super::hold::{Hold, Terms};
use super::lease::Lease;
use super::owner::Owner;
use super::retry::{Retry, Wait};
use super::waiting::Waiting;
use crate::backend::{Acquire, AcquireRequest, Line};
use crate::{Contention, Error, Grant, Loss, Mode, Ttl};

/// What is called each time somebody else turns out to hold the lock.
pub(super) type OnContention = Arc<dyn Fn(&Contention) + Send + Sync>;

/// A checked request, ready to be carried out.
pub(super) struct Plan {
    pub(super) inner: Arc<Inner>,
    pub(super) request: Arc<AcquireRequest>,
    pub(super) heartbeat: bool,
    pub(super) max_hold: Option<Duration>,
    pub(super) wait: Wait,
    pub(super) retry: Retry,
    pub(super) cancel: Option<CancellationToken>,
    pub(super) owner: Option<Owner>,
    pub(super) on_contention: Option<OnContention>,
}

/// Why something was not waited for to its end.
#[derive(Clone, Copy)]
pub(super) enum Stopped {
    Cancelled,
    TimedOut,
}

impl Stopped {
    pub(super) fn is_timeout(self) -> bool {
        matches!(self, Stopped::TimedOut)
    }
}

impl Plan {
    /// One try, without waiting for anybody.
    pub(super) async fn try_once(&self) -> Result<Result<Guard, Contention>, Error> {
        self.check_open()?;
        if let Some(guard) = self.reenter()? {
            return Ok(Ok(guard));
        }
        self.inner.core.room().await?;
        let mut attempt = Attempt::new(&self.inner, self.request.clone())?;
        match self.until(None, self.try_with(&mut attempt)).await.map_err(|_| Error::aborted())?? {
            Tried::Held(contention) | Tried::HeldHere(contention) => Ok(Err(contention)),
            Tried::Granted(grant) => self.guard(attempt, &grant).map(Ok),
            Tried::Lost(loss) => Err(Error::lost(loss)),
        }
    }

    /// Asks the store once. A grant is good to be handed out.
    async fn try_with(&self, attempt: &mut Attempt<'_>) -> Result<Tried, Error> {
        let mut grant = match attempt.send().await? {
            Acquire::Granted(grant) => grant,
            Acquire::Held(contention) => return Ok(Tried::Held(contention)),
        };
        attempt.refresh(&mut grant).await?;
        let checked = self.inner.core.high_water.check(&self.request.key, attempt.mark(), grant.fence);
        if let Ok(true) = checked {
            return Ok(Tried::Granted(grant));
        }
        // A lock that was taken while its answer was on the way has a lower fence than the thief's.
        if !attempt.still_holds().await? {
            return Ok(Tried::Lost(Loss::Gone));
        }
        checked.map(|_| Tried::Granted(grant))
    }

    /// Tries until the lock is ours or the time is over: subscribe, try, wait, again.
    pub(super) async fn acquire(&self) -> Result<Guard, Error> {
        let started = self.inner.core.now();
        let result = self.wait_and_acquire(started).await;
        let outcome = if result.is_ok() { "acquired" } else { "gave_up" };
        self.inner.core.settings.metrics.waited(|| self.waited(started), outcome);
        result
    }

    async fn wait_and_acquire(&self, started: Instant) -> Result<Guard, Error> {
        self.check_open()?;
        let deadline = self.deadline(started);
        let mut last = LastAnswer::None;
        let acquire = async {
            tokio::select! {
                biased;
                // Another task of the same owner may have the lock already, or get it while this
                // one waits.
                guard = self.reentered() => guard,
                guard = self.wait_in_line(&mut last) => guard,
            }
        };
        match self.until(deadline, acquire).await {
            Ok(result) => result,
            Err(Stopped::Cancelled) => Err(Error::aborted()),
            Err(Stopped::TimedOut) => Err(self.give_up(started, last)),
        }
    }

    async fn wait_in_line(&self, last: &mut LastAnswer) -> Result<Guard, Error> {
        let turn = self.inner.core.queue.enter(&self.request.key).await;
        let mut attempt = Attempt::new(&self.inner, self.request.clone())?;
        let mut waiting = Waiting::new(self, turn);
        let started = self.inner.core.now();
        loop {
            attempt.may_take(waiting.stuck());
            let tried = match waiting.held_here() {
                Some(contention) => Ok(Tried::HeldHere(contention)),
                None => match self.inner.core.room().await {
                    Ok(()) => self.try_with(&mut attempt).await,
                    Err(error) => Err(error),
                },
            };
            let pause = match tried {
                Ok(Tried::Granted(grant)) => return self.guard(attempt, &grant),
                Ok(Tried::Held(contention)) => {
                    self.tell(&contention);
                    let pause = waiting.pause(&contention);
                    *last = LastAnswer::Held(contention);
                    waiting.subscribe();
                    pause
                }
                Ok(Tried::HeldHere(contention)) => {
                    self.tell(&contention);
                    *last = LastAnswer::Held(contention);
                    waiting.pause_behind_us()
                }
                Ok(Tried::Lost(loss)) => {
                    *last = LastAnswer::Failed(Error::lost(loss));
                    waiting.delay_after_failure()
                }
                Err(error) if error.is_retryable() => {
                    tracing::debug!(key = %self.request.key.hash_id(), %error, "a try failed and is made again");
                    *last = LastAnswer::Failed(error);
                    waiting.delay_after_failure()
                }
                Err(error) => return Err(error),
            };
            if !waiting.may_retry() {
                return Err(self.give_up(started, std::mem::take(last)));
            }
            waiting.wait(pause).await;
        }
    }

    /// The lease of our place in line, if we stand in line.
    pub(super) fn place_lease(&self) -> Option<Ttl> {
        match self.request.line {
            Line::Join { lease } => Some(lease),
            Line::Ignore | Line::Heed => None,
        }
    }

    fn tell(&self, contention: &Contention) {
        tracing::debug!(key = %self.request.key.hash_id(), %contention, "the lock is taken, waiting");
        if let Some(tell) = &self.on_contention {
            tell(contention);
        }
    }

    /// Until when to wait. No deadline if there is no waiting at all: a single try takes as long as
    /// it takes.
    pub(super) fn deadline(&self, started: Instant) -> Option<Instant> {
        let timeout = match self.wait {
            Wait::AsRetry => self.retry.timeout,
            Wait::AtMost(time) => time,
            Wait::Forever => return None,
        };
        started.checked_add(timeout)
    }

    pub(super) fn check_open(&self) -> Result<(), Error> {
        let cancelled = self.cancel.as_ref().is_some_and(CancellationToken::is_cancelled);
        if cancelled || self.inner.core.closing.is_cancelled() {
            return Err(Error::aborted());
        }
        Ok(())
    }

    /// Runs `run` unless the caller cancels, the handle is shut down, or the deadline comes first.
    pub(super) async fn until<T>(&self, deadline: Option<Instant>, run: impl Future<Output = T>) -> Result<T, Stopped> {
        let core = &self.inner.core;
        tokio::select! {
            biased;
            value = run => Ok(value),
            () = cancelled(self.cancel.as_ref()) => Err(Stopped::Cancelled),
            () = core.closing.cancelled() => Err(Stopped::Cancelled),
            () = core.sleep_until(deadline) => Err(Stopped::TimedOut),
        }
    }

    /// The error of a request that ran out of time: the store's if that was what it met last.
    fn give_up(&self, started: Instant, last: LastAnswer) -> Error {
        match last {
            LastAnswer::Failed(error) => error,
            LastAnswer::Held(contention) => Error::acquisition_timeout(self.waited(started), Some(contention)),
            LastAnswer::None => Error::acquisition_timeout(self.waited(started), None),
        }
    }

    /// The error of a request for several locks that ran out of time.
    pub(super) fn timed_out(&self, started: Instant, last: Option<Result<Contention, Error>>) -> Error {
        self.give_up(
            started,
            last.map_or(LastAnswer::None, |last| last.map_or_else(LastAnswer::Failed, LastAnswer::Held)),
        )
    }

    fn waited(&self, started: Instant) -> Duration {
        self.inner.core.now().saturating_duration_since(started)
    }

    fn reenter(&self) -> Result<Option<Guard>, Error> {
        let Some(owner) = &self.owner else { return Ok(None) };
        let hold = owner.reenter(&self.inner, &self.request.key);
        hold.map(|hold| self.nested(hold)).transpose()
    }

    async fn reentered(&self) -> Result<Guard, Error> {
        match &self.owner {
            Some(owner) => self.nested(owner.reentered(&self.inner, &self.request.key).await),
            None => std::future::pending().await,
        }
    }

    /// A guard on a lease that was entered once more, if it gives what this request asks for.
    fn nested(&self, hold: Arc<Hold>) -> Result<Guard, Error> {
        let mode = hold.mode;
        // Dropped if it is not good enough, which leaves the lease again.
        let guard = Guard::new(Lease { hold, locks: self.inner.clone() });
        if mode == Mode::Exclusive || mode.goes_with(self.request.mode) {
            return Ok(guard);
        }
        Err(Error::invalid("the owner holds this key in another way already, and would wait for itself")
            .with_hint("take the key exclusively from the start, or release it first"))
    }

    /// Makes the guard of a grant. Nothing is awaited between the grant and this.
    fn guard(&self, mut attempt: Attempt<'_>, grant: &Grant) -> Result<Guard, Error> {
        let (sent, late) = (attempt.counts_from(), attempt.may_be_late());
        let guard = self.guard_of(&self.request, grant, sent, late, attempt.stray_extend());
        attempt.taken_over();
        // After the hold can be seen by `shutdown`: one of the two sees the other. And `shutdown`
        // waits for the attempt, which is dropped only after the guard's release is on its way.
        if let Err(closed) = self.check_open() {
            drop(guard);
            return Err(closed);
        }
        if let Some(owner) = &self.owner {
            owner.remember(&self.inner, &guard.lease().hold);
        }
        Ok(guard)
    }

    /// Has the keeper watch a grant whose request was `sent`, and makes its guard.
    pub(super) fn guard_of(
        &self,
        request: &Arc<AcquireRequest>,
        grant: &Grant,
        sent: Instant,
        late: bool,
        stray_extend: bool,
    ) -> Guard {
        let core = &self.inner.core;
        let terms = Terms {
            key: request.key.clone(),
            holder: request.holder.clone(),
            ttl: request.ttl,
            mode: request.mode,
            heartbeat: self.heartbeat,
            max_hold: self.max_hold,
            sent,
            process: core.process.clone(),
            late: late.then(|| request.clone()),
            stray_extend,
        };
        let hold = Arc::new(Hold::new(grant, terms, core.settings.clock.clone()));
        core.watch(&hold);
        tracing::debug!(key = %hold.key.hash_id(), fence = %hold.fence, "lock acquired");
        Guard::new(Lease { hold, locks: self.inner.clone() })
    }
}

/// What one try came to.
enum Tried {
    Granted(Grant),
    Held(Contention),
    /// This handle holds it, so that the store need not be asked.
    HeldHere(Contention),
    /// It was granted, and taken away before the answer came.
    Lost(Loss),
}

/// What the store said last to a request that waits.
#[derive(Default)]
enum LastAnswer {
    #[default]
    None,
    Held(Contention),
    Failed(Error),
}

async fn cancelled(token: Option<&CancellationToken>) {
    match token {
        Some(token) => token.cancelled().await,
        None => std::future::pending().await,
    }
}
