//! The lock above the stores: waiting, guards, heartbeats.

mod acquire;
mod acquire_all;
mod attempt;
mod attempt_all;
mod background;
mod best_effort;
mod builder;
mod connect;
mod core;
mod diagnostics;
mod examine;
mod examine_times;
mod extend;
mod footprint;
mod guard;
mod guards;
mod high_water;
mod hold;
mod keeper;
mod lease;
mod lock_all;
mod lookups;
mod metrics;
mod owner;
mod ownership;
mod queue;
mod releases;
mod renewals;
mod reports;
mod request;
mod retry;
mod schedule;
mod settings;
mod shutdown;
mod store_clock;
mod stuck;
mod undo;
mod waiting;

use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, OnceLock};

pub use best_effort::{BestEffort, Outcome};
pub use builder::LocksBuilder;
pub use diagnostics::{KeyInfo, LockInfo, Locked, LocksPage, WaiterInfo};
pub use guard::Guard;
pub use guards::Guards;
pub use lease::{Lease, LockState};
pub use lock_all::LockAllRequest;
pub use owner::Owner;
pub use request::LockRequest;
pub use retry::{Backoff, Jitter, Retry};
pub use settings::ReleaseFailure;

use self::core::Core;
use self::keeper::Keeper;
use self::ownership::Ownership;
use crate::backend::{Backend, Extend, Release};
use crate::sync::lock;
use crate::{Error, Holder, Key, LockId, Mode, Operation, Ttl};

/// A handle on a store of locks. Clones are the same handle.
///
/// Tasks of one runtime that want the same key through one handle queue up in order, and only the
/// first of them asks the store; so make one handle per process and store, and clone it. It works
/// from any runtime, whatever the others are doing.
///
/// A handle belongs to the process that made it. In a child of `fork(2)` it fails with
/// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) and touches nothing of the parent's, and
/// copies of guards are lost: make a handle in the child.
///
/// The first lock taken through a handle starts its keeper: one thread that renews the leases and
/// does what must happen in the background. It ends by itself when the handle and all its guards
/// are gone.
///
/// ```
/// use std::time::Duration;
/// use leasehold::memory::Memory;
/// use leasehold::Locks;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let locks = Locks::new(Memory::new());
/// let guard = locks.lock("invoice:7").ttl(Duration::from_secs(60)).acquire().await?;
/// println!("fence {}", guard.fence());
/// tokio::select! {
///     () = async { /* the work */ } => {}
///     loss = guard.lost() => eprintln!("stop: {loss}"),
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Locks {
    inner: Arc<Inner>,
}

/// What a handle, its requests and its guards hold on to. When the last of them is gone, the keeper
/// stops.
#[derive(Debug)]
struct Inner {
    core: Arc<Core>,
    keeper: OnceLock<Keeper>,
    /// Held while the keeper is started: two would take each other's wake-ups.
    starting: Mutex<()>,
    /// What the builder was given, or why it is no name.
    holder: Result<Holder, Error>,
}

impl Inner {
    fn keeper(&self) -> Result<&Keeper, Error> {
        if let Some(keeper) = self.keeper.get() {
            return Ok(keeper);
        }
        let _starting = lock(&self.starting);
        if let Some(keeper) = self.keeper.get() {
            return Ok(keeper);
        }
        let keeper = Keeper::start(self.core.clone())?;
        Ok(self.keeper.get_or_init(|| keeper))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.core.process.is_current() {
            // The parent uses the connections, and the keeper is a thread of the parent's: whatever
            // a drop would tell them is not ours to tell.
            std::mem::forget(self.core.clone());
            std::mem::forget(self.keeper.take());
        }
    }
}

impl Locks {
    /// A handle with the default settings.
    pub fn new(backend: impl Backend) -> Self {
        Self::builder(backend).build()
    }

    /// A handle with settings of its own.
    pub fn builder(backend: impl Backend) -> LocksBuilder {
        LocksBuilder::new(Arc::new(backend))
    }

    /// Starts a request for the lock of `key`: a `&str`, a `String` or a [`Key`].
    pub fn lock<K>(&self, key: K) -> LockRequest
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        self.request(key, Ok(Mode::Exclusive))
    }

    /// Starts a request to share `key` with others who want to share it: a reader. Those who want
    /// it [exclusively](Locks::exclusive) are kept out, and it is kept out by them. All of them
    /// stand in one line, so that neither readers nor writers starve.
    ///
    /// Its [fence](Lease::fence) is in order with those of the writers: a resource that has seen a
    /// writer with a higher one can refuse a reader that overstayed.
    ///
    /// ```
    /// # use leasehold::memory::Memory;
    /// # use leasehold::Locks;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// # let locks = Locks::new(Memory::new());
    /// let one = locks.shared("catalogue").acquire().await?;
    /// let another = locks.shared("catalogue").acquire().await?;
    /// assert!(locks.exclusive("catalogue").try_acquire().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn shared<K>(&self, key: K) -> LockRequest
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        self.request(key, Ok(Mode::Shared))
    }

    /// The same as [`lock`](Locks::lock), where others [share](Locks::shared) the key: a writer. It
    /// stands in line while it waits, on every store that has lines.
    pub fn exclusive<K>(&self, key: K) -> LockRequest
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        self.lock(key).fair()
    }

    /// Starts a request for one of `of` permits of `key`: at most so many hold one at a time. Each
    /// has a [slot](Lease::slot), the lowest that is free.
    ///
    /// The number is not stored: change it whenever you like. While old and new programs are
    /// running, each keeps to its own. An exclusive request for the key waits until all permits are
    /// back.
    ///
    /// A slot is an exclusive lock of its own. Let the protected resource remember the highest
    /// [fence](Lease::fence) for each slot.
    ///
    /// ```
    /// # use leasehold::memory::Memory;
    /// # use leasehold::Locks;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// # let locks = Locks::new(Memory::new());
    /// let first = locks.permit("gpu", 2).acquire().await?;
    /// let second = locks.permit("gpu", 2).acquire().await?;
    /// assert_eq!((first.slot(), second.slot()), (Some(0), Some(1)));
    /// assert!(locks.permit("gpu", 2).try_acquire().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn permit<K>(&self, key: K, of: u16) -> LockRequest
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let none = || Error::invalid("nobody can have one of zero permits");
        self.request(key, NonZeroU16::new(of).map(|of| Mode::Permit { of }).ok_or_else(none))
    }

    fn request<K>(&self, key: K, mode: Result<Mode, Error>) -> LockRequest
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        LockRequest::new(self.inner.clone(), key.try_into().map_err(Into::into), mode)
    }

    /// The store below.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.inner.core.backend
    }

    /// Releases a lock by its id, for locks whose guard was [leaked](Guard::leak). Tells whether it
    /// was still there. A guard of this handle that holds it loses it.
    ///
    /// Cancel-safe: a dropped call may or may not have released the lock, and can be repeated.
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn release(&self, id: &LockId) -> Result<bool, Error> {
        self.inner.core.process.check()?;
        let core = &self.inner.core;
        let hold = core.hold_of(id);
        if let Some(hold) = &hold {
            core.give_back(hold);
        }
        let answer = self.call(Operation::Release, self.backend().release(id)).await;
        if let Some(hold) = &hold {
            core.queue.wake(&hold.key);
        }
        Ok(answer? == Release::Released)
    }

    /// Sets a lock to end `ttl` from now by its id, for locks whose guard was
    /// [leaked](Guard::leak). Tells whether it was still there. If a guard of this handle holds it,
    /// that is as if its lease had been [extended](Lease::extend).
    ///
    /// Cancel-safe: a dropped call may or may not have extended the lock, and can be repeated.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if `ttl` is not a [`Ttl`]; the
    /// store's error.
    pub async fn extend<T>(&self, id: &LockId, ttl: T) -> Result<bool, Error>
    where
        T: TryInto<Ttl>,
        T::Error: Into<Error>,
    {
        let ttl = ttl.try_into().map_err(Into::into)?;
        self.inner.core.process.check()?;
        if let Some(hold) = self.inner.core.hold_of(id) {
            let lease = Lease { hold, locks: self.inner.clone() };
            return Ok(lease.ask_to_extend(ttl, true).await? == Ownership::Ours);
        }
        let answer = self.call(Operation::Extend, self.backend().extend(id, ttl)).await?;
        Ok(matches!(answer, Extend::Extended { .. }))
    }

    /// One call to the store within the operation timeout.
    async fn call<T>(&self, operation: Operation, run: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let core = &self.inner.core;
        core.process.check()?;
        core.within(core.call_timeout, operation, run).await
    }
}
