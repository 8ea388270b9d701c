use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use leasehold::{Key, Lease, LockState, Loss};

/// The leases under which a command runs: one, several that were taken together, or none. Losing
/// one of them is losing all, but the command may give back one and keep the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leases(Vec<Lease>);

impl Leases {
    pub(crate) fn new(leases: Vec<Lease>) -> Self {
        Self(leases)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that the command has not given back, whether we have heard of that or not.
    fn kept(&self) -> impl Iterator<Item = &Lease> {
        self.0.iter().filter(|lease| lease.loss() != Some(Loss::Released))
    }

    /// For how long all are certainly ours; none if there is none.
    pub(super) fn remaining(&self) -> Option<Duration> {
        self.kept().map(Lease::remaining).min()
    }

    /// The worst state of any; none if there is none.
    pub(super) fn state(&self) -> Option<LockState> {
        let badness = |state: &LockState| match state {
            LockState::Held => 0,
            LockState::Uncertain => 1,
            LockState::Lost => 2,
        };
        self.kept().map(Lease::state).max_by_key(badness)
    }

    /// Waits until one of them is lost or given back, and says which and how. Never, if there is
    /// none.
    ///
    /// Cancel-safe.
    pub(crate) async fn lost(&self) -> (Key, Loss) {
        type Losing<'a> = Pin<Box<dyn Future<Output = (Key, Loss)> + 'a>>;
        let losing = |lease: &Lease| -> Losing<'_> {
            let lease = lease.clone();
            Box::pin(async move { (lease.key().clone(), lease.lost().await) })
        };
        let mut losing: Vec<_> = self.0.iter().map(losing).collect();
        poll_fn(|cx| {
            let lost = losing.iter_mut().map(|losing| losing.as_mut().poll(cx)).find(Poll::is_ready);
            lost.unwrap_or(Poll::Pending)
        })
        .await
    }

    /// The command gave this one back.
    pub(super) fn forget(&mut self, key: &Key) {
        self.0.retain(|lease| lease.key() != key);
    }
}
