use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::Locks;
use super::acquire_all::{OnKeyContention, PlanAll};
use super::guards::Guards;
use super::request::{Asks, LockRequest};
use super::retry::Retry;
use crate::backend::MOST_KEYS;
use crate::{Contention, Error, Holder, Key, LockId, Ttl};

impl Locks {
    /// Starts a request for the locks of several keys, which are taken all together or not at all:
    /// nobody can wait for one while holding another, so there is no deadlock.
    ///
    /// One [fence](Guards::fence) is for all of them. It passes nobody who stands in line for any
    /// of the keys, and stands in none itself: behind a line that never ends it waits for ever.
    ///
    /// ```
    /// # use leasehold::memory::Memory;
    /// # use leasehold::Locks;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// # let locks = Locks::new(Memory::new());
    /// let accounts = locks.lock_all(["account:1", "account:2"]).acquire().await?;
    /// println!("move the money with fence {}", accounts.fence());
    /// assert!(locks.lock("account:2").try_acquire().await?.is_none());
    /// accounts.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_all<K>(&self, keys: impl IntoIterator<Item = K>) -> LockAllRequest
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let keys = keys.into_iter().map(|key| key.try_into().map_err(Into::into)).collect();
        LockAllRequest { keys: check(keys), settings: self.lock("several keys"), on_contention: None }
    }
}

/// Sorted, so that tasks of one handle that want the same keys are known to.
fn check(keys: Result<Vec<Key>, Error>) -> Result<Vec<Key>, Error> {
    let mut keys = keys?;
    if keys.is_empty() {
        return Err(Error::invalid("there are no keys to lock"));
    }
    if keys.len() > MOST_KEYS {
        return Err(Error::invalid(format!("more than {MOST_KEYS} keys cannot be locked at once")));
    }
    if keys.iter().collect::<HashSet<_>>().len() < keys.len() {
        return Err(Error::invalid("a key is there twice"));
    }
    keys.sort();
    Ok(keys)
}

/// A request for several locks at once, made by [`Locks::lock_all`]. Its options mean what they
/// mean for [`LockRequest`]. It cannot steal or re-enter: an owner that holds one of the keys would
/// wait for itself. And it stands in no line, but passes nobody who does.
///
/// All the calls that get locks are cancel-safe: a dropped future leaves no lock behind.
#[must_use = "a request does nothing until it is acquired or run"]
pub struct LockAllRequest {
    keys: Result<Vec<Key>, Error>,
    /// What all the locks have in common, for a key of no meaning.
    settings: LockRequest,
    on_contention: Option<OnKeyContention>,
}

impl LockAllRequest {
    fn with(mut self, set: impl FnOnce(LockRequest) -> LockRequest) -> Self {
        self.settings = set(self.settings);
        self
    }

    /// How long the locks last without renewal: see [`LockRequest::ttl`].
    pub fn ttl<T>(self, ttl: T) -> Self
    where
        T: TryInto<Ttl>,
        T::Error: Into<Error>,
    {
        self.with(|settings| settings.ttl(ttl))
    }

    /// Waits up to `time` for the locks: see [`LockRequest::wait`].
    pub fn wait(self, time: Duration) -> Self {
        self.with(|settings| settings.wait(time))
    }

    /// Waits until the locks are ours.
    pub fn wait_forever(self) -> Self {
        self.with(LockRequest::wait_forever)
    }

    /// How to retry: see [`LockRequest::retry`].
    pub fn retry(self, retry: Retry) -> Self {
        self.with(|settings| settings.retry(retry))
    }

    /// Whether the locks are renewed while the guards live: see [`LockRequest::heartbeat`].
    pub fn heartbeat(self, on: bool) -> Self {
        self.with(|settings| settings.heartbeat(on))
    }

    /// The longest the locks may be held: see [`LockRequest::max_hold`].
    pub fn max_hold(self, time: Duration) -> Self {
        self.with(|settings| settings.max_hold(time))
    }

    /// The name shown to others who want one of the locks.
    pub fn holder<T>(self, holder: T) -> Self
    where
        T: TryInto<Holder>,
        T::Error: Into<Error>,
    {
        self.with(|settings| settings.holder(holder))
    }

    /// Notes stored with each of the locks: see [`LockRequest::metadata`].
    pub fn metadata(self, notes: impl Serialize) -> Self {
        self.with(|settings| settings.metadata(notes))
    }

    /// Gives up with [`Aborted`](crate::ErrorCode::Aborted) when `token` is cancelled.
    pub fn cancel_on(self, token: &CancellationToken) -> Self {
        self.with(|settings| settings.cancel_on(token))
    }

    /// Passes those who stand in line for the keys: see [`LockRequest::unfair`].
    pub fn unfair(self) -> Self {
        self.with(LockRequest::unfair)
    }

    /// Calls `tell` each time somebody else turns out to hold one of the locks while this request
    /// waits. It must not block.
    pub fn on_contention(mut self, tell: impl Fn(&Key, &Contention) + Send + Sync + 'static) -> Self {
        self.on_contention = Some(Arc::new(tell));
        self
    }

    /// Tries once, and returns `None` if somebody else holds one of the locks, or waits for it.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument), also if the store cannot take
    /// several locks at once; [`Aborted`](crate::ErrorCode::Aborted); the store's error.
    pub async fn try_acquire(self) -> Result<Option<Guards>, Error> {
        Ok(self.try_acquire_or_see().await?.ok())
    }

    /// Tries once, and tells which of the locks somebody else holds, and who.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](LockAllRequest::try_acquire). That a lock is held is not an error but the
    /// inner `Err`.
    pub async fn try_acquire_or_see(self) -> Result<Result<Guards, (Key, Contention)>, Error> {
        let plan = self.plan()?;
        plan.try_once().instrument(tracing::debug_span!("try_acquire_all")).await
    }

    /// Waits for the locks: 5 seconds unless told otherwise.
    ///
    /// # Errors
    ///
    /// As [`LockRequest::acquire`]; [`InvalidArgument`](crate::ErrorCode::InvalidArgument) also if
    /// the store cannot take several locks at once.
    pub async fn acquire(self) -> Result<Guards, Error> {
        if self.settings.waits_for_nobody() {
            let seen = self.try_acquire_or_see().await?;
            return seen.map_err(|(_, contention)| Error::acquisition_timeout(Duration::ZERO, Some(contention)));
        }
        let plan = self.plan()?;
        plan.acquire().instrument(tracing::debug_span!("acquire_all")).await
    }

    /// Waits for the locks, runs `work` with their fence, and releases them. If one of them is
    /// lost, the work is dropped at its next `await`.
    ///
    /// Cancel-safe: dropping the future drops the work and releases the locks in the background.
    ///
    /// # Errors
    ///
    /// As [`acquire`](LockAllRequest::acquire); [`LockLost`](crate::ErrorCode::LockLost) or
    /// [`Aborted`](crate::ErrorCode::Aborted) if the work was stopped.
    pub async fn run<T, F, Fut>(self, work: F) -> Result<T, Error>
    where
        F: FnOnce(crate::Fence) -> Fut,
        Fut: Future<Output = T>,
    {
        let cancel = self.settings.cancel.clone();
        self.acquire().await?.run(cancel, work).await
    }

    fn plan(self) -> Result<PlanAll, Error> {
        let (keys, common) = (self.keys?, self.settings.plan(Asks::Once)?);
        if !common.inner.core.backend.capabilities().lines {
            return Err(Error::invalid("this store cannot take several locks at once"));
        }
        let template = (*common.request).clone();
        let request = |key| Ok(template.clone().with_key(key).with_lock_id(LockId::random()?));
        let requests = keys.into_iter().map(request).collect::<Result<Vec<_>, Error>>()?;
        Ok(PlanAll { requests: requests.into(), common, on_contention: self.on_contention })
    }
}

impl fmt::Debug for LockAllRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockAllRequest").field("keys", &self.keys).finish_non_exhaustive()
    }
}
