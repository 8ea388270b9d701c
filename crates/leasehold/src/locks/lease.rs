use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Inner;
use super::hold::Hold;
use super::ownership::Ownership;
use crate::{Error, ErrorCode, Fence, Key, LockId, Loss, Mode, TIME_TOLERANCE, Timestamp, Ttl};

/// Whether a lock is still ours, as far as this process can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockState {
    /// Ours until the deadline at least; the last renewal went well.
    Held,
    /// Ours until the deadline at least, but the last renewal failed. It is being tried again.
    Uncertain,
    /// Not ours any more. Whatever it protects must not be touched.
    Lost,
}

/// A view of a held lock that can be cloned and handed to other tasks: they can see whether it is
/// still held, hear of its loss and extend it, but only the [`Guard`](crate::Guard) releases it.
///
/// Validity is counted on this machine's monotonic clock from the moment the request was *sent*, so
/// it always ends before the store's own expiry, whatever the clocks show. On Linux the time counts
/// for which the machine is suspended: a lock that ran out meanwhile is lost when it wakes up, and
/// [`lost`](Lease::lost) tells within a second. Elsewhere that clock stands still, and after a
/// suspension only the [fence](Lease::fence) protects.
///
/// In a child of `fork(2)` a copy is lost: the lock is the parent's.
#[derive(Clone)]
pub struct Lease {
    pub(super) hold: Arc<Hold>,
    pub(super) locks: Arc<Inner>,
}

impl Lease {
    /// What is locked.
    pub fn key(&self) -> &Key {
        &self.hold.key
    }

    /// The number of this grant, for the protected resource to check. See [`Fence`].
    pub fn fence(&self) -> Fence {
        self.hold.fence
    }

    /// How the lock is held.
    pub fn mode(&self) -> Mode {
        self.hold.mode
    }

    /// The number of the permit, from 0, if it is one: see [`Locks::permit`](crate::Locks::permit).
    pub fn slot(&self) -> Option<u16> {
        self.hold.slot
    }

    /// The id of this lock. Whoever has it can extend and release the lock.
    pub fn lock_id(&self) -> &LockId {
        &self.hold.lock_id
    }

    /// Since when the lock is held, by the store's clock.
    pub fn acquired_at(&self) -> Timestamp {
        self.hold.acquired_at
    }

    /// When the lock ends unless extended, by the store's clock. To decide whether there is time
    /// left, use [`remaining`](Lease::remaining).
    pub fn expires_at(&self) -> Timestamp {
        self.hold.grant().expires_at
    }

    /// For how long the lock is certainly still ours; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Whether the lock is still ours.
    pub fn state(&self) -> LockState {
        self.hold.state()
    }

    /// How the lock was lost, or `None` while it is ours.
    pub fn loss(&self) -> Option<Loss> {
        self.hold.loss()
    }

    /// Waits until the lock is lost or given back, and says how. With a heartbeat that happens only
    /// if the store refuses a renewal, cannot be reached until the deadline, or reports that the
    /// lock was stolen.
    ///
    /// It fires at the deadline even if the store never answers: at least [`TIME_TOLERANCE`] before
    /// anybody else can be granted the lock, except after a steal or a forced release.
    ///
    /// Cancel-safe.
    pub async fn lost(&self) -> Loss {
        self.hold.ended().await
    }

    /// Makes sure that at least `time` is left, extending the lease if need be.
    ///
    /// Cancel-safe: what was begun goes on in the background.
    ///
    /// # Errors
    ///
    /// [`LockLost`](ErrorCode::LockLost) if the lock is not ours any more or `max_hold` leaves less
    /// than `time`; [`InvalidArgument`](ErrorCode::InvalidArgument) if `time` is longer than any
    /// ttl; the store's error if it cannot be reached, while the lock may still be ours.
    pub async fn ensure(&self, time: Duration) -> Result<(), Error> {
        if time > Ttl::MAX.as_duration() {
            return Err(Error::invalid("no lock lasts longer than ten years"));
        }
        if let Some(loss) = self.loss() {
            return Err(Error::lost(loss));
        }
        if self.remaining() >= time {
            return Ok(());
        }
        if Ttl::nearest(time) > self.hold.capped(Ttl::MAX) {
            return Err(Error::lost(Loss::MaxHold));
        }
        // The answer takes time too, and what remains counts from the sending.
        let ttl = self.hold.ttl().max(Ttl::nearest(time + TIME_TOLERANCE));
        self.extend_to(ttl, false).await?;
        if self.remaining() < time {
            return Err(Error::new(
                ErrorCode::NetworkTimeout,
                "the store answers too slowly to keep the lock that long",
            ));
        }
        Ok(())
    }

    /// Sets the lease to end `ttl` from now, replacing what was left; a heartbeat goes on with this
    /// ttl.
    ///
    /// Never past the end of `max_hold`. Cancel-safe: what was begun goes on in the background.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorCode::InvalidArgument) if `ttl` is not a [`Ttl`];
    /// [`LockLost`](ErrorCode::LockLost) if the lock is not ours any more; otherwise the store's
    /// error.
    pub async fn extend<T>(&self, ttl: T) -> Result<(), Error>
    where
        T: TryInto<Ttl>,
        T::Error: Into<Error>,
    {
        self.extend_to(ttl.try_into().map_err(Into::into)?, true).await
    }

    /// Has the keeper extend the lease. With `for_good`, heartbeats go on with this ttl.
    async fn extend_to(&self, ttl: Ttl, for_good: bool) -> Result<(), Error> {
        self.ask_to_extend(ttl, for_good).await?.or_lost()
    }

    pub(super) async fn ask_to_extend(&self, ttl: Ttl, for_good: bool) -> Result<Ownership, Error> {
        if let Some(loss) = self.hold.forked() {
            return Ok(Ownership::Lost(loss));
        }
        self.locks.keeper()?.extend(self.hold.clone(), ttl, for_good).await
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", self.key())
            .field("fence", &self.fence())
            .field("state", &self.state())
            .field("remaining", &self.remaining())
            .finish()
    }
}
