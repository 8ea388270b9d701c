use std::ops::Deref;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Inner;
use super::background::Release;
use super::core::GivenBack;
use super::footprint::Footprint;
use super::hold::Hold;
use super::lease::Lease;
use super::ownership::Ownership;
use super::undo::Undo;
use crate::{Error, Grant, Loss};

/// A held lock. It is renewed for as long as this value lives (unless the request said otherwise)
/// and released when it is dropped.
///
/// All that can be asked of a held lock is on [`Lease`], to which a guard dereferences.
///
/// # Dropping
///
/// Dropping a guard ends the lease at once and has the lock released in the background, by a thread
/// of the library's own: that works on any thread, without a runtime and while a runtime shuts
/// down. Three things it does not do:
///
/// - It does not wait. The lock is free a moment later. Call [`release`](Guard::release) to know
///   that it is.
/// - It cannot outlive the process. A program that ends right after dropping a guard may leave the
///   lock taken until the lease runs out. Call [`release`](Guard::release), or
///   [`Locks::shutdown`](crate::Locks::shutdown) at the end.
/// - It cannot report failure to a caller; the `on_release_error` hook is told instead.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    lease: Lease,
    done: bool,
}

impl Guard {
    pub(super) fn new(lease: Lease) -> Self {
        Self { lease, done: false }
    }

    /// The lease of this lock, to be cloned and handed to other tasks.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Releases the lock and waits for the store's answer. A nested guard of a re-entered lock only
    /// leaves; the lock is released with the last of its guards. Once this returns, no renewal is
    /// sent any more.
    ///
    /// Cancel-safe: if the future is dropped, the lock is released in the background.
    ///
    /// # Errors
    ///
    /// [`LockLost`](crate::ErrorCode::LockLost) if the lock was not ours any more: what was done
    /// under it may have overlapped with somebody else's work. The store's error if it failed until
    /// `release_timeout` had passed; the background goes on trying for as long as the lease would
    /// last.
    ///
    /// If the answer comes more than [`TIME_TOLERANCE`](crate::TIME_TOLERANCE) after the lease
    /// would have ended, a lock that the store does not know counts as run out on the way, which is
    /// no error. That somebody took it before can then not be told: the store keeps nothing of a
    /// lock that is gone. A guard is told of a steal at once, unless the store sends no wake-ups or
    /// this one was missed.
    pub async fn release(self) -> Result<(), Error> {
        self.give_back().await?.or_lost()
    }

    /// Releases the lock. What it protects may have been somebody else's if the lock was lost.
    pub(super) async fn give_back(mut self) -> Result<Ownership, Error> {
        self.done = true;
        let (hold, locks) = (&self.lease.hold, &self.lease.locks);
        if let Some(loss) = hold.forked() {
            return Ok(Ownership::Lost(loss));
        }
        if !hold.leave() {
            return Ok(Ownership::Ours);
        }
        let core = &locks.core;
        let GivenBack { loss, store_has_it } = core.give_back(hold);
        let mut released = Ok(Ownership::Ours);
        if store_has_it {
            let unfinished = Unfinished { hold: Some(hold), locks };
            let until = core.after(core.settings.release_timeout);
            released = core.release_hold(hold, until, false).await;
            match &released {
                Err(error) if error.is_retryable() => {}
                _ => unfinished.finished(),
            }
            if let (Some(request), Ok(keeper)) = (&hold.late, locks.keeper()) {
                let undo = Undo { requests: vec![request.clone()], in_flight: None, footprint: Footprint::LATE };
                keeper.undo(core, undo);
            }
        }
        if loss == Loss::Released { released } else { Ok(Ownership::Lost(loss)) }
    }

    /// Gives up the guard but not the lock: it is neither renewed nor released any more, and ends
    /// when its ttl has passed, or when somebody calls [`Locks::release`](crate::Locks::release)
    /// with the lock id of the returned grant. For handing a lock to another process.
    ///
    /// If the lock was re-entered, the other guards lose it.
    pub fn leak(mut self) -> Grant {
        self.done = true;
        let hold = &self.lease.hold;
        if hold.forked().is_none() {
            hold.leave();
            self.lease.locks.core.let_go(hold);
        }
        hold.grant()
    }

    /// Runs `work` until it is done or the lock is lost or `cancel` is cancelled, then releases the
    /// lock.
    pub(super) async fn run<T, F, Fut>(self, cancel: Option<CancellationToken>, work: F) -> Result<T, Error>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = T>,
    {
        let lease = self.lease.clone();
        let cancelled = async {
            match cancel {
                Some(token) => token.cancelled_owned().await,
                None => std::future::pending().await,
            }
        };
        let outcome = tokio::select! {
            biased;
            loss = lease.lost() => Err(Error::lost(loss)),
            () = cancelled => Err(Error::aborted()),
            value = work(lease.clone()) => Ok(value),
        };
        // Work that did not stop at the end of the lease may have met somebody else's.
        let outcome = match lease.loss() {
            Some(loss) => Err(Error::lost(loss)),
            None => outcome,
        };
        if let Err(error) = self.release().await
            && outcome.is_ok()
        {
            lease.locks.core.reports.add(lease.key(), lease.lock_id(), error);
        }
        outcome
    }
}

impl Deref for Guard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.done && self.lease.hold.leave() {
            release_in_background(&self.lease.locks, &self.lease.hold);
        }
    }
}

/// Ends a hold and has the keeper tell the store.
pub(super) fn release_in_background(locks: &Inner, hold: &Arc<Hold>) {
    if locks.core.give_back(hold).store_has_it {
        hand_to_keeper(locks, hold, false);
    }
}

fn hand_to_keeper(locks: &Inner, hold: &Arc<Hold>, may_have_arrived: bool) {
    // There is no hold without a keeper that was started before it.
    if let Ok(keeper) = locks.keeper() {
        drop(keeper.release(&locks.core, Release { hold: hold.clone(), timeout: None, may_have_arrived }));
    }
}

/// A release the caller is waiting for. If the caller stops waiting, the keeper goes on with it.
struct Unfinished<'a> {
    hold: Option<&'a Arc<Hold>>,
    locks: &'a Inner,
}

impl Unfinished<'_> {
    fn finished(mut self) {
        self.hold = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(hold) = self.hold {
            hand_to_keeper(self.locks, hold, true);
        }
    }
}
