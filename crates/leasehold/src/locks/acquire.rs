use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Inner;
use super::attempt::Attempt;
use super::guard::Guard;
use super::hold::{Hold, Terms};
use super::lease::Lease;
use super::owner::Owner;
use super::queue::Turn;
use super::retry::{Retry, Wait};
use super::stuck::StuckGrant;
use crate::backend::{Acquire, AcquireRequest, Subscription};
use crate::{Contention, Error, Fence, Grant, Loss, Timestamp};

/// How long a waiter that will be woken sleeps before it looks by itself, in case the wake-up was
/// lost.
const WAKE_UP_BACKSTOP: Duration = Duration::from_secs(5);

/// How long a waiter sleeps that will be woken in this process, in case somebody else has ended the
/// lock.
const LOCAL_BACKSTOP: Duration = Duration::from_secs(1);

/// Looking exactly when a lock becomes free would be a little too early as often as not.
const MARGIN: Duration = Duration::from_millis(2);

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
enum Stopped {
    Cancelled,
    TimedOut,
}

impl Plan {
    /// One try, without waiting for anybody.
    pub(super) async fn try_once(&self) -> Result<Result<Guard, Contention>, Error> {
        self.check_open()?;
        if let Some(guard) = self.reenter() {
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
        if let Err(error) = self.inner.core.high_water.check(&self.request.key, grant.fence) {
            // A lock that was taken while its answer was on the way has a lower fence than the
            // thief's.
            if attempt.still_holds().await? {
                return Err(error);
            }
            return Ok(Tried::Lost(Loss::Gone));
        }
        Ok(Tried::Granted(grant))
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
                guard = self.reentered() => Ok(guard),
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
        let stuck = StuckGrant::new(self.request.steal);
        let mut waiting = Waiting {
            plan: self,
            turn,
            subscription: None,
            subscribing: None,
            retries: 0,
            in_our_way: None,
            delays: 0,
            ask: false,
            stuck,
        };
        let started = self.inner.core.now();
        loop {
            attempt.may_take(waiting.stuck.fence(self.inner.core.now()));
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
                    LOCAL_BACKSTOP
                }
                Ok(Tried::Lost(loss)) => {
                    *last = LastAnswer::Failed(Error::lost(loss));
                    self.retry.delay_after(waiting.retries)
                }
                Err(error) if error.is_retryable() => {
                    tracing::debug!(key = %self.request.key.hash_id(), %error, "a try failed and is made again");
                    *last = LastAnswer::Failed(error);
                    self.retry.delay_after(waiting.retries)
                }
                Err(error) => return Err(error),
            };
            if !waiting.may_retry() {
                return Err(self.give_up(started, std::mem::take(last)));
            }
            waiting.wait(pause).await;
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
    fn deadline(&self, started: Instant) -> Option<Instant> {
        let timeout = match self.wait {
            Wait::AsRetry => self.retry.timeout,
            Wait::AtMost(time) => time,
            Wait::Forever => return None,
        };
        started.checked_add(timeout)
    }

    fn check_open(&self) -> Result<(), Error> {
        let cancelled = self.cancel.as_ref().is_some_and(CancellationToken::is_cancelled);
        if cancelled || self.inner.core.closing.is_cancelled() {
            return Err(Error::aborted());
        }
        Ok(())
    }

    /// Runs `run` unless the caller cancels, the handle is shut down, or the deadline comes first.
    async fn until<T>(&self, deadline: Option<Instant>, run: impl Future<Output = T>) -> Result<T, Stopped> {
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

    fn waited(&self, started: Instant) -> Duration {
        self.inner.core.now().saturating_duration_since(started)
    }

    fn reenter(&self) -> Option<Guard> {
        let hold = self.owner.as_ref()?.reenter(&self.inner, &self.request.key)?;
        Some(Guard::new(Lease { hold, locks: self.inner.clone() }))
    }

    async fn reentered(&self) -> Guard {
        match &self.owner {
            Some(owner) => {
                let hold = owner.reentered(&self.inner, &self.request.key).await;
                Guard::new(Lease { hold, locks: self.inner.clone() })
            }
            None => std::future::pending().await,
        }
    }

    /// Makes the guard of a grant. Nothing is awaited between the grant and this.
    fn guard(&self, mut attempt: Attempt<'_>, grant: &Grant) -> Result<Guard, Error> {
        let core = &self.inner.core;
        let terms = Terms {
            key: self.request.key.clone(),
            holder: self.request.holder.clone(),
            ttl: self.request.ttl,
            heartbeat: self.heartbeat,
            max_hold: self.max_hold,
            sent: attempt.counts_from(),
            process: core.process.clone(),
            late: attempt.may_be_late().then(|| self.request.clone()),
            stray_extend: attempt.stray_extend(),
        };
        let hold = Arc::new(Hold::new(grant, terms, core.settings.clock.clone()));
        core.watch(&hold);
        let guard = Guard::new(Lease { hold: hold.clone(), locks: self.inner.clone() });
        attempt.taken_over();
        // After the hold can be seen by `shutdown`: one of the two sees the other. And `shutdown`
        // waits for the attempt, which is dropped only after the guard's release is on its way.
        if let Err(closed) = self.check_open() {
            drop(guard);
            return Err(closed);
        }
        tracing::debug!(key = %hold.key.hash_id(), fence = %hold.fence, "lock acquired");
        if let Some(owner) = &self.owner {
            owner.remember(&self.inner, &hold);
        }
        Ok(guard)
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

/// The state of waiting for one lock: a place in line, a subscription, and the count of tries
/// without a reason.
struct Waiting<'a> {
    plan: &'a Plan,
    turn: Turn<'a>,
    subscription: Option<Subscription>,
    /// A subscription that is on its way. Meanwhile the lock may be freed in this process.
    subscribing: Option<oneshot::Receiver<Result<Subscription, Error>>>,
    retries: u32,
    /// The grant that is in our way, and how often we looked in vain since it is.
    in_our_way: Option<(Option<Fence>, Timestamp)>,
    delays: u32,
    /// Nobody woke us for so long that the store has to be asked.
    ask: bool,
    stuck: StuckGrant,
}

impl Waiting<'_> {
    /// Who has the lock, if this handle has: the end of that lease is told here, without the store.
    fn held_here(&mut self) -> Option<Contention> {
        let plan = self.plan;
        if std::mem::take(&mut self.ask) || plan.request.steal.is_possible() {
            return None;
        }
        Some(plan.inner.core.held_here(&plan.request.key)?.contention())
    }

    /// Asks the keeper for a subscription, unless that is done already or cannot be done.
    fn subscribe(&mut self) {
        let inner = &self.plan.inner;
        let asked = self.subscription.is_some() || self.subscribing.is_some();
        if !asked
            && inner.core.backend.capabilities().wake_ups
            && let Ok(keeper) = inner.keeper()
        {
            self.subscribing = Some(keeper.subscribe(self.plan.request.key.clone()));
        }
    }

    fn may_retry(&self) -> bool {
        !matches!(self.plan.wait, Wait::AsRetry) || self.retries < self.plan.retry.max_retries
    }

    /// How long to sleep if nobody wakes us: never past the moment the lock is free, or may be
    /// stolen, at the latest. A holder without a name was let in by a program that sends no
    /// wake-ups.
    fn pause(&mut self, contention: &Contention) -> Duration {
        let now = self.plan.inner.core.now();
        self.stuck.see(contention, now);
        // Whoever got the lock just now may give it back soon.
        let grant = Some((contention.fence, contention.acquired_at));
        if self.in_our_way != grant {
            (self.in_our_way, self.delays) = (grant, 0);
        }
        let will_be_woken = self.subscription.is_some() && contention.holder.is_some();
        let pause = if will_be_woken { WAKE_UP_BACKSTOP } else { self.plan.retry.delay_after(self.delays) };
        pause.min(contention.free_in().min(self.stuck.stealable_in(contention, now)) + MARGIN)
    }

    /// Sleeps until the lock may be free or `pause` has passed.
    async fn wait(&mut self, pause: Duration) {
        let core = &self.plan.inner.core;
        let mut until = core.after(pause);
        loop {
            let (subscription, subscribing) = (&mut self.subscription, &mut self.subscribing);
            let subscribed = async {
                match subscribing {
                    Some(subscribing) => subscribing.await,
                    None => std::future::pending().await,
                }
            };
            let freed_elsewhere = async {
                match subscription {
                    Some(subscription) => subscription.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.turn.freed() => return,
                outcome = subscribed => {
                    self.subscribing = None;
                    match outcome {
                        Ok(Ok(subscription)) => {
                            // Try once more: the lock may have been freed before we were
                            // subscribed.
                            self.subscription = Some(subscription);
                            return;
                        }
                        Ok(Err(error)) => tracing::debug!(%error, "cannot subscribe to wake-ups, polling instead"),
                        Err(_) => {}
                    }
                }
                event = freed_elsewhere => {
                    if event.is_some() {
                        return;
                    }
                    // The store closed it. Polling goes on at the usual pace until there is a new
                    // one.
                    self.subscription = None;
                    until = core.after(self.plan.retry.delay_after(self.retries));
                }
                () = core.sleep_until(Some(until)) => {
                    self.retries += 1;
                    self.delays += 1;
                    self.ask = true;
                    return;
                }
            }
        }
    }
}

async fn cancelled(token: Option<&CancellationToken>) {
    match token {
        Some(token) => token.cancelled().await,
        None => std::future::pending().await,
    }
}
