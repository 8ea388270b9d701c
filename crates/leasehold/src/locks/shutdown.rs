use super::Locks;
use super::background::Release;
use super::ownership::Ownership;
use crate::{Error, Operation};

impl Locks {
    /// Releases all the locks held through this handle, and tells how many. Their guards are lost
    /// from this moment on. It takes no longer than the release timeout.
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
    /// goes on in the background is finished. It takes no longer than the release timeout. Call it
    /// before the program ends.
    ///
    /// Cancel-safe: what was begun goes on in the background.
    ///
    /// # Errors
    ///
    /// As [`release_all`](Locks::release_all).
    pub async fn shutdown(&self) -> Result<usize, Error> {
        let core = &self.inner.core;
        core.process.check()?;
        let until = *core.closed_at.get_or_init(|| core.after(core.settings.release_timeout));
        core.closing.cancel();
        let released = self.release_all().await;
        core.background.close();
        // Bounded, because an acquire that was begun and is never polled again would be waited for
        // as well.
        tokio::select! {
            biased;
            () = core.background.wait() => {}
            () = core.sleep_until(Some(until)) => {}
        }
        released
    }
}
