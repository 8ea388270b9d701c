use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Inner;
use super::acquire::Plan;
use super::attempt_all::AttemptAll;
use super::guard::Guard;
use super::guards::Guards;
use super::retry::Wait;
use crate::backend::{AcquireAll, AcquireRequest, Subscription};
use crate::{Contention, Error, Grant, Key, Loss};

/// How long a waiter sleeps at most before it looks again. It stands in no line, so nobody calls it
/// while others do.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Looking exactly when a lock becomes free would be a little too early as often as not.
const MARGIN: Duration = Duration::from_millis(2);

/// What is called each time somebody else turns out to hold one of the locks.
pub(super) type OnKeyContention = Arc<dyn Fn(&Key, &Contention) + Send + Sync>;

/// Checked requests for several locks, ready to be carried out together.
pub(super) struct PlanAll {
    pub(super) requests: Arc<[AcquireRequest]>,
    /// What they have in common, for a key of no meaning.
    pub(super) common: Plan,
    pub(super) on_contention: Option<OnKeyContention>,
}

/// What one try came to.
enum Tried {
    Granted(Vec<Grant>),
    Held {
        key: Key,
        contention: Contention,
    },
    /// They were granted, and one was taken away before the answer came.
    Lost(Loss),
}

impl PlanAll {
    fn inner(&self) -> &Arc<Inner> {
        &self.common.inner
    }

    /// One try, without waiting for anybody.
    pub(super) async fn try_once(&self) -> Result<Result<Guards, (Key, Contention)>, Error> {
        self.common.check_open()?;
        self.inner().core.room().await?;
        let mut attempt = AttemptAll::new(self.inner(), self.requests.clone())?;
        match self.common.until(None, self.try_with(&mut attempt)).await.map_err(|_| Error::aborted())?? {
            Tried::Granted(grants) => self.guards(attempt, &grants).map(Ok),
            Tried::Held { key, contention } => Ok(Err((key, contention))),
            Tried::Lost(loss) => Err(Error::lost(loss)),
        }
    }

    /// Asks the store once. Grants are good to be handed out.
    async fn try_with(&self, attempt: &mut AttemptAll<'_>) -> Result<Tried, Error> {
        let mut grants = match attempt.send().await? {
            AcquireAll::Granted(grants) => grants,
            AcquireAll::Held { which, contention } => {
                return Ok(Tried::Held { key: self.requests[which].key.clone(), contention });
            }
        };
        attempt.refresh(&mut grants).await?;
        let high_water = &self.inner().core.high_water;
        let checked = self
            .requests
            .iter()
            .zip(&grants)
            .enumerate()
            .map(|(which, (request, grant))| high_water.check(&request.key, attempt.mark(which), grant.fence));
        let checked: Vec<_> = checked.collect();
        if checked.iter().all(|checked| matches!(checked, Ok(true))) {
            return Ok(Tried::Granted(grants));
        }
        // A lock that was taken while its answer was on the way has a lower fence than the thief's.
        if !attempt.still_holds_all().await? {
            return Ok(Tried::Lost(Loss::Gone));
        }
        checked.into_iter().collect::<Result<Vec<_>, Error>>().map(|_| Tried::Granted(grants))
    }

    /// Tries until the locks are ours or the time is over.
    pub(super) async fn acquire(&self) -> Result<Guards, Error> {
        self.common.check_open()?;
        let started = self.inner().core.now();
        let deadline = self.common.deadline(started);
        let mut last = None;
        match self.common.until(deadline, self.wait_and_acquire(started, &mut last)).await {
            Ok(result) => result,
            Err(stopped) if stopped.is_timeout() => Err(self.common.timed_out(started, last)),
            Err(_) => Err(Error::aborted()),
        }
    }

    async fn wait_and_acquire(
        &self,
        started: Instant,
        last: &mut Option<Result<Contention, Error>>,
    ) -> Result<Guards, Error> {
        let core = &self.inner().core;
        // Those who want the same take turns at the store. Nobody else waits for us: whoever has
        // one of the keys may want another before it gives that back.
        let keys = self.requests.iter().map(|request| request.key.clone()).collect();
        let _turn = core.queue_of_several.enter(&keys).await;
        let mut attempt = AttemptAll::new(self.inner(), self.requests.clone())?;
        let (mut watch, mut looks, mut retries) = (Watch::default(), 0, 0);
        loop {
            let tried = match core.room().await {
                Ok(()) => self.try_with(&mut attempt).await,
                Err(error) => Err(error),
            };
            let failed = !matches!(tried, Ok(Tried::Held { .. }));
            let delay = self.common.retry.delay_after(looks);
            let pause = match tried {
                Ok(Tried::Granted(grants)) => return self.guards(attempt, &grants),
                Ok(Tried::Held { key, contention }) => {
                    if let Some(tell) = &self.on_contention {
                        tell(&key, &contention);
                    }
                    let free_in = contention.free_in().saturating_add(MARGIN);
                    *last = Some(Ok(contention));
                    if self.watch(&mut watch, &key).await {
                        // It may have been freed before we were subscribed.
                        continue;
                    }
                    delay.clamp(MARGIN, LOOK_AGAIN).min(free_in)
                }
                Ok(Tried::Lost(loss)) => {
                    *last = Some(Err(Error::lost(loss)));
                    delay
                }
                Err(error) if error.is_retryable() => {
                    *last = Some(Err(error));
                    delay
                }
                Err(error) => return Err(error),
            };
            if matches!(self.common.wait, Wait::AsRetry) && retries >= self.common.retry.max_retries {
                return Err(self.common.timed_out(started, last.take()));
            }
            if watch.wait(core.sleep(pause)).await {
                looks += 1;
                // Whoever will be woken looks, too, and retries nothing.
                retries += u32::from(failed || watch.freed.is_none());
            }
        }
    }

    /// Listens for the end of the lock that is in the way. Tells whether it does so only now.
    async fn watch(&self, watch: &mut Watch, key: &Key) -> bool {
        let core = &self.inner().core;
        if watch.of.as_ref() == Some(key) || !core.backend.capabilities().wake_ups {
            return false;
        }
        *watch = Watch { of: Some(key.clone()), freed: None };
        let Ok(keeper) = self.inner().keeper() else { return false };
        watch.freed = keeper.subscribe(key.clone(), None).await.ok().and_then(Result::ok);
        watch.freed.is_some()
    }

    /// Makes the guards of grants. Nothing is awaited between the grants and this.
    fn guards(&self, mut attempt: AttemptAll<'_>, grants: &[Grant]) -> Result<Guards, Error> {
        let Some(fence) = grants.first().map(|grant| grant.fence) else {
            return Err(Error::invalid("there are no keys to lock"));
        };
        let (sent, late, stray) = (attempt.counts_from(), attempt.may_be_late(), attempt.stray_extend());
        let guard = |(request, grant): (&AcquireRequest, &Grant)| -> Guard {
            self.common.guard_of(&Arc::new(request.clone()), grant, sent, late, stray)
        };
        let guards = Guards::new(self.requests.iter().zip(grants).map(guard).collect(), fence);
        attempt.taken_over();
        // After the holds can be seen by `shutdown`: one of the two sees the other.
        self.common.check_open()?;
        Ok(guards)
    }
}

/// Where a request that waits hears that the lock in its way may be free.
#[derive(Default)]
struct Watch {
    of: Option<Key>,
    freed: Option<Subscription>,
}

impl Watch {
    /// Sleeps until the lock may be free, or `pause` has passed, which is then told.
    async fn wait(&mut self, pause: impl Future<Output = ()>) -> bool {
        let freed = async {
            match &mut self.freed {
                Some(freed) => freed.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = freed => {
                if event.is_none() {
                    *self = Self::default();
                }
                false
            }
            () = pause => true,
        }
    }
}
