use std::time::Duration;

use tokio::sync::oneshot;

use super::acquire::Plan;
use super::queue::Turn;
use super::retry::Wait;
use super::stuck::StuckGrant;
use crate::backend::{Line, Subscription};
use crate::{Contention, Error, Fence, Key, Timestamp};

/// How long a waiter that will be woken sleeps before it looks by itself, in case the wake-up was
/// lost.
const WAKE_UP_BACKSTOP: Duration = Duration::from_secs(5);

/// How long a waiter sleeps that will be woken in this process, in case somebody else has ended the
/// lock.
const LOCAL_BACKSTOP: Duration = Duration::from_secs(1);

/// Looking exactly when a lock becomes free would be a little too early as often as not.
const MARGIN: Duration = Duration::from_millis(2);

/// How often a waiter asks again before its place in line is given up, so that one lost request
/// does not lose it.
const ASKS_PER_LEASE: u32 = 3;

/// The state of waiting for one lock: a place in line, a subscription, and the count of tries
/// without a reason.
pub(super) struct Waiting<'a> {
    plan: &'a Plan,
    turn: Turn<'a, Key>,
    subscription: Option<Subscription>,
    /// A subscription that is on its way. Meanwhile the lock may be freed in this process.
    subscribing: Option<oneshot::Receiver<Result<Subscription, Error>>>,
    retries: u32,
    /// How often the store has failed since it answered last. Whoever is the first in line keeps
    /// all others waiting, so its delays must not grow with the time that it has stood there.
    failures: u32,
    /// The grant that is in our way, and how often we looked in vain since it is.
    in_our_way: Option<(Option<Fence>, Timestamp)>,
    delays: u32,
    /// Nobody woke us for so long that the store has to be asked.
    ask: bool,
    /// We stand in line: what is asked in order to stay there is no retry.
    in_line: bool,
    stuck: StuckGrant,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(plan: &'a Plan, turn: Turn<'a, Key>) -> Self {
        Self {
            plan,
            turn,
            subscription: None,
            subscribing: None,
            retries: 0,
            failures: 0,
            in_our_way: None,
            delays: 0,
            ask: false,
            in_line: false,
            stuck: StuckGrant::new(plan.request.steal),
        }
    }

    /// The grant that has been in our way for longer than one may.
    pub(super) fn stuck(&self) -> Option<Fence> {
        self.stuck.fence(self.plan.inner.core.now())
    }

    /// Who has the lock, if this handle has: the end of that lease is told here, without the store.
    pub(super) fn held_here(&mut self) -> Option<Contention> {
        let plan = self.plan;
        if std::mem::take(&mut self.ask) || plan.request.steal.is_possible() {
            return None;
        }
        Some(plan.inner.core.held_here(&plan.request.key)?.contention())
    }

    /// Asks the keeper for a subscription, unless that is done already or cannot be done.
    pub(super) fn subscribe(&mut self) {
        let inner = &self.plan.inner;
        let asked = self.subscription.is_some() || self.subscribing.is_some();
        if !asked
            && inner.core.backend.capabilities().wake_ups
            && let Ok(keeper) = inner.keeper()
        {
            let request = &self.plan.request;
            let turn_of = self.plan.place_lease().map(|_| request.lock_id);
            self.subscribing = Some(keeper.subscribe(request.key.clone(), turn_of));
        }
    }

    pub(super) fn may_retry(&self) -> bool {
        !matches!(self.plan.wait, Wait::AsRetry) || self.retries < self.plan.retry.max_retries
    }

    /// How long to sleep after the store has failed.
    pub(super) fn delay_after_failure(&mut self) -> Duration {
        let delay = self.plan.retry.delay_after(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.in_line = false;
        delay
    }

    /// How long to sleep behind a lock of this handle.
    pub(super) fn pause_behind_us(&self) -> Duration {
        let lease = self.plan.place_lease().map_or(Duration::MAX, |lease| lease.as_duration());
        LOCAL_BACKSTOP.min(lease / ASKS_PER_LEASE)
    }

    /// How long to sleep if nobody wakes us: never past the moment the lock is free, or may be
    /// stolen, at the latest. A holder without a name was let in by a program that sends no
    /// wake-ups.
    pub(super) fn pause(&mut self, contention: &Contention) -> Duration {
        let now = self.plan.inner.core.now();
        self.failures = 0;
        self.stuck.see(contention, now);
        // Whoever got the lock just now may give it back soon.
        let grant = Some((contention.fence, contention.acquired_at));
        if self.in_our_way != grant {
            (self.in_our_way, self.delays) = (grant, 0);
        }
        let subscribed = self.subscription.is_some();
        self.in_line = contention.place.is_some();
        let behind_others = contention.place.is_some_and(|place| place > 0);
        let will_be_woken = subscribed && (contention.holder.is_some() || behind_others);
        let pause = if will_be_woken { WAKE_UP_BACKSTOP } else { self.plan.retry.delay_after(self.delays) };
        let pause = match self.plan.place_lease() {
            // A place is kept by asking again.
            Some(lease) if subscribed && !self.may_miss_its_call(contention) => {
                pause.min(lease.as_duration() / ASKS_PER_LEASE)
            }
            // Who is called has to come soon, also if it does not listen or the call was lost.
            Some(lease) => pause.min(lease.as_duration() / ASKS_PER_LEASE).min(Line::CALL_LEASE / 2),
            None => pause,
        };
        // When the holder's lease ends, it is the turn of the first in line.
        let free_in = if behind_others && contention.holders > 0 { Duration::MAX } else { contention.free_in() };
        pause.min(free_in.min(self.stuck.stealable_in(contention, now)).saturating_add(MARGIN))
    }

    /// Whether we are the first in line, and may be called without hearing of it.
    fn may_miss_its_call(&self, contention: &Contention) -> bool {
        contention.place == Some(0) && self.plan.inner.core.backend.capabilities().lossy_wake_ups
    }

    /// Sleeps until the lock may be free or `pause` has passed.
    pub(super) async fn wait(&mut self, pause: Duration) {
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
                        // Some stores find out only now that they cannot tell of anything.
                        Ok(Ok(subscription)) if core.backend.capabilities().wake_ups => {
                            // Try once more: the lock may have been freed before we were
                            // subscribed.
                            self.subscription = Some(subscription);
                            return;
                        }
                        Ok(Err(error)) => tracing::debug!(%error, "cannot subscribe to wake-ups, polling instead"),
                        Ok(Ok(_)) | Err(_) => {}
                    }
                }
                event = freed_elsewhere => {
                    if event.is_some() {
                        return;
                    }
                    // The store closed it. Polling goes on at the usual pace until there is a new
                    // one.
                    self.subscription = None;
                    until = core.after(self.plan.retry.delay_after(self.failures));
                }
                () = core.sleep_until(Some(until)) => {
                    self.retries += u32::from(!self.in_line);
                    self.delays += 1;
                    self.ask = true;
                    return;
                }
            }
        }
    }
}
