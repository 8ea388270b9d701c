use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, wait};

use super::descendants::{Process, State, adopt_orphans, descendants};
use super::shim;
use super::terminal::Terminal;
use crate::exit::{self, Failure};

/// How long to go on killing what does not die, for example because it hangs in the kernel.
const KILLING: Duration = Duration::from_secs(5);

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Exited(i32),
    Signalled(i32),
}

impl Status {
    /// The code and the signal, one of which there is.
    pub(crate) fn parts(self) -> (Option<i32>, Option<i32>) {
        match self {
            Status::Exited(code) => (Some(code), None),
            Status::Signalled(signal) => (None, Some(signal)),
        }
    }
}

/// A started command: the leader of a process group, and all its descendants.
#[derive(Debug)]
pub(crate) struct Job {
    leader: Pid,
    status: Option<Status>,
    /// The signal that stopped the leader, until somebody looks.
    stopped_by: Option<i32>,
    /// The leader is stopped.
    is_stopped: bool,
}

impl Job {
    /// Starts `words` in a process group of its own, with these variables set and removed, and with
    /// the terminal if it is lent.
    ///
    /// # Errors
    ///
    /// The command cannot be started.
    pub(crate) fn start(
        words: &[OsString],
        variables: &[(&str, Option<String>)],
        terminal: &mut Terminal,
        json: bool,
    ) -> Result<Self, Failure> {
        adopt_orphans();
        let mut command = shim::command(words, terminal.is_lent(), json);
        command.process_group(0);
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let child = command.spawn().map_err(|error| {
            let (program, rest) =
                words.split_first().map_or_else(Default::default, |(program, rest)| (program.clone(), rest));
            shim::cannot_run(&program, rest, &error)
        })?;
        let leader = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let leader = leader.ok_or_else(|| Failure::new(exit::CANNOT_EXECUTE, "the process has no number"))?;
        terminal.started(leader);
        Ok(Self { leader, status: None, stopped_by: None, is_stopped: false })
    }

    /// A process that a test has started.
    #[cfg(test)]
    #[allow(clippy::needless_pass_by_value)] // It is waited for here from now on.
    pub(super) fn of(child: std::process::Child) -> Self {
        let leader = i32::try_from(child.id()).ok().and_then(Pid::from_raw).unwrap();
        Self { leader, status: None, stopped_by: None, is_stopped: false }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.leader.as_raw_nonzero().get()
    }

    /// How the command ended, if it has.
    pub(crate) fn status(&self) -> Option<Status> {
        self.status
    }

    /// Notes what became of our children, the command as well as orphans that it left to us. Tells
    /// whether there are none left. That is certain, unlike what a look at `/proc` says while
    /// processes come and go: every orphan among our descendants becomes our child, so without
    /// children there are no descendants.
    pub(super) fn reap(&mut self) -> bool {
        loop {
            let (pid, status) = match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED) {
                Ok(Some(child)) => child,
                Ok(None) => return false,
                Err(error) => return error == Errno::CHILD,
            };
            if pid != self.leader {
                continue;
            }
            self.is_stopped = status.stopped();
            if let Some(signal) = status.stopping_signal() {
                self.stopped_by = Some(signal);
            } else if let Some(code) = status.exit_status() {
                self.status = Some(Status::Exited(code));
            } else if let Some(signal) = status.terminating_signal() {
                self.status = Some(Status::Signalled(signal));
            }
        }
    }

    /// The signal that has stopped the command since the last call.
    pub(super) fn take_stop(&mut self) -> Option<i32> {
        self.stopped_by.take()
    }

    /// Whether the command is stopped, as far as we have noticed.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Stops the command and all its descendants. Returns those that were running.
    pub(super) fn pause(&self) -> Vec<Pid> {
        let running: Vec<_> = descendants().into_iter().filter(|process| process.state == State::Running).collect();
        self.signal_all(Signal::STOP);
        running.iter().map(|process| process.pid).collect()
    }

    /// Continues the command and those that were running. The jobs that a shell has stopped stay
    /// stopped.
    pub(super) fn resume(&self, running: &[Pid]) {
        self.signal_group(Signal::CONT);
        for pid in running {
            let _ = kill_process(*pid, Signal::CONT);
        }
    }

    /// Sends `signal` to the group alone. Whoever left the group did so to be left alone, and a
    /// `leasehold` below us would pass it on a second time.
    pub(super) fn signal_group(&self, signal: Signal) {
        if self.status.is_none() {
            let _ = kill_process_group(self.leader, signal);
        }
    }

    /// Sends `signal` to the group and to whatever left it.
    pub(super) fn signal_all(&self, signal: Signal) {
        // Once the leader is reaped, the number of an empty group may be given to somebody else.
        let group = self.status.is_none().then_some(self.leader);
        if let Some(group) = group {
            let _ = kill_process_group(group, signal);
        }
        let reached = |process: &Process| group.is_some_and(|group| group.as_raw_nonzero().get() == process.group);
        for process in descendants().iter().filter(|process| !reached(process)) {
            let _ = kill_process(process.pid, signal);
        }
    }

    /// Whether the command and all its descendants have ended.
    pub(super) fn is_gone(&mut self) -> bool {
        self.reap() && self.status.is_some()
    }

    /// The number of descendants that outlived the command.
    pub(super) fn left_running(&mut self) -> usize {
        // Without children there are none, and no need to look at every process of the host.
        if self.reap() { 0 } else { descendants().len() }
    }

    /// Kills the command and all its descendants, those included that are started meanwhile.
    /// Returns how many are left: none, unless the system does not let us or they hang in the
    /// kernel.
    pub(super) async fn kill_all(&mut self) -> usize {
        let until = Instant::now() + KILLING;
        while !self.is_gone() && Instant::now() < until {
            // Without a pause: a command that forks all the time must not get away between two
            // looks.
            self.signal_all(Signal::KILL);
            tokio::task::yield_now().await;
        }
        if self.is_gone() { 0 } else { descendants().len().max(1) }
    }
}
