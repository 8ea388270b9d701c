use std::fs;
use std::io;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

use super::builder::kind;
use super::{Redis, socket};
use crate::deadline::eventually;
use crate::port::Port;
use crate::server::{Server, start_on_a_free_port};

/// The name under which sentinels know the primary.
const MASTER_NAME: &str = "mymaster";

/// A primary, two replicas, and three sentinels that agree on which is which.
///
/// They are in a hurry: a primary is taken for dead after half a second of silence.
#[derive(Debug)]
pub struct RedisSentinel {
    // Sentinels first, so that they do not mourn the others when all of this is dropped.
    sentinels: Vec<Redis>,
    servers: Vec<Redis>,
    /// The port of the primary when we last looked.
    last_known: Mutex<u16>,
}

impl RedisSentinel {
    /// Starts all of them. When this returns, replicas have caught up and every sentinel knows
    /// every other server.
    ///
    /// # Panics
    ///
    /// As [`Redis::start`], or if they do not find each other.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        let primary = Redis::start();
        let replicas = [0, 1].map(|_| Redis::builder().replica_of(&primary).start());
        let sentinels: Vec<_> = (0..3).map(|_| start_sentinel(primary.port())).collect();
        let last_known = Mutex::new(primary.port());
        let servers = [primary].into_iter().chain(replicas).collect();
        let group = Self { sentinels, servers, last_known };
        eventually("the sentinels to find everybody", || group.sentinels.iter().all(knows_everybody));
        group
    }

    /// The name that a client asks the sentinels for: `mymaster`.
    #[must_use]
    pub fn master_name(&self) -> &'static str {
        MASTER_NAME
    }

    /// The URLs of the sentinels.
    #[must_use]
    pub fn sentinel_urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Redis::url).collect()
    }

    /// The sentinels, which can be asked, paused and killed like any server.
    #[must_use]
    pub fn sentinels(&self) -> &[Redis] {
        &self.sentinels
    }

    /// The primary and the replicas, whichever is which.
    #[must_use]
    pub fn servers(&self) -> &[Redis] {
        &self.servers
    }

    /// The primary, in the opinion of the first sentinel that answers.
    ///
    /// # Panics
    ///
    /// If no sentinel answers.
    #[must_use]
    #[track_caller]
    pub fn master(&self) -> &Redis {
        let port = self.sentinels.iter().find_map(master_port);
        let master = self.servers.iter().find(|server| Some(server.port()) == port);
        master.unwrap_or_else(|| panic!("no sentinel knows the primary"))
    }

    /// Tells the sentinels to make a replica the primary, while the old one is well. Returns as
    /// soon as they have chosen one, with the old one.
    ///
    /// # Panics
    ///
    /// If that takes longer than the [`DEADLINE`](crate::DEADLINE).
    #[track_caller]
    pub fn failover(&self) -> &Redis {
        let old = self.master();
        self.remember(old.port());
        for sentinel in &self.sentinels {
            // For four periods the others put up with a replica that says it is the primary. Then
            // they undo what the first has not told them of yet, and it gives up. One that is dead
            // says nothing.
            let _ = sentinel.command(&["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "1000"]);
        }
        let first = &self.sentinels[0];
        let chosen = || first.log().matches("+selected-slave").count();
        let before = chosen();
        eventually("the first sentinel to choose a replica", || {
            // It gives up if it was too busy to hear of a replica lately, and refuses while it is
            // at it.
            let _ = first.command(&["SENTINEL", "FAILOVER", MASTER_NAME]);
            chosen() > before
        });
        old
    }

    /// Kills the primary. Returns at once, with the dead one; the sentinels notice by themselves.
    ///
    /// # Panics
    ///
    /// If no sentinel answers.
    #[track_caller]
    pub fn kill_master(&self) -> &Redis {
        let old = self.master();
        self.remember(old.port());
        old.kill();
        old
    }

    /// Waits until all sentinels that answer agree on another primary than before the last
    /// [`failover`](Self::failover) or [`kill_master`](Self::kill_master), and it takes writes.
    ///
    /// # Panics
    ///
    /// If that takes longer than the [`DEADLINE`](crate::DEADLINE).
    #[track_caller]
    pub fn wait_for_new_master(&self) -> &Redis {
        let old = *self.last_known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = None;
        eventually("the sentinels to agree on a new primary", || {
            new = self.servers.iter().find(|server| server.port() != old && self.is_master(server));
            new.is_some()
        });
        let new = new.unwrap_or_else(|| panic!("no new primary"));
        self.remember(new.port());
        new
    }

    /// Waits until a server that was the primary follows the new one. Until then it takes writes
    /// that are forgotten afterwards.
    ///
    /// # Panics
    ///
    /// If that takes longer than the [`DEADLINE`](crate::DEADLINE), as it does if the server is
    /// dead.
    #[track_caller]
    pub fn wait_for_demotion(&self, old: &Redis) {
        // It hangs up on everybody when it is told, so no answer is no reason to give up.
        eventually("the old primary to follow the new one", || {
            old.command(&["ROLE"]).is_ok_and(|role| role.into_raw().starts_with("slave"))
        });
    }

    fn is_master(&self, server: &Redis) -> bool {
        let ports: Vec<_> = self.sentinels.iter().filter_map(master_port).collect();
        !ports.is_empty()
            && ports.iter().all(|port| *port == server.port())
            && server.command(&["ROLE"]).is_ok_and(|role| role.into_raw().starts_with("master"))
    }

    fn remember(&self, port: u16) {
        *self.last_known.lock().unwrap_or_else(PoisonError::into_inner) = port;
    }
}

#[track_caller]
fn start_sentinel(primary: u16) -> Redis {
    let sentinel = start_on_a_free_port(|| try_start_sentinel(primary));
    // Sentinels introduce themselves every two seconds, and ask about replicas every ten.
    sentinel.order(&["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "100", "INFO-PERIOD", "100"]);
    sentinel
}

fn try_start_sentinel(primary: u16) -> io::Result<Redis> {
    let directory = TempDir::with_prefix("test-servers-sentinel-")?;
    let port = Port::reserve()?;
    // A sentinel writes what it learns into its own configuration.
    let configuration = directory.path().join("sentinel.conf");
    fs::write(
        &configuration,
        format!(
            "port {}\n\
             bind 127.0.0.1\n\
             sentinel monitor {MASTER_NAME} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {MASTER_NAME} 500\n\
             sentinel failover-timeout {MASTER_NAME} 3000\n\
             sentinel parallel-syncs {MASTER_NAME} 2\n",
            port.number()
        ),
    )?;
    let mut command = Command::new("redis-server");
    command.arg(&configuration).args(["--sentinel", "--unixsocket"]).arg(socket(directory.path()));
    let server = Server::new(kind(command, &port, None), directory, port)?;
    server.start()?;
    Ok(Redis { server, bus: None, tls: None, password: None })
}

fn knows_everybody(sentinel: &Redis) -> bool {
    let known = sentinel.cli(&["SENTINEL", "MASTER", MASTER_NAME]);
    let lines: Vec<_> = known.lines().collect();
    let is = |field, value| lines.chunks(2).any(|pair| pair == [field, value]);
    // A replica can be chosen only when it has been heard of.
    let replicas = sentinel.cli(&["SENTINEL", "REPLICAS", MASTER_NAME]);
    is("flags", "master")
        && is("num-slaves", "2")
        && is("num-other-sentinels", "2")
        && replicas.lines().filter(|line| *line == "ok").count() == 2
}

fn master_port(sentinel: &Redis) -> Option<u16> {
    let address = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME]).ok()?.into_raw();
    address.lines().nth(1)?.parse().ok()
}
