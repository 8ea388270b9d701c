use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{OnceCell, mpsc, oneshot};

use super::background::{Job, Work};
use super::core::Core;
use super::hold::Hold;
use crate::{Backend, Error, ErrorCode, Event, Loss, Operation, Topic, Ttl};

/// The pause before a lost subscription is made again.
const RESUBSCRIBE: Duration = Duration::from_secs(1);

/// A thread with a runtime and a store connection of its own. It renews leases, notices deadlines, and releases what
/// was dropped or cancelled, whatever the user's runtime is doing. It lives as long as this value, and afterwards until
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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (jobs, received) = mpsc::unbounded_channel();
        thread::Builder::new()
            .name("leasehold-keeper".into())
            .spawn(move || runtime.block_on(keep(core, received)))
            .map_err(failed)?;
        Ok(Self { jobs })
    }

    /// Has `work` done in the background. The receiver gets the outcome.
    pub(super) fn send(&self, core: &Core, work: Work) -> oneshot::Receiver<Result<(), Error>> {
        let (done, outcome) = oneshot::channel();
        // The thread ends only after this sender is gone.
        let _ = self.jobs.send(Job { work, done, token: core.background.token() });
        outcome
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
                    tokio::spawn(job.run(store.clone()));
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
pub(super) struct Store {
    pub(super) core: Arc<Core>,
    connection: OnceCell<Arc<dyn Backend>>,
}

impl Store {
    pub(super) async fn get(&self) -> Result<&Arc<dyn Backend>, Error> {
        let core = &self.core;
        let fork = || core.within(core.settings.operation_timeout, Operation::Fork, core.backend.fork());
        self.connection.get_or_try_init(fork).await
    }

    /// The keeper's own connection, or the handle's if there is none to be had.
    pub(super) async fn get_any(&self) -> &dyn Backend {
        &**self.get().await.unwrap_or(&self.core.backend)
    }

    /// Extends a hold. If the lock turns out to be lost, the hold is ended.
    pub(super) async fn extend(&self, hold: &Hold, ttl: Ttl) -> Result<(), Error> {
        let core = &self.core;
        let extend = async { hold.extend(&**self.get().await?, ttl).await };
        let result = core.within(core.patience(hold, ttl), Operation::Extend, extend).await;
        if let Err(error) = &result
            && let Some(loss) = error.loss()
        {
            core.lose(hold, loss);
        }
        result
    }
}

/// Looks after one hold that is due: notices that its time is over, or renews it.
async fn tend(store: Arc<Store>, hold: Arc<Hold>) {
    let core = &store.core;
    if core.settings.planted(super::PlantedBug::RenewAfterRelease) && hold.loss() == Some(Loss::Released) {
        if let Ok(backend) = store.get().await {
            let _ = backend.extend(&hold.lock_id, hold.ttl()).await;
        }
        core.look_again_at(&hold, core.after(hold.ttl().as_duration() / 3));
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
    match store.extend(&hold, ttl).await {
        Ok(()) => core.reschedule(&hold),
        Err(error) if error.loss().is_some() => {}
        Err(error) => {
            tracing::debug!(key = %hold.key.hash_id(), %error, "a renewal failed and is tried again");
            hold.set_uncertain();
            let pause = (ttl.as_duration() / 10).clamp(Duration::from_millis(2), Duration::from_secs(1));
            core.look_again_at(&hold, core.after(pause.min(hold.remaining())));
        }
    }
}

/// Ends holds at once when the store reports that they were stolen or released by force.
async fn hear_of_taken_locks(store: Arc<Store>) {
    let core = &store.core;
    if !core.backend.capabilities().wake_ups {
        return;
    }
    loop {
        let subscribe = async { store.get().await?.subscribe(Topic::Taken).await };
        if let Ok(mut taken) = core.within(core.settings.operation_timeout, Operation::Subscribe, subscribe).await {
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
