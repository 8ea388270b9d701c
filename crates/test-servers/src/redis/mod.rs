//! Redis: one server, a cluster, and a primary with replicas under the eyes of sentinels.

mod builder;
mod cluster;
mod connection;
mod sentinel;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use builder::RedisBuilder;
pub use cluster::{RedisCluster, SlotMove};
pub use sentinel::RedisSentinel;

use crate::certificates::Certificates;
use crate::deadline::DEADLINE;
use crate::port::Port;
use crate::server::{Server, expect};
use connection::{Connection, Reply};

/// One private `redis-server`, killed and forgotten when it is dropped. As every [`Server`] it can
/// be stopped, killed, paused and restarted.
#[derive(Debug)]
pub struct Redis {
    server: Server,
    bus: Option<Port>,
    tls: Option<Tls>,
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
    /// If `redis-server` is not installed, or does not answer within ten seconds; the message has
    /// the end of its log.
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

    /// The Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        socket(self.directory())
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

    /// Whether the server was asked to speak TLS.
    #[must_use]
    pub fn speaks_tls(&self) -> bool {
        self.tls.is_some()
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

    /// Runs one command, on a connection of its own, and returns what `redis-cli --raw` would
    /// print: the value, or a line for each, or the server's error. What depends on the connection,
    /// such as `WAIT` or `MULTI`, has no effect.
    ///
    /// # Panics
    ///
    /// If the server cannot be reached or does not answer within the [`DEADLINE`](crate::DEADLINE).
    #[track_caller]
    pub fn cli(&self, words: &[&str]) -> String {
        expect("redis-server", self.command(words)).into_raw()
    }

    /// One field of the server's `INFO`, such as `cmdstat_evalsha` of `commandstats`. Asking is a
    /// command too, and counted.
    ///
    /// # Panics
    ///
    /// As [`cli`](Self::cli).
    #[must_use]
    #[track_caller]
    pub fn info(&self, section: &str, field: &str) -> Option<String> {
        find_field(&self.cli(&["INFO", section]), field)
    }

    /// How often a command was called since the start or the last `CONFIG RESETSTAT`, such as
    /// `evalsha`.
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

    fn command(&self, words: &[&str]) -> io::Result<Reply> {
        Connection::open(self.address(), self.password.as_deref(), DEADLINE)?.command(words)
    }

    /// Runs a command that has to succeed.
    #[track_caller]
    fn order(&self, words: &[&str]) {
        if let Reply::Error(error) = expect("redis-server", self.command(words)) {
            panic!("redis-server refuses {words:?}: {error}");
        }
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

impl Deref for Redis {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// Whether a server answers. A replica does before it has anything to say.
fn is_ready(port: u16, password: Option<&str>) -> io::Result<bool> {
    let address = (Ipv4Addr::LOCALHOST, port).into();
    let mut connection = Connection::open(address, password, Duration::from_secs(1))?;
    if connection.command(&["PING"])? != Reply::Text("PONG".to_owned()) {
        return Ok(false);
    }
    let replication = connection.command(&["INFO", "replication"])?.into_raw();
    Ok(find_field(&replication, "master_link_status").is_none_or(|status| status == "up"))
}

/// The Unix socket of a server that runs in `directory`.
fn socket(directory: &Path) -> PathBuf {
    directory.join("redis.sock")
}

/// The value of a field in lines of `field:value`.
fn find_field(lines: &str, field: &str) -> Option<String> {
    lines.lines().find_map(|line| Some(line.strip_prefix(field)?.strip_prefix(':')?.trim_end().to_owned()))
}
