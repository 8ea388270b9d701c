use std::io;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use leasehold::{Error, ErrorCode, Guard, Holder, Lease, LockState, Locks, Loss};
use serde_json::Value;
use tokio::time::Instant;

use crate::acquire::{Asked, Wanted};
use crate::child::{Cause, Ended, Job, Supervisor, Terminal, can_be_found, reaping};
use crate::exit::{self, End, Failure};
use crate::options::{Common, LockOptions, duration, some_time};
use crate::own_lock::{self, OwnLock};
use crate::reporter::Reporter;
use crate::signals::{Signal, Signals};
use crate::store::{self, Store};
use crate::task::Task;
use crate::{event, held, notes};

/// How long to try to give back what is left of a lost lock, to a store that probably does not
/// answer.
const AFTER_LOSS: Duration = Duration::from_secs(1);

/// Run a command under a lock
///
/// Waits for the lock, runs CMD, and releases the lock when CMD has ended. It ends as CMD did: with
/// its exit code or by its signal.
///
/// CMD runs in a process group of its own. If the lock is lost, CMD and everything it started is
/// told to stop (TERM) and killed before anybody else can get the lock; the exit code is 79 then.
/// Signals are passed on to CMD. INT, TERM and QUIT are followed by a kill after --grace, or when
/// another one comes a second or more later. In the foreground of a terminal, CMD has the terminal.
///
/// Others who look at the lock see the process id, the user and CMD, unless --no-command is given.
///
/// CMD finds LEASEHOLD_KEY, LEASEHOLD_LOCK_ID, LEASEHOLD_FENCE, LEASEHOLD_HOLDER, LEASEHOLD_STORE
/// (without credentials) and LEASEHOLD_HELD (all locks under which it runs) in its environment.
/// Inside CMD, `leasehold extend`, `release` and `show` work for this lock without the credentials
/// of the store.
#[derive(Args, Debug)]
#[command(after_help = exit::help(), override_usage = "leasehold run [OPTIONS] KEY [--] CMD [ARGS]...")]
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
    /// What others who look at the lock find beside the notes of the user.
    fn notes(&self) -> Vec<(&'static str, Value)> {
        notes::of_process((!self.no_command).then_some(&self.task.words))
    }
}

pub(crate) async fn run(options: &Options, reporter: &Reporter) -> Result<End, Failure> {
    if options.proceed_unlocked && options.lock.wait_at_most().is_none() {
        return Err(Failure::new(exit::USAGE, "--proceed-unlocked needs to know for how long to wait")
            .hint("add --wait DUR or --no-wait"));
    }
    if options.at_least.zip(options.max_hold).is_some_and(|(least, most)| least >= most) {
        return Err(Failure::new(exit::USAGE, "--at-least must be shorter than --max-hold"));
    }
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
        key: &options.task.key,
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
        Asked::Granted(guard) => run.under(guard, locks, signals).await,
        Asked::Stopped(signal) => Ok(End::Signal(signal)),
        Asked::Refused(error, seen) if options.proceed_unlocked && may_proceed(&error) => {
            run.without_lock(&wanted.refused(&error, seen.as_ref()).message, signals).await
        }
        Asked::Refused(error, seen) => Err(wanted.refused(&error, seen.as_ref())),
    }
}

/// Only what more time would mend: not a store that refuses us.
fn may_proceed(error: &Error) -> bool {
    error.is_retryable() || error.code() == ErrorCode::AcquisitionTimeout
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
    async fn under(&self, guard: Guard, locks: &Locks, mut signals: Signals) -> Result<End, Failure> {
        let acquired = Instant::now();
        if let Some(signal) = signals.pending().await {
            self.reporter.report(&event::signal(signal));
            return self.released(End::Signal(signal), guard.release().await);
        }
        if guard.state() == LockState::Lost {
            // We were stopped, or starved, since the grant.
            let _ = tokio::time::timeout(AFTER_LOSS, guard.release()).await;
            return Err(Failure::new(exit::LOST, "the lock was lost before the command was started"));
        }
        let own_lock = self.serve(&guard, locks);
        let outcome = match self.start(Some(guard.lease()), own_lock.as_ref(), signals).await {
            Ok((ended, mut signals)) if ended.cause.is_none() => {
                let interrupted = reaping(self.keep(&guard, acquired, &mut signals)).await;
                Ok((interrupted.map_or(ended.end(), End::Signal), None))
            }
            Ok((ended, _)) => Ok((ended.end(), ended.cause)),
            Err(failure) => Err(failure),
        };
        if matches!(outcome, Ok((_, Some(Cause::Lost)))) {
            // What is left of it may be in the way of others, but there is nothing more to learn.
            let _ = tokio::time::timeout(AFTER_LOSS, guard.release()).await;
            return Ok(End::Code(exit::LOST));
        }
        if guard.loss() == Some(Loss::Released) {
            // The command gave it back itself.
            drop(guard);
            return outcome.map(|(end, _)| end);
        }
        let released = guard.release().await;
        self.released(outcome?.0, released)
    }

    async fn without_lock(&self, why: &str, signals: Signals) -> Result<End, Failure> {
        self.reporter.report(&event::unlocked(&self.options.task.key, why));
        Ok(self.start(None, None, signals).await?.0.end())
    }

    /// Lets the command extend, release and look at its lock. Through us, so that we know of it,
    /// and it needs no credentials.
    fn serve(&self, guard: &Guard, locks: &Locks) -> Option<OwnLock> {
        let (key, ttl) = (&self.options.task.key, self.options.lock.ttl);
        let served = OwnLock::serve(locks, self.store.public_name(), key, guard.lock_id(), ttl);
        let warn = |error: &io::Error| {
            let text = format!("the command cannot extend its lock without the store's password: no socket: {error}");
            self.reporter.report(&event::warning(&text));
        };
        served.inspect_err(warn).ok()
    }

    /// Starts the command and watches over it until it has ended.
    async fn start(
        &self,
        lease: Option<&Lease>,
        own_lock: Option<&OwnLock>,
        signals: Signals,
    ) -> Result<(Ended, Signals), Failure> {
        let mut signals = signals.with_suspend().map_err(|error| Failure::signals(&error))?;
        let mut terminal = Terminal::for_command();
        let variables = self.variables(lease, own_lock);
        let job = Job::start(&self.options.task.words, &variables, &mut terminal, self.reporter.json())?;
        self.reporter.report(&event::started(job.pid()));
        let times = (self.options.grace, self.options.lock.ttl.as_duration(), self.options.max_hold);
        let watched = Supervisor::new(job, terminal, lease, times, self.reporter).watch(&mut signals).await;
        Ok((watched.map_err(|error| Failure::signals(&error))?, signals))
    }

    /// What the command finds in its environment. What it inherited from another run is not true
    /// for this one, but the locks of that one are still held.
    fn variables(&self, lease: Option<&Lease>, own_lock: Option<&OwnLock>) -> Vec<(&'static str, Option<String>)> {
        let mut variables = vec![
            ("LEASEHOLD_KEY", Some(self.options.task.key.as_str().to_owned())),
            ("LEASEHOLD_LOCK_ID", lease.map(|lease| lease.lock_id().expose().to_owned())),
            ("LEASEHOLD_FENCE", lease.map(|lease| lease.fence().to_string())),
            ("LEASEHOLD_HOLDER", Some(self.holder.as_str().to_owned())),
            (store::VARIABLE, Some(self.store.public_name())),
            (own_lock::VARIABLE, own_lock.map(|own_lock| own_lock.path().display().to_string())),
        ];
        variables.extend(lease.map(|lease| (held::VARIABLE, Some(held::with(&self.options.task.key, lease.fence())))));
        variables
    }

    /// Keeps the lock until `--at-least` is over. Tells which signal ended that early.
    async fn keep(&self, guard: &Guard, acquired: Instant, signals: &mut Signals) -> Option<Signal> {
        let until = acquired + self.options.at_least?;
        let left = until.checked_duration_since(Instant::now())?;
        self.reporter.report(&event::keeping(left));
        tokio::select! {
            () = tokio::time::sleep_until(until) => None,
            _ = guard.lost() => None,
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
