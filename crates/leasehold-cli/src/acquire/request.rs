use std::sync::Arc;
use std::time::Duration;

use leasehold::{Error, LockAllRequest, LockRequest, Locks, Mode};

use super::Wanted;
use super::seen::{Obstacle, Seen};
use crate::granted::Granted;

/// A request for one lock, or for several at once.
pub(super) enum Request {
    One(Box<LockRequest>, leasehold::Key),
    All(Box<LockAllRequest>),
}

impl Request {
    /// Notes in `seen` who is in the way. With `beside_ours` it passes the line: those who wait
    /// there wait for a lock that is held around us, and so for us.
    pub(super) fn new(wanted: &Wanted<'_>, locks: &Locks, seen: &Arc<Seen>, beside_ours: bool) -> Self {
        let seen = seen.clone();
        let unfair = wanted.options.unfair || beside_ours;
        if let [key] = wanted.keys {
            let of = key.clone();
            let request = match wanted.options.mode() {
                Mode::Shared => locks.shared(key),
                Mode::Permit { of } => locks.permit(key, of.get()),
                _ => locks.lock(key),
            };
            let mut request = request
                .ttl(wanted.options.ttl)
                .holder(&wanted.holder)
                .metadata(wanted.metadata.clone())
                .steal(wanted.options.steal())
                .on_contention(move |contention| {
                    seen.note(Obstacle { key: of.clone(), contention: contention.clone() });
                });
            if let Some(time) = wanted.max_hold {
                request = request.max_hold(time);
            }
            let request = match wanted.options.fair {
                _ if unfair => request.unfair(),
                true => request.fair(),
                false => request,
            };
            return Request::One(Box::new(request), key.clone());
        }
        let mut request = locks
            .lock_all(wanted.keys)
            .ttl(wanted.options.ttl)
            .holder(&wanted.holder)
            .metadata(wanted.metadata.clone())
            .on_contention(move |key, contention| {
                seen.note(Obstacle { key: key.clone(), contention: contention.clone() });
            });
        if let Some(time) = wanted.max_hold {
            request = request.max_hold(time);
        }
        Request::All(Box::new(if unfair { request.unfair() } else { request }))
    }

    pub(super) async fn try_once(self) -> Result<Result<Granted, Obstacle>, Error> {
        Ok(match self {
            Request::One(request, key) => match request.try_acquire_or_see().await? {
                Ok(guard) => Ok(Granted::One(guard)),
                Err(contention) => Err(Obstacle { key, contention }),
            },
            Request::All(request) => match request.try_acquire_or_see().await? {
                Ok(guards) => Ok(Granted::All(guards)),
                Err((key, contention)) => Err(Obstacle { key, contention }),
            },
        })
    }

    /// Waits for `time`, or for ever.
    pub(super) async fn acquire(self, time: Option<Duration>) -> Result<Granted, Error> {
        match (self, time) {
            (Request::One(request, _), None) => request.wait_forever().acquire().await.map(Granted::One),
            (Request::One(request, _), Some(time)) => request.wait(time).acquire().await.map(Granted::One),
            (Request::All(request), None) => request.wait_forever().acquire().await.map(Granted::All),
            (Request::All(request), Some(time)) => request.wait(time).acquire().await.map(Granted::All),
        }
    }
}
