use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::core::Core;
use super::footprint::Footprint;
use super::releases::Pending;
use crate::Error;
use crate::backend::{AcquireRequest, all};

type BoxedRelease<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// An acquire that nobody waits for any more, to be undone.
#[derive(Debug)]
pub(super) struct Undo {
    /// One, or all that were sent together.
    pub(super) requests: Vec<Arc<AcquireRequest>>,
    /// What comes of the try whose answer was not waited for, on the runtime on which it was sent.
    pub(super) in_flight: Option<JoinHandle<Footprint>>,
    /// What came of those before.
    pub(super) footprint: Footprint,
}

impl Undo {
    /// Waits for the answer that is still due, and gives back what was granted. Returns the
    /// requests if a try of them may yet arrive.
    pub(super) async fn run(mut self, core: &Arc<Core>) -> Vec<Arc<AcquireRequest>> {
        if let Some(mut answer) = self.in_flight {
            // The runtime that should wait for the answer may be idle, blocked or gone, so it gets
            // no more than a call's time.
            tokio::select! {
                biased;
                outcome = &mut answer => self.footprint = outcome.unwrap_or(Footprint::UNKNOWN),
                () = core.sleep(core.call_timeout) => {
                    answer.abort();
                    self.footprint = Footprint::UNKNOWN;
                }
                () = core.closing_for(core.settings.release_timeout / 4) => {
                    answer.abort();
                    self.footprint = Footprint::UNKNOWN;
                }
            }
        }
        if self.footprint.is_there() {
            let releases = self.requests.iter().map(|request| -> BoxedRelease<'_> {
                Box::pin(release(core, request, core.worth_trying(request.ttl)))
            });
            for (request, released) in self.requests.iter().zip(all(releases.collect()).await) {
                if let Err(error) = released {
                    core.reports.add(&request.key, &request.lock_id, error);
                }
            }
        }
        if self.footprint.may_be_late { self.requests } else { Vec::new() }
    }
}

/// That a lock is not there does not show that a try of unknown outcome will not arrive yet. Looks
/// twice more; what comes even later ends with its ttl.
pub(super) async fn release_late(core: Arc<Core>, request: Arc<AcquireRequest>) {
    for wait in [1, 3] {
        core.sleep(core.call_timeout.saturating_mul(wait)).await;
        let _ = release(&core, &request, core.call_timeout).await;
    }
}

/// Gives back what the store may have of a request, together with others.
async fn release(core: &Arc<Core>, request: &AcquireRequest, worth_trying: Duration) -> Result<(), Error> {
    let (done, outcome) = oneshot::channel();
    core.release_soon(Pending {
        key: request.key.clone(),
        lock_id: request.lock_id,
        deadline: None,
        until: core.after(worth_trying),
        may_have_arrived: false,
        alone: false,
        done: Box::new(move |_, outcome| drop(done.send(outcome))),
    });
    outcome.await.map_or(Ok(()), |outcome| outcome.map(drop))
}
