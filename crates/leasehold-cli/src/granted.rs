//! What `run` and `acquire` were granted: one lock, or several that were taken together.

use leasehold::{Error, Fence, Guard, Guards, LockId, LockState, Loss};

use crate::child::Leases;

/// Held until it is released or dropped.
#[derive(Debug)]
pub(crate) enum Granted {
    One(Guard),
    All(Guards),
}

impl Granted {
    /// The number of the grant, which all the locks have in common.
    pub(crate) fn fence(&self) -> Fence {
        match self {
            Granted::One(guard) => guard.fence(),
            Granted::All(guards) => guards.fence(),
        }
    }

    /// The number of the permit, if it is one.
    pub(crate) fn slot(&self) -> Option<u16> {
        match self {
            Granted::One(guard) => guard.slot(),
            Granted::All(_) => None,
        }
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Guard> {
        match self {
            Granted::One(guard) => std::slice::from_ref(guard).iter(),
            Granted::All(guards) => guards.iter(),
        }
    }

    pub(crate) fn lock_ids(&self) -> impl Iterator<Item = &LockId> {
        self.iter().map(|guard| guard.lock_id())
    }

    /// The leases that the command has not given back itself.
    pub(crate) fn leases(&self) -> Leases {
        let kept = self.iter().filter(|guard| guard.loss() != Some(Loss::Released));
        Leases::new(kept.map(|guard| guard.lease().clone()).collect())
    }

    /// Whether one of the locks is not ours any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.iter().any(|guard| guard.state() == LockState::Lost)
    }

    /// # Errors
    ///
    /// As [`Guard::release`] and [`Guards::release`].
    pub(crate) async fn release(self) -> Result<(), Error> {
        match self {
            Granted::One(guard) => guard.release().await,
            Granted::All(guards) => guards.release().await,
        }
    }
}
