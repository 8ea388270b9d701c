use super::Locks;
use super::background::Release;
use super::ownership::Ownership;
use super::releases::Left;
use crate::{Error, ErrorCode, Operation};

impl Locks {
    /// Releases all the locks held through this handle, and tells how many. Their guards are lost
    /// from this moment on. Many of them are released with one request. It gives up when the store
    /// has failed for the [release timeout](crate::LocksBuilder::release_timeout).
    ///
    /// Cancel-safe: what was begun goes on in the background.
    ///
    /// # Errors
    ///
    /// The first error of a release that failed; the others were still tried.
    pub async fn release_all(&self) -> Result<usize, Error> {
        let core = &self.inner.core;
        core.process.check()?;
        let held = core.held();
        if held.is_empty() {
            return Ok(0);
        }
        let keeper = self.inner.keeper()?;
        let mut outcomes = Vec::with_capacity(held.len());
        for hold in held {
            if core.give_back(&hold).store_has_it {
                let timeout = Some(core.settings.release_timeout);
                outcomes.push(keeper.release(core, Release { hold, timeout, may_have_arrived: false }));
            }
        }
        let mut released = 0;
        let mut failed = None;
        for outcome in outcomes {
            match outcome.await {
                Ok(Ok(Ownership::Ours)) => released += 1,
                Ok(Ok(Ownership::Lost(loss))) => {
                    failed.get_or_insert(Error::lost(loss));
                }
                Ok(Err(error)) => {
                    failed.get_or_insert(error);
                }
                Err(_) => {
                    failed.get_or_insert_with(|| Error::panicked(Operation::Release));
                }
            }
        }
        failed.map_or(Ok(released), Err)
    }

    /// Ends the use of this handle: waiting requests fail with
    /// [`Aborted`](crate::ErrorCode::Aborted), as do new ones; all locks are released; and what
    /// goes on in the background is finished, however much it is. Only when nothing has come to an
    /// end for as long as the [release timeout](crate::LocksBuilder::release_timeout) it gives up.
    /// Call it before the program ends.
    ///
    /// Cancel-safe: what was begun goes on in the background.
    ///
    /// # Errors
    ///
    /// As [`release_all`](Locks::release_all). If locks could not be given back, also those of
    /// guards that were dropped before, the error says how many: each stays taken until its ttl has
    /// passed.
    pub async fn shutdown(&self) -> Result<usize, Error> {
        let core = &self.inner.core;
        core.process.check()?;
        let patience = core.settings.release_timeout;
        core.closed_at.get_or_init(|| core.after(patience));
        core.closing.cancel();
        let released = self.release_all().await;
        core.background.close();
        // Bounded, because an acquire that was begun and is never polled again would be waited for
        // as well.
        loop {
            let settled = core.releases.settled();
            tokio::select! {
                biased;
                () = core.background.wait() => break,
                () = core.sleep(patience) => {
                    if core.releases.settled() == settled {
                        break;
                    }
                }
            }
        }
        let Left { locks, error } = core.releases.left();
        match locks + core.releases.behind() {
            0 => released,
            left => Err(not_given_back(left, error)),
        }
    }
}

fn not_given_back(locks: usize, why: Option<Error>) -> Error {
    let code = why.as_ref().map_or(ErrorCode::NetworkTimeout, Error::code);
    let what = if locks == 1 {
        "1 lock could not be given back".to_owned()
    } else {
        format!("{locks} locks could not be given back")
    };
    let error = Error::new(code, format!("{what} before the handle was shut down"))
        .with_hint("each stays taken until its ttl has passed, or `leasehold force-release` ends it")
        .during(Operation::Release);
    match why {
        Some(why) => error.with_source(why),
        None => error,
    }
}
