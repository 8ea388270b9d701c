//! Redis: one server, a cluster, and a primary with replicas under the eyes of sentinels.

mod builder;
mod cluster;
mod connection;
mod sentinel;

use std::fmt::Display;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use builder::RedisBuilder;
pub use cluster::{RedisCluster, SlotMove};
pub use sentinel::RedisSentinel;

use crate::certificates::Certificates;
use crate::patience::wait_until;
use crate::port::Port;
use crate::process::{PATIENCE, Process};
use connection::{Connection, Reply};

/// One private `redis-server`, killed and forgotten when it is dropped.
#[derive(Debug)]
pub struct Redis {
    process: Mutex<Process>,
    port: Port,
    bus: Option<Port>,
    tls: Option<Tls>,
    socket: PathBuf,
    password: Option<String>,
}

#[derive(Debug)]
struct Tls {
    port: Port,
    certificates: Certificates,
}

impl Redis {
    /// Starts a server that keeps everything in memory. When this returns it answers.
    ///
    /// # Panics
    ///
    /// If `redis-server` is not installed, or does not answer within ten seconds; the message has the end of its log.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Starts a server with more arguments, such as `["--maxmemory", "2mb"]`.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    #[track_caller]
    pub fn with(arguments: &[&str]) -> Self {
        Self::builder().args(arguments.iter().copied()).start()
    }

    /// Starts saying what the server is to be like.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    /// `redis://127.0.0.1:PORT`, with the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_for("redis", self.port())
    }

    /// `rediss://127.0.0.1:PORT` of the port that speaks TLS, with the password if there is one.
    ///
    /// # Panics
    ///
    /// If the server was not asked to speak TLS.
    #[must_use]
    #[track_caller]
    pub fn tls_url(&self) -> String {
        self.url_for("rediss", self.tls().port.number())
    }

    /// The port that speaks plain Redis.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The address of the port that speaks plain Redis.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// The Unix socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The address of the port that speaks TLS.
    ///
    /// # Panics
    ///
    /// If the server was not asked to speak TLS.
    #[must_use]
    #[track_caller]
    pub fn tls_address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.tls().port.number()).into()
    }

    /// The certificate of the authority that a client has to trust.
    ///
    /// # Panics
    ///
    /// If the server was not asked to speak TLS. So do [`client_cert`](Self::client_cert) and
    /// [`client_key`](Self::client_key).
    #[must_use]
    #[track_caller]
    pub fn ca_file(&self) -> PathBuf {
        self.tls().certificates.ca_file()
    }

    /// A certificate that a client can show.
    #[must_use]
    #[track_caller]
    pub fn client_cert(&self) -> PathBuf {
        self.tls().certificates.client_cert()
    }

    /// The private key that belongs to [`client_cert`](Self::client_cert).
    #[must_use]
    #[track_caller]
    pub fn client_key(&self) -> PathBuf {
        self.tls().certificates.client_key()
    }

    /// The process id.
    ///
    /// # Panics
    ///
    /// If the server was stopped or killed.
    #[must_use]
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.process().pid().unwrap_or_else(|| panic!("redis-server does not run"))
    }

    /// Runs one command, on a connection of its own, and returns what `redis-cli --raw` would print: the value, or a
    /// line for each, or the server's error. What depends on the connection, such as `WAIT` or `MULTI`, has no effect.
    ///
    /// # Panics
    ///
    /// If the server cannot be reached or does not answer within ten seconds.
    #[track_caller]
    pub fn cli(&self, words: &[&str]) -> String {
        expect("redis-server", self.command(words)).into_raw()
    }

    /// One field of the server's `INFO`, such as `cmdstat_evalsha` of `commandstats`. Asking is a command too, and
    /// counted.
    ///
    /// # Panics
    ///
    /// As [`cli`](Self::cli).
    #[must_use]
    #[track_caller]
    pub fn info(&self, section: &str, field: &str) -> Option<String> {
        find_field(&self.cli(&["INFO", section]), field)
    }

    /// How often a command was called since the start or the last `CONFIG RESETSTAT`, such as `evalsha`.
    ///
    /// # Panics
    ///
    /// As [`cli`](Self::cli).
    #[must_use]
    #[track_caller]
    pub fn calls(&self, command: &str) -> u64 {
        let statistics = self.info("commandstats", &format!("cmdstat_{command}")).unwrap_or_default();
        let calls = statistics.split(',').find_map(|field| field.strip_prefix("calls=")?.parse().ok());
        calls.unwrap_or_default()
    }

    /// The bytes that the server says it has allocated.
    ///
    /// # Panics
    ///
    /// As [`cli`](Self::cli).
    #[must_use]
    #[track_caller]
    pub fn used_memory(&self) -> u64 {
        let bytes = self.info("memory", "used_memory").and_then(|bytes| bytes.parse().ok());
        bytes.unwrap_or_else(|| panic!("redis-server does not say how much memory it uses"))
    }

    /// Stops the process where it is. Its port still takes connections, and nobody answers.
    ///
    /// # Panics
    ///
    /// If the server was stopped or killed.
    #[track_caller]
    pub fn pause(&self) {
        expect("pause", self.process().pause());
    }

    /// Lets the paused process go on.
    ///
    /// # Panics
    ///
    /// If the server was stopped or killed.
    #[track_caller]
    pub fn resume(&self) {
        expect("resume", self.process().resume());
    }

    /// Ends the process as a crash would.
    ///
    /// # Panics
    ///
    /// If it cannot be waited for.
    #[track_caller]
    pub fn kill(&self) {
        expect("kill", self.process().kill());
    }

    /// Ends the process in order.
    ///
    /// # Panics
    ///
    /// If it takes more than ten seconds.
    #[track_caller]
    pub fn stop(&self) {
        expect("stop", self.process().stop());
    }

    /// Starts the server again after [`kill`](Self::kill) or [`stop`](Self::stop), on the same ports and with the same
    /// files. A server that still runs is stopped first. When this returns it answers.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[track_caller]
    pub fn restart(&self) {
        self.stop();
        expect("restart", self.launch());
    }

    /// All that the server has logged.
    #[must_use]
    pub fn log(&self) -> String {
        self.process().log()
    }

    fn launch(&self) -> io::Result<()> {
        self.process().start(|| self.is_ready().unwrap_or(false))
    }

    /// A replica answers before it has anything to say.
    fn is_ready(&self) -> io::Result<bool> {
        let mut connection = Connection::open(self.address(), self.password.as_deref(), Duration::from_secs(1))?;
        if connection.command(&["PING"])? != Reply::Text("PONG".to_owned()) {
            return Ok(false);
        }
        let replication = connection.command(&["INFO", "replication"])?.into_raw();
        Ok(find_field(&replication, "master_link_status").is_none_or(|status| status == "up"))
    }

    fn command(&self, words: &[&str]) -> io::Result<Reply> {
        Connection::open(self.address(), self.password.as_deref(), PATIENCE)?.command(words)
    }

    /// Runs a command that has to succeed.
    #[track_caller]
    fn order(&self, words: &[&str]) {
        if let Reply::Error(error) = expect("redis-server", self.command(words)) {
            panic!("redis-server refuses {words:?}: {error}");
        }
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[track_caller]
    fn tls(&self) -> &Tls {
        self.tls.as_ref().unwrap_or_else(|| panic!("this server was not asked to speak TLS"))
    }

    fn url_for(&self, scheme: &str, port: u16) -> String {
        let credentials = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("{scheme}://{credentials}127.0.0.1:{port}")
    }
}

#[track_caller]
fn expect<T>(what: impl Display, result: io::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

#[track_caller]
fn await_condition(what: &str, condition: impl FnMut() -> bool) {
    // Clusters and sentinels take seconds by design, and more on a busy machine.
    expect("redis", wait_until(what, 3 * PATIENCE, condition));
}

/// The value of a field in lines of `field:value`.
fn find_field(lines: &str, field: &str) -> Option<String> {
    lines.lines().find_map(|line| Some(line.strip_prefix(field)?.strip_prefix(':')?.trim_end().to_owned()))
}
