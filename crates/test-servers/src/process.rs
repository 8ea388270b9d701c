use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::deadline::{DEADLINE, wait_until};
use crate::process_tree::{descendants, is_dead, state};
use crate::watchdog::Watchdog;

/// Lines of the log that a failure shows.
const LOG_TAIL: usize = 20;

/// One server process: how to start it, its directory and log, and the watchdog that ends it if we
/// cannot.
///
/// The server leads a process group of its own: signals that are meant to hit it whole hit its
/// children too, and those that have left the group are looked for.
#[derive(Debug)]
pub(crate) struct Process {
    command: Command,
    package: &'static str,
    // Dropped in this order: nothing may write into a directory that is being removed.
    child: Option<Child>,
    watchdog: Watchdog,
    directory: TempDir,
}

impl Process {
    /// Prepares to run `command`, which comes with the Debian package `package`, in `directory`.
    pub(crate) fn new(command: Command, package: &'static str, directory: TempDir) -> io::Result<Self> {
        let watchdog = Watchdog::start(directory.path())?;
        let mut process = Self { command, package, child: None, watchdog, directory };
        process.command.current_dir(process.directory.path()).process_group(0).stdin(Stdio::null());
        Ok(process)
    }

    /// Starts the program and returns when `ready` says so of its process id, which is asked every
    /// few milliseconds.
    pub(crate) fn start(&mut self, ready: impl Fn(u32) -> bool) -> io::Result<()> {
        if self.is_running()? {
            return Ok(());
        }
        let log = self.open_log()?;
        let logged_before = log.metadata()?.len();
        self.command.stdout(log.try_clone()?).stderr(log);
        let child = self.command.spawn().map_err(|error| self.explain(error))?;
        let pid = child.id();
        self.watchdog.guard(pid)?;
        self.child = Some(child);

        let start = Instant::now();
        loop {
            if !self.is_running()? {
                return Err(self.failure("ended as soon as it was started", logged_before));
            }
            if ready(pid) {
                return Ok(());
            }
            if start.elapsed() > DEADLINE {
                return Err(self.failure("does not answer", logged_before));
            }
            sleep(Duration::from_millis(3));
        }
    }

    /// The process id, if it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Whether it runs. Notices an end that nobody here asked for.
    pub(crate) fn is_running(&mut self) -> io::Result<bool> {
        let Some(child) = self.child.as_mut() else { return Ok(false) };
        if child.try_wait()?.is_none() {
            return Ok(true);
        }
        self.child = None;
        self.watchdog.stand_down()?;
        Ok(false)
    }

    /// Stops it in its tracks, with all its children. When this returns they do nothing any more.
    pub(crate) fn pause(&mut self) -> io::Result<()> {
        let pid = self.signal_group(Signal::SIGSTOP)?;
        wait_until("the server to be paused", || state(pid) == Some('T'))?;
        // Nobody is born any more.
        let children = descendants(pid);
        signal_all(&children, Signal::SIGSTOP);
        wait_until("the server's children to be paused", || {
            children.iter().all(|child| state(*child) == Some('T') || is_dead(*child))
        })
    }

    /// Lets it go on.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        if let Some(pid) = self.pid() {
            signal_all(&descendants(pid), Signal::SIGCONT);
        }
        self.signal_group(Signal::SIGCONT).map(drop)
    }

    /// Ends it as a crash would, paused or not, with all its children.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        // While it is paused it neither makes more children nor buries any, so that their process
        // ids stay theirs. One that cannot be paused is dead, and its children can only be trusted
        // to notice.
        let _ = self.pause();
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let children = descendants(child.id());
        signal_all(&children, Signal::SIGKILL);
        // Already gone is as good. Not yet waited for, its process id cannot be anybody else's.
        let _ = killpg(process_id(child.id())?, Signal::SIGKILL);
        self.watchdog.stand_down()?;
        child.wait()?;
        wait_until("the server's children to be dead", || children.iter().all(|child| is_dead(*child)))
    }

    /// Asks it to end by a signal, and waits until it has.
    pub(crate) fn stop(&mut self, signal: Signal) -> io::Result<()> {
        let Some(pid) = self.pid() else { return Ok(()) };
        kill(process_id(pid)?, signal)?;
        // Whoever is paused cannot hear.
        self.resume()?;
        let start = Instant::now();
        while self.is_running()? {
            if start.elapsed() > DEADLINE {
                return Err(self.failure("does not stop", 0));
            }
            sleep(Duration::from_millis(3));
        }
        Ok(())
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// All that it has said, over all its starts.
    pub(crate) fn log(&self) -> String {
        fs::read(self.log_file()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.directory().join("server.log")
    }

    fn open_log(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(self.log_file())
    }

    pub(crate) fn program(&self) -> String {
        self.command.get_program().to_string_lossy().into_owned()
    }

    fn signal_group(&mut self, signal: Signal) -> io::Result<u32> {
        let Some(pid) = self.pid() else {
            return Err(io::Error::other(format!("{} does not run", self.program())));
        };
        killpg(process_id(pid)?, signal)?;
        Ok(pid)
    }

    fn explain(&self, error: io::Error) -> io::Error {
        if error.kind() != io::ErrorKind::NotFound {
            return error;
        }
        let (program, package) = (self.program(), self.package);
        io::Error::new(error.kind(), format!("{program} is not installed: apt-get install {package}"))
    }

    fn failure(&self, what: &str, from: u64) -> io::Error {
        let log = self.log();
        let log = usize::try_from(from).ok().and_then(|from| log.get(from..)).unwrap_or(&log);
        let kind = if log.contains("Address already in use") { io::ErrorKind::AddrInUse } else { io::ErrorKind::Other };
        let lines: Vec<_> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n");
        io::Error::new(kind, format!("{} {what}; the end of its log:\n{tail}", self.program()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn process_id(pid: u32) -> io::Result<Pid> {
    i32::try_from(pid).map(Pid::from_raw).map_err(io::Error::other)
}

/// Whoever is gone already need not hear.
fn signal_all(pids: &[u32], signal: Signal) {
    for pid in pids.iter().filter_map(|pid| process_id(*pid).ok()) {
        let _ = kill(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(program: &str, arguments: &[&str]) -> Process {
        let mut command = Command::new(program);
        command.args(arguments);
        Process::new(command, "some-package", TempDir::new().unwrap()).unwrap()
    }

    #[test]
    fn a_missing_program_is_an_error_that_names_the_package() {
        let error = process("no-such-program", &[]).start(|_| true).unwrap_err();
        assert_eq!(error.to_string(), "no-such-program is not installed: apt-get install some-package");
    }

    #[test]
    fn an_early_end_is_an_error_that_shows_the_log() {
        let error = process("sh", &["-c", "echo out of cheese; exit 1"]).start(|_| false).unwrap_err();
        assert!(error.to_string().ends_with("the end of its log:\nout of cheese"), "{error}");
    }

    #[test]
    fn the_end_takes_process_watchdog_and_directory_along() {
        let mut process = process("sleep", &["600"]);
        process.start(|_| true).unwrap();
        let (sleeper, watchdog) = (process.pid().unwrap(), process.watchdog.pid());
        let directory = process.directory().to_owned();
        assert!(state(sleeper).is_some() && state(watchdog).is_some() && directory.exists());
        drop(process);
        assert!(state(sleeper).is_none() && state(watchdog).is_none() && !directory.exists());
    }

    #[test]
    fn a_paused_process_can_be_resumed_stopped_and_killed() {
        let mut process = process("sleep", &["600"]);
        process.start(|_| true).unwrap();
        process.pause().unwrap();
        process.resume().unwrap();
        process.pause().unwrap();
        process.stop(Signal::SIGTERM).unwrap();
        assert_eq!(process.pid(), None);
        process.start(|_| true).unwrap();
        process.pause().unwrap();
        process.kill().unwrap();
        assert_eq!(process.pid(), None);
    }
}
