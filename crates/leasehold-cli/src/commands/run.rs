use std::io;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use leasehold::{Error, Holder, Locks, Mode};
use serde_json::Value;
use tokio::time::Instant;

use crate::acquire::{Asked, Wanted};
use crate::child::{Cause, Ended, Job, Supervisor, Terminal, can_be_found, reaping};
use crate::exit::{self, End, Failure};
use crate::granted::Granted;
use crate::options::{Common, LockOptions, duration, some_time};
use crate::own_lock::OwnLock;
use crate::reporter::Reporter;
use crate::signals::{Signal, Signals};
use crate::store::{self, Store};
use crate::task::Task;
use crate::{environment, event, notes};

/// How long to try to give back what is left of a lost lock, to a store that probably does not
/// answer.
const AFTER_LOSS: Duration = Duration::from_secs(1);

const USAGE: &str =
    "leasehold run [OPTIONS] KEY [--] CMD [ARGS]...\n       leasehold run [OPTIONS] --all KEY... -- CMD [ARGS]...";

/// Run a command under a lock
///
/// Waits for the lock, runs CMD, and releases the lock when CMD has ended. It ends as CMD did: with
/// its exit code or by its signal.
///
/// Whoever waits stands in line and gets the lock in turn, over all hosts; on Firestore with
/// --fair. `leasehold show KEY` shows the line.
///
/// CMD runs in a process group of its own. If the lock is lost, CMD and everything it started is
/// told to stop (TERM) and killed before anybody else can get the lock; the exit code is 79 then.
/// Signals are passed on to CMD. INT, TERM and QUIT are followed by a kill after --grace, or when
/// another one comes a second or more later. In the foreground of a terminal, CMD has the terminal.
///
/// Others who look at the lock see the process id, the user and CMD, unless --no-command is given.
///
/// CMD finds LEASEHOLD_KEY, LEASEHOLD_KEYS (one per line), LEASEHOLD_LOCK_ID, LEASEHOLD_FENCE,
/// LEASEHOLD_SLOT (with --permits), LEASEHOLD_HOLDER, LEASEHOLD_STORE (without credentials) and
/// LEASEHOLD_HELD (all locks under which it runs) in its environment. Inside CMD, `leasehold
/// extend`, `release` and `show` work for its locks without the credentials of the store.
#[derive(Args, Debug)]
#[command(after_help = exit::help(), override_usage = USAGE)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) task: Task,
    #[command(flatten)]
    lock: LockOptions,
    /// If the lock cannot be had in the time given by --wait, run CMD without it
    #[arg(long)]
    proceed_unlocked: bool,
    /// Keep the lock at least this long, also if CMD ends earlier
    #[arg(long, value_name = "DUR", value_parser = duration)]
    at_least: Option<Duration>,
    /// The time between TERM and KILL when CMD is stopped; less if the lease ends earlier
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = duration)]
    grace: Duration,
    /// The longest to hold the lock: CMD is stopped in time
    #[arg(long, value_name = "DUR", value_parser = some_time)]
    max_hold: Option<Duration>,
    /// Do not show CMD to others who look at the lock: there are secrets in it
    #[arg(long)]
    no_command: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

impl Options {
    /// # Errors
    ///
    /// Options that make no sense together.
    fn check(&self) -> Result<(), Failure> {
        let wrong = |message: &str| Err(Failure::new(exit::USAGE, message));
        if self.proceed_unlocked && self.lock.wait_at_most().is_none() {
            return wrong("--proceed-unlocked needs to know for how long to wait")
                .map_err(|failure| failure.hint("add --wait DUR or --no-wait"));
        }
        if self.at_least.zip(self.max_hold).is_some_and(|(least, most)| least >= most) {
            return wrong("--at-least must be shorter than --max-hold");
        }
        if self.task.keys.len() == 1 {
            return Ok(());
        }
        if self.lock.mode() != Mode::Exclusive {
            let hint = "run one leasehold inside another for that, always in the same order";
            return wrong("several keys are locked for oneself alone: there is no --shared and no --permits for them")
                .map_err(|failure| failure.hint(hint));
        }
        if self.lock.steal().is_possible() {
            return wrong(
                "several keys cannot be stolen: there is no --steal-same-holder and no --steal-after for them",
            )
            .map_err(|failure| failure.hint("end the lock that is in the way with leasehold force-release"));
        }
        Ok(())
    }

    /// What others who look at the lock find beside the notes of the user.
    fn notes(&self) -> Vec<(&'static str, Value)> {
        notes::of_process((!self.no_command).then_some(&self.task.words))
    }
}

pub(crate) async fn run(options: &Options, reporter: &Reporter) -> Result<End, Failure> {
    options.check()?;
    if !can_be_found() {
        return Err(Failure::new(
            exit::CANNOT_EXECUTE,
            "cannot run a command: /proc is not there, or does not know us",
        )
        .hint("mount it (mount -t proc proc /proc); without it what the command starts cannot be stopped"));
    }
    let store = Store::choose(&options.common, reporter)?;
    if let Some(warning) = store.locking_warning() {
        reporter.report(&event::warning(&warning));
    }
    let wanted = Wanted {
        keys: &options.task.keys,
        store: &store,
        options: &options.lock,
        holder: holder(options),
        metadata: options.lock.metadata(&options.notes())?,
        max_hold: options.max_hold,
        since: Instant::now(),
    };
    let mut signals = Signals::install().map_err(|error| Failure::signals(&error))?;
    let locks = tokio::select! {
        connected = wanted.connect(reporter) => connected,
        signal = signals.next_to_stop() => return Ok(End::Signal(signal)),
    };
    let locks = match locks {
        Ok(locks) => locks,
        Err(failure) if options.proceed_unlocked && failure.code == exit::UNAVAILABLE => {
            let run = Run { options, store: &store, holder: &wanted.holder, reporter };
            return run.without_lock(&failure.message, signals).await;
        }
        Err(failure) => return Err(failure),
    };
    let result = locked(options, &wanted, &store, &locks, signals, reporter).await;
    let timeout = if result == Ok(End::Code(exit::LOST)) { AFTER_LOSS } else { store::CLOSING };
    store::close(&locks, timeout).await;
    result
}

async fn locked(
    options: &Options,
    wanted: &Wanted<'_>,
    store: &Store,
    locks: &Locks,
    mut signals: Signals,
    reporter: &Reporter,
) -> Result<End, Failure> {
    let run = Run { options, store, holder: &wanted.holder, reporter };
    match reaping(wanted.ask(locks, &mut signals, reporter)).await {
        Asked::Granted(granted) => run.under(granted, locks, signals).await,
        Asked::Stopped(signal) => Ok(End::Signal(signal)),
        Asked::Refused(refused) if options.proceed_unlocked && refused.may_proceed() => {
            run.without_lock(&refused.failure(wanted).message, signals).await
        }
        Asked::Refused(refused) => Err(refused.failure(wanted)),
    }
}

/// The host and the command, unless the user has a better name.
fn holder(options: &Options) -> Holder {
    if let Some(holder) = &options.lock.holder {
        return holder.clone();
    }
    let ours = Holder::default();
    let named = || {
        let (host, _) = ours.as_str().rsplit_once('/')?;
        let command = Path::new(options.task.words.first()?).file_name()?.to_str()?;
        Holder::new(&format!("{host}/{command}")).ok()
    };
    named().unwrap_or(ours.clone())
}

/// One run of the command.
struct Run<'a> {
    options: &'a Options,
    store: &'a Store,
    holder: &'a Holder,
    reporter: &'a Reporter,
}

impl Run<'_> {
    async fn under(&self, granted: Granted, locks: &Locks, mut signals: Signals) -> Result<End, Failure> {
        let acquired = Instant::now();
        if let Some(signal) = signals.pending().await {
            self.reporter.report(&event::signal(signal));
            return self.released(End::Signal(signal), granted.release().await);
        }
        if granted.is_lost() {
            // We were stopped, or starved, since the grant.
            let _ = tokio::time::timeout(AFTER_LOSS, granted.release()).await;
            return Err(Failure::new(exit::LOST, "the lock was lost before the command was started"));
        }
        let own_lock = self.serve(&granted, locks);
        let outcome = match self.start(Some(&granted), own_lock.as_ref(), signals).await {
            Ok((ended, mut signals)) if ended.cause.is_none() => {
                let interrupted = reaping(self.keep(&granted, acquired, &mut signals)).await;
                Ok((interrupted.map_or(ended.end(), End::Signal), None))
            }
            Ok((ended, _)) => Ok((ended.end(), ended.cause)),
            Err(failure) => Err(failure),
        };
        if matches!(outcome, Ok((_, Some(Cause::Lost)))) {
            // What is left of it may be in the way of others, but there is nothing more to learn.
            let _ = tokio::time::timeout(AFTER_LOSS, granted.release()).await;
            return Ok(End::Code(exit::LOST));
        }
        if granted.leases().is_empty() {
            // The command gave everything back itself.
            drop(granted);
            return outcome.map(|(end, _)| end);
        }
        let released = granted.release().await;
        self.released(outcome?.0, released)
    }

    async fn without_lock(&self, why: &str, signals: Signals) -> Result<End, Failure> {
        self.reporter.report(&event::unlocked(&self.options.task.keys, why));
        Ok(self.start(None, None, signals).await?.0.end())
    }

    /// Lets the command extend, release and look at its locks. Through us, so that we know of it,
    /// and it needs no credentials.
    fn serve(&self, granted: &Granted, locks: &Locks) -> Option<OwnLock> {
        let served = OwnLock::serve(locks, self.store.public_name(), granted, self.options.lock.ttl);
        let warn = |error: &io::Error| {
            let text = format!("the command cannot extend its lock without the store's password: no socket: {error}");
            self.reporter.report(&event::warning(&text));
        };
        served.inspect_err(warn).ok()
    }

    /// Starts the command and watches over it until it has ended.
    async fn start(
        &self,
        granted: Option<&Granted>,
        own_lock: Option<&OwnLock>,
        signals: Signals,
    ) -> Result<(Ended, Signals), Failure> {
        let mut signals = signals.with_suspend().map_err(|error| Failure::signals(&error))?;
        let mut terminal = Terminal::for_command();
        let task = &self.options.task;
        let variables = environment::variables(&task.keys, self.holder, self.store, granted, own_lock);
        let job = Job::start(&task.words, &variables, &mut terminal, self.reporter.json())?;
        self.reporter.report(&event::started(job.pid()));
        let leases = granted.map(Granted::leases).unwrap_or_default();
        let times = (self.options.grace, self.options.lock.ttl.as_duration(), self.options.max_hold);
        let watched = Supervisor::new(job, terminal, leases, times, self.reporter).watch(&mut signals).await;
        Ok((watched.map_err(|error| Failure::signals(&error))?, signals))
    }

    /// Keeps the locks until `--at-least` is over. Tells which signal ended that early.
    async fn keep(&self, granted: &Granted, acquired: Instant, signals: &mut Signals) -> Option<Signal> {
        let until = acquired + self.options.at_least?;
        let left = until.checked_duration_since(Instant::now())?;
        let leases = granted.leases();
        if leases.is_empty() {
            return None;
        }
        self.reporter.report(&event::keeping(left));
        tokio::select! {
            () = tokio::time::sleep_until(until) => None,
            _ = leases.lost() => None,
            signal = signals.next_to_stop() => Some(signal),
        }
    }

    /// What the release came to decides too: a lock that was lost unnoticed is still lost.
    fn released(&self, end: End, released: Result<(), Error>) -> Result<End, Failure> {
        let Err(error) = released else {
            self.reporter.report(&event::released());
            return Ok(end);
        };
        let failure = Failure::from(&error);
        if error.loss().is_some() {
            return Err(failure.hint("the end of the command may have overlapped with another holder"));
        }
        self.reporter.report(&event::release_failed(&failure));
        // The lock was ours to the end and goes away by itself. But a store that cannot be trusted
        // is a failure.
        Ok(if end == End::Code(0) && !error.is_retryable() { End::Code(failure.code) } else { end })
    }
}
