use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::port::Port;
use crate::process::Process;

/// One running server of any kind, killed and forgotten when it is dropped:
/// [`Redis`](crate::Redis), [`Postgres`](crate::Postgres), [`PgBouncer`](crate::PgBouncer) and
/// [`Firestore`](crate::Firestore) all are one, and lend it by reference.
///
/// Whatever is asked of it has to work: what does not is a panic that says why.
pub struct Server {
    process: Mutex<Process>,
    directory: PathBuf,
    port: Port,
    stop_signal: Signal,
    is_ready: Box<dyn Fn(u32) -> bool + Send + Sync>,
}

/// What makes a server of one kind different from those of the others.
pub(crate) struct Kind {
    pub(crate) command: Command,
    /// The Debian package that the program comes with.
    pub(crate) package: &'static str,
    /// The signal that ends it in order.
    pub(crate) stop_signal: Signal,
    /// Whether the server with this process id takes requests.
    pub(crate) is_ready: Box<dyn Fn(u32) -> bool + Send + Sync>,
}

impl Server {
    /// Prepares to run a server in `directory`, which from now on goes with it, on `port`.
    pub(crate) fn new(kind: Kind, directory: TempDir, port: Port) -> io::Result<Self> {
        let Kind { command, package, stop_signal, is_ready } = kind;
        let path = directory.path().to_owned();
        let process = Mutex::new(Process::new(command, package, directory)?);
        Ok(Self { process, directory: path, port, stop_signal, is_ready })
    }

    /// Starts it, unless it runs. When this returns it takes requests.
    pub(crate) fn start(&self) -> io::Result<()> {
        self.process().start(&self.is_ready)
    }

    /// The port of 127.0.0.1 on which it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The address of the port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// The process id; of PostgreSQL that of the postmaster.
    ///
    /// # Panics
    ///
    /// If the server was stopped or killed.
    #[must_use]
    #[track_caller]
    pub fn pid(&self) -> u32 {
        let process = self.process();
        process.pid().unwrap_or_else(|| panic!("{} does not run", process.program()))
    }

    /// Stops all processes of the server where they are. Its port still takes connections, and
    /// nobody answers.
    ///
    /// # Panics
    ///
    /// If the server was stopped or killed.
    #[track_caller]
    pub fn pause(&self) {
        expect("pause", self.process().pause());
    }

    /// Lets the paused processes go on.
    ///
    /// # Panics
    ///
    /// If the server was stopped or killed.
    #[track_caller]
    pub fn resume(&self) {
        expect("resume", self.process().resume());
    }

    /// Ends all processes of the server as a crash of the machine would. When this returns they are
    /// gone.
    ///
    /// # Panics
    ///
    /// If they cannot be waited for.
    #[track_caller]
    pub fn kill(&self) {
        expect("kill", self.process().kill());
    }

    /// Ends the server in order; for PostgreSQL that is a *fast* shutdown.
    ///
    /// # Panics
    ///
    /// If it takes longer than the [`DEADLINE`](crate::DEADLINE).
    #[track_caller]
    pub fn stop(&self) {
        self.stop_by(self.stop_signal);
    }

    /// Starts the server again after [`kill`](Self::kill) or [`stop`](Self::stop), on the same port
    /// and with the same files. A server that still runs is stopped first. When this returns it
    /// takes requests.
    ///
    /// # Panics
    ///
    /// If it does not stop or start; the message has the end of its log.
    #[track_caller]
    pub fn restart(&self) {
        self.stop();
        expect("restart", self.start());
    }

    /// All that the server has logged, over all its starts.
    #[must_use]
    pub fn log(&self) -> String {
        self.process().log()
    }

    /// Where it runs and writes.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Ends the server by another signal than the usual one, and waits until it has ended.
    #[track_caller]
    pub(crate) fn stop_by(&self, signal: Signal) {
        expect("stop", self.process().stop(signal));
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("process", &self.process).field("port", &self.port).finish_non_exhaustive()
    }
}

/// Starts a server on one of the ports that `try_start` finds: a stranger may take a port between
/// our look at it and the server's.
#[track_caller]
pub(crate) fn start_on_a_free_port<S>(mut try_start: impl FnMut() -> io::Result<S>) -> S {
    for _ in 0..5 {
        match try_start() {
            Ok(server) => return server,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("there is no free port");
}

/// What was asked of a server has to work.
#[track_caller]
pub(crate) fn expect<T>(what: &str, result: io::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}
