use super::lease::Lease;
use super::ownership::Ownership;
use super::request::LockRequest;
use crate::Error;

/// A request that goes on without the lock if it cannot be had in time, made by
/// [`LockRequest::best_effort`]. For request handlers with a deadline of their own, where being
/// late is worse than a rare overlap.
///
/// ```
/// use std::time::Duration;
/// use leasehold::memory::Memory;
/// use leasehold::Locks;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let locks = Locks::new(Memory::new());
/// let _elsewhere = locks.lock("cache:warm").acquire().await?;
///
/// let done = locks
///     .lock("cache:warm")
///     .wait(Duration::from_millis(10))
///     .best_effort()
///     .run(|lease| async move { if lease.is_some() { "locked" } else { "unlocked" } })
///     .await?;
/// assert_eq!(done.value, "unlocked");
/// assert!(done.unlocked.is_some(), "and says why");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a request does nothing until it is run"]
pub struct BestEffort(LockRequest);

/// What a [`BestEffort`] run came to.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome<T> {
    /// What the work returned.
    pub value: T,
    /// Why the work, or part of it, ran without the lock; `None` if it had the lock all the time.
    pub unlocked: Option<Error>,
}

impl BestEffort {
    pub(super) fn new(request: LockRequest) -> Self {
        Self(request)
    }

    /// Waits for the lock as the request says, then runs `work`: with a lease, or with `None` if
    /// somebody else kept the lock or the store failed. Work that loses its lock goes on too, and
    /// the outcome says so.
    ///
    /// Cancel-safe, as [`LockRequest::run`].
    ///
    /// # Errors
    ///
    /// Only what waiting longer would not mend:
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument),
    /// [`AuthFailed`](crate::ErrorCode::AuthFailed), [`Internal`](crate::ErrorCode::Internal),
    /// [`Aborted`](crate::ErrorCode::Aborted). The work did not run then.
    pub async fn run<T, F, Fut>(self, work: F) -> Result<Outcome<T>, Error>
    where
        F: FnOnce(Option<Lease>) -> Fut,
        Fut: Future<Output = T>,
    {
        let guard = match self.0.acquire().await {
            Ok(guard) => guard,
            Err(error) if error.is_retryable() || timed_out(&error) => {
                tracing::debug!(%error, "going on without the lock");
                return Ok(Outcome { value: work(None).await, unlocked: Some(error) });
            }
            Err(error) => return Err(error),
        };
        let value = work(Some(guard.lease().clone())).await;
        let lost_before = guard.loss();
        let lost = match (lost_before, guard.give_back().await) {
            (None, Ok(Ownership::Lost(loss))) => Some(loss),
            // A release that fails takes nothing away from the work, which had the lock.
            (lost, _) => lost,
        };
        let unlocked = lost.map(Error::lost);
        Ok(Outcome { value, unlocked })
    }
}

fn timed_out(error: &Error) -> bool {
    error.code() == crate::ErrorCode::AcquisitionTimeout
}
