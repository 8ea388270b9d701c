use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::guard::Guard;
use super::lease::LockState;
use crate::backend::all;
use crate::{Error, Fence, Loss};

/// Several locks that were taken together, by [`Locks::lock_all`](crate::Locks::lock_all). All have
/// the same fence. Losing one is losing all: what they protect together must not be touched any
/// more.
///
/// Dropping it releases all of them in the background.
#[must_use = "dropping it releases the locks"]
pub struct Guards {
    guards: Vec<Guard>,
    fence: Fence,
}

impl Guards {
    pub(super) fn new(guards: Vec<Guard>, fence: Fence) -> Self {
        Self { guards, fence }
    }

    /// The number of the grant, the same for all the keys, and higher than any before for each of
    /// them.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The guards, in the order of their keys.
    pub fn iter(&self) -> std::slice::Iter<'_, Guard> {
        self.guards.iter()
    }

    /// For how long all the locks are certainly still ours; zero once one is lost.
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(|guard| guard.remaining()).min().unwrap_or_default()
    }

    /// Whether all the locks are still ours: the worst state of any.
    pub fn state(&self) -> LockState {
        let worst = |a, b| match (a, b) {
            (LockState::Lost, _) | (_, LockState::Lost) => LockState::Lost,
            (LockState::Uncertain, _) | (_, LockState::Uncertain) => LockState::Uncertain,
            (LockState::Held, LockState::Held) => LockState::Held,
        };
        self.guards.iter().map(|guard| guard.state()).fold(LockState::Held, worst)
    }

    /// How the first of them was lost, or `None` while all are ours.
    pub fn loss(&self) -> Option<Loss> {
        self.guards.iter().find_map(|guard| guard.loss())
    }

    /// Waits until one of the locks is lost or given back, and says how: see
    /// [`Lease::lost`](crate::Lease::lost).
    ///
    /// Cancel-safe.
    pub async fn lost(&self) -> Loss {
        type Losing<'a> = Pin<Box<dyn Future<Output = Loss> + Send + 'a>>;
        let mut losing: Vec<Losing<'_>> =
            self.guards.iter().map(|guard| -> Losing<'_> { Box::pin(guard.lost()) }).collect();
        poll_fn(|cx| {
            let lost = losing.iter_mut().map(|losing| losing.as_mut().poll(cx)).find(Poll::is_ready);
            lost.unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Releases all the locks and waits for the store's answers.
    ///
    /// Cancel-safe: if the future is dropped, the locks are released in the background.
    ///
    /// # Errors
    ///
    /// The first error of [`Guard::release`]; the others were still tried.
    pub async fn release(self) -> Result<(), Error> {
        type Releasing = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;
        let releases = self.guards.into_iter().map(|guard| -> Releasing { Box::pin(guard.release()) });
        all(releases.collect()).await.into_iter().collect()
    }

    /// Runs `work` until it is done, a lock is lost or `cancel` is cancelled, then releases all.
    pub(super) async fn run<T, F, Fut>(self, cancel: Option<CancellationToken>, work: F) -> Result<T, Error>
    where
        F: FnOnce(Fence) -> Fut,
        Fut: Future<Output = T>,
    {
        let cancelled = async {
            match cancel {
                Some(token) => token.cancelled_owned().await,
                None => std::future::pending().await,
            }
        };
        let outcome = tokio::select! {
            biased;
            loss = self.lost() => Err(Error::lost(loss)),
            () = cancelled => Err(Error::aborted()),
            value = work(self.fence) => Ok(value),
        };
        // Work that did not stop at the end of a lease may have met somebody else's.
        let outcome = match self.loss() {
            Some(loss) => Err(Error::lost(loss)),
            None => outcome,
        };
        let leases: Vec<_> = self.guards.iter().map(|guard| guard.lease().clone()).collect();
        if let Err(error) = self.release().await
            && outcome.is_ok()
            && let Some(lease) = leases.first()
        {
            lease.locks.core.reports.add(lease.key(), lease.lock_id(), error);
        }
        outcome
    }
}

impl<'a> IntoIterator for &'a Guards {
    type Item = &'a Guard;
    type IntoIter = std::slice::Iter<'a, Guard>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for Guards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guards").field("fence", &self.fence).field("guards", &self.guards).finish()
    }
}
