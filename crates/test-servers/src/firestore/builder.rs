use std::io;
use std::process::Command;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{Firestore, control, program};
use crate::certificates::Certificates;
use crate::port::Port;
use crate::server::{Kind, Server, expect, start_on_a_free_port};

/// Says what a [`Firestore`] is to be like before it is started.
///
/// As it is, it keeps everything in memory, lets everybody in, and makes transactions wait for each
/// other.
#[derive(Debug, Default)]
#[must_use = "nothing runs until it is started"]
pub struct FirestoreBuilder {
    tls: bool,
    credentials: bool,
    durable: bool,
    optimistic: bool,
}

impl FirestoreBuilder {
    /// Speaks TLS, with [`Certificates`] of its own, and nothing else.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Lets in only those with a token, which [service accounts](Firestore::service_account) get
    /// from it.
    pub fn credentials(mut self) -> Self {
        self.credentials = true;
        self
    }

    /// Keeps its documents when it is killed or stopped, for the next start.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Lets commits go ahead, and fails the transactions that have read what was changed.
    pub fn optimistic(mut self) -> Self {
        self.optimistic = true;
        self
    }

    /// Starts the server. When this returns it answers.
    ///
    /// # Panics
    ///
    /// If it cannot be built, or does not answer in time; the message has the end of its log.
    #[must_use]
    #[track_caller]
    pub fn start(self) -> Firestore {
        start_on_a_free_port(|| self.try_start())
    }

    #[track_caller]
    fn try_start(&self) -> io::Result<Firestore> {
        let directory = TempDir::with_prefix("test-servers-firestore-")?;
        let port = Port::reserve()?;
        let token_port = if self.credentials { Some(Port::reserve()?) } else { None };
        let certificates = self.tls.then(Certificates::generate);

        let mut command = Command::new(expect("firestore-double", program::find()));
        command.args(["--port", &port.number().to_string()]);
        if let Some(port) = &token_port {
            command.args(["--token-port", &port.number().to_string()]);
        }
        if let Some(certificates) = &certificates {
            command.arg("--tls").arg(certificates.server_cert()).arg(certificates.server_key());
        }
        let flags = [("--journal", self.durable), ("--optimistic", self.optimistic)];
        command.args(flags.into_iter().filter(|(_, wanted)| *wanted).map(|(flag, _)| flag));

        let socket = control::socket(directory.path());
        let is_ready = Box::new(move |_| control::is_ready(&socket));
        // It comes with no package: it is built when it is missing.
        let kind = Kind { command, package: "firestore-double", stop_signal: Signal::SIGTERM, is_ready };
        let server = Server::new(kind, directory, port)?;
        server.start()?;
        let project = format!("test-{:016x}", fastrand::u64(..));
        Ok(Firestore { server, project, token_port, certificates })
    }
}
