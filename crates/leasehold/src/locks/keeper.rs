use std::pin::Pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{OnceCell, mpsc, oneshot};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::core::Core;
use super::hold::Hold;
use crate::{Acquire, AcquireRequest, Backend, Error, ErrorCode, Event, Loss, Operation, Topic, Ttl};

/// The pause before a lost subscription is made again.
const RESUBSCRIBE: Duration = Duration::from_secs(1);

/// A thread with a runtime and a store connection of its own. It renews leases, notices deadlines, and releases what
/// was dropped or cancelled, whatever the user's runtime is doing. It lives as long as this value, and afterwards until
/// what it has begun is done.
#[derive(Debug)]
pub(super) struct Keeper {
    jobs: mpsc::UnboundedSender<Job>,
}

/// An acquire that is on its way.
pub(super) type InFlight = Pin<Box<dyn Future<Output = Result<Acquire, Error>> + Send>>;

/// Something to do in the background. The token makes `shutdown` wait for it.
enum Job {
    Release {
        hold: Arc<Hold>,
        done: oneshot::Sender<Result<(), Error>>,
        token: TaskTrackerToken,
    },
    Extend {
        hold: Arc<Hold>,
        ttl: Ttl,
        for_good: bool,
        done: oneshot::Sender<Result<(), Error>>,
        token: TaskTrackerToken,
    },
    Undo {
        request: Arc<AcquireRequest>,
        in_flight: Option<InFlight>,
        may_hold: bool,
        token: TaskTrackerToken,
    },
}

impl Keeper {
    pub(super) fn start(core: Arc<Core>) -> Result<Self, Error> {
        let failed = |source: std::io::Error| {
            Error::new(ErrorCode::Internal, "cannot start the thread that keeps locks alive")
                .with_hint("the limit on threads or open files of this process may be too low")
                .with_source(source)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (jobs, received) = mpsc::unbounded_channel();
        thread::Builder::new()
            .name("leasehold-keeper".into())
            .spawn(move || runtime.block_on(keep(core, received)))
            .map_err(failed)?;
        Ok(Self { jobs })
    }

    /// Releases an ended hold in the background. The receiver gets the outcome; failures are also reported to the hook.
    pub(super) fn release(&self, core: &Core, hold: Arc<Hold>) -> oneshot::Receiver<Result<(), Error>> {
        let (done, outcome) = oneshot::channel();
        // The thread ends only after this sender is gone.
        let _ = self.jobs.send(Job::Release { hold, done, token: core.background.token() });
        outcome
    }

    /// Extends a hold, to `ttl` from now on if `for_good`.
    pub(super) fn extend(
        &self,
        core: &Core,
        hold: Arc<Hold>,
        ttl: Ttl,
        for_good: bool,
    ) -> oneshot::Receiver<Result<(), Error>> {
        let (done, outcome) = oneshot::channel();
        let _ = self.jobs.send(Job::Extend { hold, ttl, for_good, done, token: core.background.token() });
        outcome
    }

    /// Undoes an acquire that nobody waits for any more, after its answer has come. Without `may_hold`, no earlier try
    /// has left its outcome unknown.
    pub(super) fn undo(&self, core: &Core, request: Arc<AcquireRequest>, in_flight: Option<InFlight>, may_hold: bool) {
        let _ = self.jobs.send(Job::Undo { request, in_flight, may_hold, token: core.background.token() });
    }
}

async fn keep(core: Arc<Core>, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let store = Arc::new(Store { core, connection: OnceCell::new() });
    let core = &store.core;
    let hear = tokio::spawn(hear_of_taken_locks(store.clone()));
    loop {
        let due = core.plan();
        tokio::select! {
            job = jobs.recv() => match job {
                Some(job) => {
                    tokio::spawn(do_job(store.clone(), job));
                }
                None => break,
            },
            () = core.sooner.notified() => {}
            () = core.sleep_until(due) => {}
        }
        for hold in core.take_due() {
            tokio::spawn(tend(store.clone(), hold));
        }
    }
    hear.abort();
    core.background.close();
    core.background.wait().await;
}

/// The keeper's own way to the store, opened when it is first needed.
struct Store {
    core: Arc<Core>,
    connection: OnceCell<Arc<dyn Backend>>,
}

impl Store {
    async fn get(&self) -> Result<&Arc<dyn Backend>, Error> {
        let core = &self.core;
        let fork = || core.within(core.settings.operation_timeout, Operation::Fork, core.backend.fork());
        self.connection.get_or_try_init(fork).await
    }
}

/// Looks after one hold that is due: notices that its time is over, or renews it.
async fn tend(store: Arc<Store>, hold: Arc<Hold>) {
    let core = &store.core;
    if core.settings.planted(super::PlantedBug::RenewAfterRelease) && hold.loss() == Some(Loss::Released) {
        if let Ok(backend) = store.get().await {
            let _ = backend.extend(&hold.lock_id, hold.ttl()).await;
        }
        core.look_again_at(&hold, core.now() + hold.ttl().as_duration() / 3);
        return;
    }
    if let Some(loss) = hold.loss() {
        core.lose(&hold, loss);
        return;
    }
    if !hold.heartbeat || hold.next_look() > core.now() {
        core.reschedule(&hold);
        return;
    }
    let ttl = hold.ttl();
    match extend(&store, &hold, ttl).await {
        Ok(()) => core.reschedule(&hold),
        Err(error) if error.loss().is_some() => {}
        Err(error) => {
            tracing::debug!(key = %hold.key.hash_id(), %error, "a renewal failed and is tried again");
            hold.set_uncertain();
            let pause = (ttl.as_duration() / 10).clamp(Duration::from_millis(2), Duration::from_secs(1));
            core.look_again_at(&hold, core.now() + pause.min(hold.remaining()));
        }
    }
}

/// Extends a hold on the keeper's own connection. If the lock turns out to be lost, the hold is ended.
async fn extend(store: &Store, hold: &Hold, ttl: Ttl) -> Result<(), Error> {
    let core = &store.core;
    let extend = async { hold.extend(&**store.get().await?, ttl).await };
    let result = core.within(core.patience(hold, ttl), Operation::Extend, extend).await;
    if let Err(error) = &result
        && let Some(loss) = error.loss()
    {
        core.lose(hold, loss);
    }
    result
}

async fn do_job(store: Arc<Store>, job: Job) {
    let core = &store.core;
    match job {
        Job::Release { hold, done, token } => {
            // Until the lease ends by itself there is a point in trying.
            let until = core.now() + core.settings.release_timeout.max(hold.ttl().as_duration());
            let result = match store.get().await {
                Ok(backend) => core.release_hold(&**backend, &hold, until).await,
                Err(_) => core.release_hold(&*core.backend, &hold, until).await,
            };
            if let Err(error) = &result {
                core.release_failed(&hold.key, &hold.lock_id, error);
            }
            let _ = done.send(result);
            drop(token);
        }
        Job::Extend { hold, ttl, for_good, done, token } => {
            let result = extend(&store, &hold, ttl).await;
            if result.is_ok() && for_good {
                hold.set_ttl(ttl);
            }
            // Also after a failure: the deadline may be nearer than it was.
            core.reschedule(&hold);
            let _ = done.send(result);
            drop(token);
        }
        Job::Undo { request, in_flight, may_hold, token } => {
            undo(&store, &request, in_flight, may_hold).await;
            drop(token);
        }
    }
}

/// Waits for the answer of an acquire that nobody wants any more, and gives back what it was granted.
async fn undo(store: &Store, request: &AcquireRequest, in_flight: Option<InFlight>, may_hold: bool) {
    let core = &store.core;
    if let Some(in_flight) = in_flight {
        // In a task of its own: it was made on a runtime that may be gone, and may panic for that reason.
        let answer = tokio::spawn(in_flight);
        if let (Ok(Ok(Acquire::Held(_))), false) = (answer.await, may_hold) {
            return;
        }
    }
    let until = core.now() + core.settings.release_timeout.max(request.ttl.as_duration());
    let backend = store.get().await.unwrap_or(&core.backend);
    let result = core.release(&**backend, &request.key, &request.lock_id, until).await;
    if let Err(error) = result
        && error.loss().is_none()
    {
        core.release_failed(&request.key, &request.lock_id, &error);
    }
}

/// Ends holds at once when the store reports that they were stolen or released by force.
async fn hear_of_taken_locks(store: Arc<Store>) {
    let core = &store.core;
    if !core.backend.capabilities().wake_ups {
        return;
    }
    loop {
        if let Ok(backend) = store.get().await
            && let Ok(mut taken) = backend.subscribe(Topic::Taken).await
        {
            while let Some(event) = taken.next().await {
                match event {
                    Event::Taken { lock_id, how } => core.taken(&lock_id, how),
                    // What was missed shows at the next renewal.
                    Event::Missed | Event::Freed => {}
                }
            }
        }
        tokio::time::sleep(RESUBSCRIBE).await;
    }
}
