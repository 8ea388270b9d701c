use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::Inner;
use super::acquire::{OnContention, Plan};
use super::best_effort::BestEffort;
use super::guard::Guard;
use super::lease::Lease;
use super::owner::Owner;
use super::retry::{Retry, Wait};
use crate::backend::{AcquireRequest, Line, Mode};
use crate::{Contention, Error, Holder, Key, LockId, Metadata, Steal, Ttl};

/// A request for one lock, made by [`Locks::lock`](crate::Locks::lock): set what differs from the
/// defaults, then [`acquire`](LockRequest::acquire), [`try_acquire`](LockRequest::try_acquire) or
/// [`run`](LockRequest::run).
///
/// A wrong value (an empty key, a zero ttl) is reported by the call that would have used it.
///
/// All the calls that get a lock are cancel-safe: a dropped future leaves no lock behind, even if
/// the store granted it at that very moment.
#[must_use = "a request does nothing until it is acquired or run"]
pub struct LockRequest {
    locks: Arc<Inner>,
    key: Result<Key, Error>,
    /// The first wrong option.
    wrong: Option<Error>,
    ttl: Ttl,
    holder: Option<Holder>,
    metadata: Metadata,
    steal: Steal,
    heartbeat: bool,
    max_hold: Option<Duration>,
    wait: Wait,
    retry: Retry,
    pub(super) cancel: Option<CancellationToken>,
    owner: Option<Owner>,
    on_contention: Option<OnContention>,
    mode: Mode,
    fair: Option<bool>,
    fair_lease: Ttl,
}

/// The shortest lease of a place in line. Whoever keeps a shorter one asks the store all the time,
/// and loses it to a slow answer.
const SHORTEST_PLACE: Duration = Duration::from_secs(1);

/// Whether a request will ask the store once or until it is granted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    Once,
    UntilGranted,
}

impl LockRequest {
    pub(super) fn new(locks: Arc<Inner>, key: Result<Key, Error>, mode: Result<Mode, Error>) -> Self {
        let (mode, wrong) = mode.map_or_else(|error| (Mode::default(), Some(error)), |mode| (mode, None));
        Self {
            locks,
            key,
            mode,
            fair: None,
            fair_lease: Ttl::nearest(Line::DEFAULT_LEASE),
            wrong,
            ttl: Ttl::default(),
            holder: None,
            metadata: Metadata::default(),
            steal: Steal::NEVER,
            heartbeat: true,
            max_hold: None,
            wait: Wait::AsRetry,
            retry: Retry::default(),
            cancel: None,
            owner: None,
            on_contention: None,
        }
    }

    /// How long the lock lasts without renewal: a `Duration` or a [`Ttl`]. 30 seconds by default.
    ///
    /// A bare number is no ttl, because nobody could tell seconds from milliseconds:
    ///
    /// ```compile_fail
    /// # let locks = leasehold::Locks::new(leasehold::memory::Memory::new());
    /// locks.lock("job").ttl(30);
    /// ```
    pub fn ttl<T>(mut self, ttl: T) -> Self
    where
        T: TryInto<Ttl>,
        T::Error: Into<Error>,
    {
        if let Some(ttl) = self.checked(ttl.try_into()) {
            self.ttl = ttl;
        }
        self
    }

    /// Waits up to `time` for the lock, however many tries that takes. Zero means a single try.
    pub fn wait(mut self, time: Duration) -> Self {
        self.wait = Wait::AtMost(time);
        self
    }

    /// Waits until the lock is ours.
    pub fn wait_forever(mut self) -> Self {
        self.wait = Wait::Forever;
        self
    }

    /// How to retry. Its `timeout` and `max_retries` count unless [`wait`](LockRequest::wait) or
    /// [`wait_forever`](LockRequest::wait_forever) says otherwise.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Whether the lock is renewed while the guard lives. On by default. Renewals run on a thread
    /// of their own, so a busy or blocked runtime does not lose the lock.
    pub fn heartbeat(mut self, on: bool) -> Self {
        self.heartbeat = on;
        self
    }

    /// The longest the lock may be held, however often it is renewed: a stuck worker loses it then.
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.max_hold = Some(time);
        self
    }

    /// The name shown to others who want the lock. By default the handle's.
    pub fn holder<T>(mut self, holder: T) -> Self
    where
        T: TryInto<Holder>,
        T::Error: Into<Error>,
    {
        if let Some(holder) = self.checked(holder.try_into()) {
            self.holder = Some(holder);
        }
        self
    }

    /// Notes stored with the lock: a [`Metadata`], or any serialisable map, struct or list of
    /// pairs.
    pub fn metadata(mut self, notes: impl Serialize) -> Self {
        if let Some(metadata) = self.checked(Metadata::from_serialize(&notes)) {
            self.metadata = metadata;
        }
        self
    }

    /// When the lock may be taken from its holder. Never by default.
    pub fn steal(mut self, steal: Steal) -> Self {
        self.steal = steal;
        self
    }

    /// Lets `owner` take the lock again while it holds it. See [`Owner`].
    pub fn reentrant(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Gives up with [`Aborted`](crate::ErrorCode::Aborted) when `token` is cancelled, while
    /// waiting as well as, in [`run`](LockRequest::run), while working.
    pub fn cancel_on(mut self, token: &CancellationToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }

    /// Calls `tell` each time somebody else turns out to hold the lock while this request waits for
    /// it. It must not block.
    pub fn on_contention(mut self, tell: impl Fn(&Contention) + Send + Sync + 'static) -> Self {
        self.on_contention = Some(Arc::new(tell));
        self
    }

    /// Passes those who wait for the lock, and does not stand in line: whoever asks at the right
    /// moment gets it. A waiter may then be overtaken for as long as others are quicker.
    ///
    /// By default whoever waits stands in line, over all processes (but see
    /// [`fair`](LockRequest::fair)), and whoever tries passes nobody in it. Of the tasks of one
    /// handle, the first that waits for a key stands in the line for all.
    pub fn unfair(mut self) -> Self {
        self.fair = Some(false);
        self
    }

    /// Stands in line while it waits, also where that is not the default because it costs so much:
    /// in Firestore, where those who wait for one key write one document all the time. There only
    /// [readers, writers](super::Locks::shared) and [permits](super::Locks::permit) stand in line
    /// without it.
    pub fn fair(mut self) -> Self {
        self.fair = Some(true);
        self
    }

    /// How long a waiter that was killed keeps its place in line, 9 seconds by default and one
    /// second at least: whoever is behind it waits for that long at most. A waiter asks the store
    /// three times in this time.
    pub fn fair_lease<T>(mut self, lease: T) -> Self
    where
        T: TryInto<Ttl>,
        T::Error: Into<Error>,
    {
        let too_short = || Error::invalid("a place in line lasts one second at least");
        let enough = |lease: Ttl| if lease.as_duration() < SHORTEST_PLACE { Err(too_short()) } else { Ok(lease) };
        let lease = lease.try_into().map_err(Into::into).and_then(enough);
        if let Some(lease) = self.checked(lease) {
            self.fair_lease = lease;
        }
        self
    }

    /// If the lock cannot be had in time, go on without it: see [`BestEffort`].
    pub fn best_effort(self) -> BestEffort {
        BestEffort::new(self)
    }

    /// Tries once, and returns `None` if somebody else holds the lock, or waits for it.
    ///
    /// ```
    /// # use leasehold::memory::Memory;
    /// # use leasehold::Locks;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// # let locks = Locks::new(Memory::new());
    /// let Some(guard) = locks.lock("cron:daily").try_acquire().await? else { return Ok(()) };
    /// // only one of us is here
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument),
    /// [`Aborted`](crate::ErrorCode::Aborted), or the store's error.
    pub async fn try_acquire(self) -> Result<Option<Guard>, Error> {
        Ok(self.try_acquire_or_see().await?.ok())
    }

    /// Tries once, and tells who holds the lock if somebody else does.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](LockRequest::try_acquire). That the lock is held is not an error but the
    /// inner `Err`.
    pub async fn try_acquire_or_see(self) -> Result<Result<Guard, Contention>, Error> {
        let plan = self.plan(Asks::Once)?;
        let span = tracing::debug_span!("try_acquire", key = %plan.request.key.hash_id());
        plan.try_once().instrument(span).await
    }

    /// Waits for the lock: 5 seconds unless told otherwise.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use leasehold::memory::Memory;
    /// # use leasehold::{ErrorCode, Locks};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// # let locks = Locks::new(Memory::new());
    /// let guard = locks.lock("report").acquire().await?;
    ///
    /// let second = locks.lock("report").wait(Duration::from_millis(20)).acquire();
    /// let error = second.await.unwrap_err();
    /// assert_eq!(error.code(), ErrorCode::AcquisitionTimeout);
    /// assert!(error.contention().is_some(), "tells who holds it and since when");
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`AcquisitionTimeout`](crate::ErrorCode::AcquisitionTimeout) if somebody else held the lock
    /// all the while; the store's error if it kept failing;
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument);
    /// [`Aborted`](crate::ErrorCode::Aborted).
    pub async fn acquire(self) -> Result<Guard, Error> {
        if self.waits_for_nobody() {
            let seen = self.try_acquire_or_see().await?;
            return seen.map_err(|contention| Error::acquisition_timeout(Duration::ZERO, Some(contention)));
        }
        let plan = self.plan(Asks::UntilGranted)?;
        let span = tracing::debug_span!("acquire", key = %plan.request.key.hash_id());
        plan.acquire().instrument(span).await
    }

    /// Waits for the lock, runs `work` under it, and releases it. If the lock is lost, the work is
    /// dropped at its next `await`, before anybody else can be granted the lock.
    ///
    /// ```
    /// # use leasehold::memory::Memory;
    /// # use leasehold::{Fence, Locks};
    /// # async fn charge(fence: Fence) -> String { fence.to_string() }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// # let locks = Locks::new(Memory::new());
    /// let receipt =
    ///     locks.lock("payment:42").run(|lease| async move { charge(lease.fence()).await }).await?;
    /// # assert_eq!(receipt.len(), 15);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Work that blocks its thread cannot be stopped; let it check [`Lease::state`] or
    /// [`Lease::ensure`] on its way. A release that fails after the work is done does not take the
    /// result away: it is reported to the `on_release_error` hook. Work that was done only after
    /// the lease had ended is `LockLost`, like work that was stopped.
    ///
    /// Cancel-safe: dropping the future drops the work and releases the lock in the background.
    ///
    /// # Errors
    ///
    /// As [`acquire`](LockRequest::acquire); [`LockLost`](crate::ErrorCode::LockLost) or
    /// [`Aborted`](crate::ErrorCode::Aborted) if the work was stopped.
    pub async fn run<T, F, Fut>(self, work: F) -> Result<T, Error>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = T>,
    {
        let cancel = self.cancel.clone();
        self.acquire().await?.run(cancel, work).await
    }

    /// Like [`run`](LockRequest::run), for work that can fail: one `Result` with the work's own
    /// error type, which must be able to hold ours.
    ///
    /// ```
    /// # use leasehold::memory::Memory;
    /// # use leasehold::Locks;
    /// #[derive(Debug)]
    /// enum Failure {
    ///     Declined,
    ///     Lock(leasehold::Error),
    /// }
    ///
    /// impl From<leasehold::Error> for Failure {
    ///     fn from(error: leasehold::Error) -> Self {
    ///         Failure::Lock(error)
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Failure> {
    /// # let locks = Locks::new(Memory::new());
    /// let work = async { Err::<u32, _>(Failure::Declined) };
    /// let charged = locks.lock("payment:42").try_run(|_| work);
    /// assert!(matches!(charged.await, Err(Failure::Declined)));
    /// assert!(!locks.is_locked("payment:42").await?, "released all the same");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cancel-safe, as [`run`](LockRequest::run).
    ///
    /// # Errors
    ///
    /// The work's own, and those of [`run`](LockRequest::run).
    pub async fn try_run<T, E, F, Fut>(self, work: F) -> Result<T, E>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.run(work).await?
    }

    pub(super) fn waits_for_nobody(&self) -> bool {
        matches!(self.wait, Wait::AtMost(Duration::ZERO))
    }

    /// What to do about the line: stores without lines know only requests that ignore it.
    fn line(&self, asks: Asks) -> Result<Line, Error> {
        let found = self.locks.core.backend.capabilities();
        if !found.lines {
            let plain = self.mode == Mode::Exclusive;
            let refused = || Error::invalid("this store has neither shared locks nor permits");
            return if plain { Ok(Line::Ignore) } else { Err(refused()) };
        }
        // Readers that pass a writer who waits could keep it out for ever.
        let fair = self.fair.unwrap_or(!found.costly_lines || self.mode != Mode::Exclusive);
        Ok(match asks {
            Asks::Once if self.fair != Some(false) => Line::Heed,
            Asks::UntilGranted if fair => Line::Join { lease: self.fair_lease },
            Asks::Once | Asks::UntilGranted => Line::Ignore,
        })
    }

    fn checked<T, E: Into<Error>>(&mut self, value: Result<T, E>) -> Option<T> {
        match value {
            Ok(value) => Some(value),
            Err(error) => {
                self.wrong.get_or_insert(error.into());
                None
            }
        }
    }

    pub(super) fn plan(self, asks: Asks) -> Result<Plan, Error> {
        self.locks.core.process.check()?;
        let line = self.line(asks)?;
        let key = self.key?;
        if let Some(error) = self.wrong {
            return Err(error);
        }
        if self.max_hold.is_some_and(|time| time.is_zero()) {
            return Err(Error::invalid("max_hold is zero"));
        }
        let request = AcquireRequest {
            key,
            lock_id: LockId::random()?,
            // A lock that may not be held any longer should not keep others out any longer either.
            ttl: self.max_hold.map_or(self.ttl, |time| self.ttl.min(Ttl::nearest(time))),
            holder: self.holder.map_or_else(|| self.locks.holder.clone(), Ok)?,
            metadata: self.metadata,
            steal: self.steal,
            mode: self.mode,
            line,
        };
        Ok(Plan {
            inner: self.locks,
            request: Arc::new(request),
            heartbeat: self.heartbeat,
            max_hold: self.max_hold,
            wait: self.wait,
            retry: self.retry,
            cancel: self.cancel,
            owner: self.owner,
            on_contention: self.on_contention,
        })
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest").field("key", &self.key).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}
