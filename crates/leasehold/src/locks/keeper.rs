use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::background::{Job, Release};
use super::core::Core;
use super::hold::Hold;
use super::ownership::Ownership;
use super::undo::Undo;
use crate::backend::{Event, Subscription, Topic};
use crate::{Error, ErrorCode, Key, LockId, Operation, Ttl};

/// The pause before a lost subscription is made again.
const RESUBSCRIBE: Duration = Duration::from_secs(1);

/// So many jobs are begun before the keeper looks at its holds again.
const JOBS_AT_ONCE: usize = 64;

/// A thread with a runtime of its own, and so with connections of its own. It renews leases,
/// notices deadlines, hears of freed and taken locks, and releases what was dropped or cancelled,
/// whatever the user's runtimes are doing. It lives as long as this value, and afterwards until
/// what it has begun is done.
#[derive(Debug)]
pub(super) struct Keeper {
    jobs: mpsc::UnboundedSender<Job>,
}

impl Keeper {
    pub(super) fn start(core: Arc<Core>) -> Result<Self, Error> {
        let failed = |source: std::io::Error| {
            Error::new(ErrorCode::Internal, "cannot start the thread that keeps locks alive")
                .with_hint("the limit on threads or open files of this process may be too low")
                .with_source(source)
        };
        let (jobs, received) = mpsc::unbounded_channel();
        let (report, started) = std::sync::mpsc::channel();
        // The runtime is made on its own thread: if there is none to be had, it would have to be
        // dropped in a task of the caller's, where no runtime may be dropped.
        let run = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                let _ = report.send(Ok(()));
                let reports = core.reports.clone();
                runtime.block_on(keep(core, received));
                drop(runtime);
                reports.finish();
            }
            Err(error) => {
                let _ = report.send(Err(error));
            }
        };
        thread::Builder::new().name("leasehold-keeper".into()).spawn(run).map_err(failed)?;
        match started.recv() {
            Ok(outcome) => outcome.map_err(failed)?,
            Err(_) => return Err(Error::new(ErrorCode::Internal, "the thread that keeps locks alive has stopped")),
        }
        Ok(Self { jobs })
    }

    /// Has an ended hold released. The receiver gets the outcome.
    pub(super) fn release(&self, core: &Core, release: Release) -> oneshot::Receiver<Result<Ownership, Error>> {
        let token = core.background.token();
        core.releases.begun();
        self.send(|done| Job::Release { release, done, token })
    }

    /// Extends a hold, to `ttl` from now on if `for_good`.
    pub(super) async fn extend(&self, hold: Arc<Hold>, ttl: Ttl, for_good: bool) -> Result<Ownership, Error> {
        let outcome = self.send(|done| Job::Extend { hold, ttl, for_good, done }).await;
        outcome.unwrap_or_else(|_| Err(Error::aborted()))
    }

    /// Undoes an acquire that nobody waits for any more.
    pub(super) fn undo(&self, core: &Core, undo: Undo) {
        core.releases.begun();
        let _ = self.jobs.send(Job::Undo { undo, token: core.background.token() });
    }

    /// Subscribes to the releases of `key`, or to the turn of a lock id in its line, with the
    /// keeper's connection.
    pub(super) fn subscribe(
        &self,
        key: Key,
        turn_of: Option<LockId>,
    ) -> oneshot::Receiver<Result<Subscription, Error>> {
        self.send(|done| Job::Subscribe { key, turn_of, done })
    }

    fn send<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> oneshot::Receiver<T> {
        let (done, outcome) = oneshot::channel();
        // The thread ends only after this sender is gone.
        let _ = self.jobs.send(job(done));
        outcome
    }
}

async fn keep(core: Arc<Core>, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let taken = tokio::spawn(hear_of_taken_locks(core.clone()));
    let mut next = Vec::with_capacity(JOBS_AT_ONCE);
    loop {
        let due = core.plan();
        tokio::select! {
            biased;
            () = core.sooner.notified() => {}
            () = core.sleep_until(due) => {}
            received = jobs.recv_many(&mut next, JOBS_AT_ONCE) => {
                if received == 0 {
                    break;
                }
                next.drain(..).for_each(|job| job.start(&core));
            }
        }
        core.tend();
    }
    taken.abort();
    core.background.close();
    core.background.wait().await;
    core.precautions.close();
    core.precautions.wait().await;
}

/// Ends holds at once when the store reports that they were stolen or released by force.
async fn hear_of_taken_locks(core: Arc<Core>) {
    if !core.backend.capabilities().wake_ups {
        return;
    }
    loop {
        let subscribe = core.backend.subscribe(Topic::Taken);
        if let Ok(mut taken) = core.within(core.call_timeout, Operation::Subscribe, subscribe).await {
            while let Some(event) = taken.next().await {
                match event {
                    Event::Taken { key, fence, how } => core.taken(&key, fence, how),
                    // What was missed shows at the next renewal.
                    Event::Missed | Event::Freed | Event::Granted { .. } => {}
                }
            }
        }
        tokio::time::sleep(RESUBSCRIBE).await;
    }
}
