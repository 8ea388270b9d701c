use std::ffi::OsString;
use std::io;
use std::process::Command;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{Redis, Tls, is_ready, socket};
use crate::certificates::Certificates;
use crate::port::Port;
use crate::server::{Kind, Server, start_on_a_free_port};

/// Says what a [`Redis`] is to be like before it is started.
///
/// As it is, it keeps everything in memory, has no password, and listens on a port of 127.0.0.1 and
/// a Unix socket.
#[derive(Debug, Default)]
#[must_use = "nothing runs until it is started"]
pub struct RedisBuilder {
    settings: Vec<String>,
    password: Option<String>,
    certificates: Option<Certificates>,
    cluster: bool,
}

impl RedisBuilder {
    /// Adds arguments of `redis-server`, such as `["--maxmemory", "2mb"]`. A later setting
    /// overrides an earlier one.
    ///
    /// A password must be set with [`password`](Self::password), or the server is never found
    /// ready.
    pub fn args<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        self.settings.extend(arguments.into_iter().map(str::to_owned));
        self
    }

    /// Demands this password of clients. It becomes part of [`Redis::url`], so it must not need
    /// escaping there.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.args(["--requirepass", password, "--masterauth", password])
    }

    /// Also listens for TLS, with [`Certificates`] of its own. Clients may show a certificate, but
    /// need not.
    pub fn tls(mut self) -> Self {
        self.certificates = Some(Certificates::generate());
        self.args(["--tls-auth-clients", "optional"])
    }

    /// Also listens for TLS, and refuses clients there that do not show a certificate.
    pub fn mutual_tls(self) -> Self {
        self.tls().args(["--tls-auth-clients", "yes"])
    }

    /// Writes what it is told to a file: at once with `always`, each second with `everysec`, or
    /// when the system likes to with `no`.
    pub fn append_only(self, fsync: &str) -> Self {
        self.args(["--appendonly", "yes", "--appendfsync", fsync])
    }

    /// Follows another server, and is ready when it has caught up with it.
    pub fn replica_of(self, primary: &Redis) -> Self {
        let port = primary.port().to_string();
        let replica = self.args(["--replicaof", "127.0.0.1", &port]);
        match &primary.password {
            Some(password) => replica.args(["--masterauth", password]),
            None => replica,
        }
    }

    /// Is one node of a cluster, which knows no other yet. [`RedisCluster`](crate::RedisCluster) is
    /// a whole one.
    pub fn cluster(mut self) -> Self {
        self.cluster = true;
        // Two seconds of silence, rather than fifteen, and a node is taken for dead.
        self.args(["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"])
    }

    /// Starts the server. When this returns it answers.
    ///
    /// # Panics
    ///
    /// If `redis-server` is not installed, or does not answer in time; the message has the end of
    /// its log.
    #[must_use]
    #[track_caller]
    pub fn start(mut self) -> Redis {
        start_on_a_free_port(|| self.try_start())
    }

    fn try_start(&mut self) -> io::Result<Redis> {
        let directory = TempDir::with_prefix("test-servers-redis-")?;
        let port = Port::reserve()?;
        let bus = if self.cluster { Some(Port::reserve()?) } else { None };
        let tls_port = if self.certificates.is_some() { Some(Port::reserve()?) } else { None };

        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--protected-mode", "no", "--daemonize", "no", "--save", ""]);
        // A replica is served at once, rather than after five seconds in which others might come
        // along.
        command.args(["--repl-diskless-sync-delay", "0"]);
        command.args(["--port", &port.number().to_string()]).arg("--unixsocket");
        command.arg(socket(directory.path()));
        if let Some(bus) = &bus {
            command.args(["--cluster-port", &bus.number().to_string()]);
        }
        if let (Some(port), Some(certificates)) = (&tls_port, &self.certificates) {
            command.args(["--tls-port", &port.number().to_string()]).args(tls_files(certificates));
        }
        command.args(&self.settings);

        let server = Server::new(kind(command, &port, self.password.clone()), directory, port)?;
        server.start()?;
        let mut redis = Redis { server, bus, tls: None, password: self.password.clone() };
        redis.tls = tls_port.zip(self.certificates.take()).map(|(port, certificates)| Tls { port, certificates });
        Ok(redis)
    }
}

/// A server that answers on `port`, a sentinel too.
pub(super) fn kind(command: Command, port: &Port, password: Option<String>) -> Kind {
    let port = port.number();
    let is_ready = Box::new(move |_| is_ready(port, password.as_deref()).unwrap_or(false));
    Kind { command, package: "redis-server", stop_signal: Signal::SIGTERM, is_ready }
}

fn tls_files(certificates: &Certificates) -> [OsString; 6] {
    [
        "--tls-cert-file".into(),
        certificates.server_cert().into(),
        "--tls-key-file".into(),
        certificates.server_key().into(),
        "--tls-ca-cert-file".into(),
        certificates.ca_file().into(),
    ]
}
