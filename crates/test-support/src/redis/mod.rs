//! The store in a Redis server.

mod look;
mod other;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::LockId;
use test_servers::{Proxy, Redis, Server, eventually};

pub use look::{HELD, PREFIX, counter_of, exists, get, index_of, json, now, pttl, record_of, snapshot};
pub use other::Other;

use crate::breakage::{Breakage, Broken, Request};
use crate::server::{Setup, StoreServer};
use crate::stores::{EVERYTHING, RunningStore, Start, StoreUnderTest};
use crate::{Foreign, OtherLibrary};

pub(crate) const STORE: StoreUnderTest =
    StoreUnderTest { name: "redis", start: Start::Server(start), share: None, abilities: EVERYTHING, lines: true };

/// The permissions that locks need, as the documentation lists them.
pub const RULES: [&str; 33] = [
    "+evalsha",
    "+eval",
    "+time",
    "+get",
    "+set",
    "+mget",
    "+del",
    "+scan",
    "+exists",
    "+sadd",
    "+srem",
    "+srandmember",
    "+sscan",
    "+info",
    "+zadd",
    "+zrem",
    "+zrange",
    "+zrevrange",
    "+zrangebyscore",
    "+zcard",
    "+zcount",
    "+zscore",
    "+zrank",
    "+setbit",
    "+bitpos",
    "+pexpireat",
    "+publish",
    "+pubsub|numsub",
    "+subscribe",
    "+unsubscribe",
    "+ping",
    "~syncguard:*",
    "&syncguard:*",
];

/// Commands that only scripts send here. A client that sent one would not be noticed, but then it
/// would pay for both.
const IN_SCRIPTS: [&str; 25] = [
    "time",
    "get",
    "set",
    "del",
    "mget",
    "scan",
    "exists",
    "sadd",
    "srem",
    "srandmember",
    "sscan",
    "zadd",
    "zrem",
    "zrange",
    "zrevrange",
    "zrangebyscore",
    "zcard",
    "zcount",
    "zscore",
    "zrank",
    "setbit",
    "bitpos",
    "pexpireat",
    "publish",
    "pubsub|numsub",
];

/// What it takes to look, which is not counted.
const LOOKING: [&str; 2] = ["config|resetstat", "info"];

fn start(setup: &Setup) -> Arc<dyn StoreServer> {
    let mut server = Redis::builder();
    if let Some(password) = setup.password {
        server = server.password(password);
    }
    if setup.tls {
        server = server.tls();
    }
    if setup.durable {
        server = server.append_only("always");
    }
    Arc::new(server.start())
}

/// Makes the user `app` with these rules, and returns the URL.
pub fn user(server: &Redis, password: &str, rules: &[&str]) -> String {
    let password_rule = format!(">{password}");
    let command = [&["ACL", "SETUSER", "app", "reset", "on", &password_rule], rules].concat();
    assert_eq!(server.cli(&command), "OK");
    format!("redis://app:{password}@{}", server.address())
}

/// Commands that clients sent since the last time this was asked, by name.
pub fn commands(server: &Redis) -> BTreeMap<String, u64> {
    let mut commands = commands_and_those_of_scripts(server);
    commands.retain(|name, _| !IN_SCRIPTS.contains(&name.as_str()));
    commands
}

/// The same, with those that scripts called.
pub fn commands_and_those_of_scripts(server: &Redis) -> BTreeMap<String, u64> {
    let statistics = server.cli(&["INFO", "commandstats"]);
    let calls = statistics.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().unwrap()))
    });
    let commands = calls.filter(|(name, _)| !LOOKING.contains(&name.as_str())).collect();
    server.cli(&["CONFIG", "RESETSTAT"]);
    commands
}

/// The connections of others than whoever asks.
fn connections(server: &Redis, kind: &str) -> usize {
    let list = server.cli(&["CLIENT", "LIST", "TYPE", kind]);
    list.lines().filter(|line| line.contains("id=") && !line.contains("cmd=client|list")).count()
}

fn kill(server: &Redis, kind: &str) -> usize {
    server.cli(&["CLIENT", "KILL", "TYPE", kind]).parse().unwrap()
}

impl RunningStore for Redis {
    fn url(&self) -> String {
        Redis::url(self)
    }

    fn public_url(&self) -> String {
        format!("redis://{}", self.address())
    }
}

#[async_trait]
impl StoreServer for Redis {
    fn server(&self) -> &Server {
        self
    }

    fn url_at(&self, address: SocketAddr, password: Option<&str>) -> String {
        let credentials = password.map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{credentials}{address}")
    }

    fn frugal_url(&self) -> String {
        self.url()
    }

    fn socket_urls(&self) -> Vec<String> {
        let path = self.socket();
        ["unix://", "unix:"].map(|scheme| format!("{scheme}{}", path.display())).to_vec()
    }

    fn missing_socket_url(&self) -> String {
        "unix:///no/such/socket".to_owned()
    }

    fn wrong_credentials(&self, password: &str) -> Vec<String> {
        let wrong = [String::new(), format!(":not-{password}@"), format!("nobody:{password}@")];
        wrong.map(|credentials| format!("redis://{credentials}{}", self.address())).to_vec()
    }

    fn least_permissions(&self, password: &str) -> String {
        user(self, password, &RULES)
    }

    fn tls_urls(&self, authority: &Path, password: Option<&str>) -> Vec<String> {
        let address = if self.speaks_tls() { self.tls_address() } else { self.address() };
        let url = format!("{}?ca={}", self.url_at(address, password), authority.display());
        ["rediss:", "valkeys:"].map(|scheme| url.replace("redis:", scheme)).to_vec()
    }

    fn authority(&self) -> PathBuf {
        self.ca_file()
    }

    fn unusable_tls_urls(&self, garbage: &Path) -> Vec<String> {
        let (garbage, authority, certificate) = (garbage.display(), self.ca_file(), self.client_cert());
        let (authority, certificate) = (authority.display(), certificate.display());
        [
            format!("ca={garbage}"),
            format!("ca={authority}&cert={garbage}&key={garbage}"),
            format!("ca={authority}&cert={certificate}&key={certificate}"),
            format!("ca={authority}&cert={certificate}"),
        ]
        .map(|query| format!("{}?{query}", self.tls_url()))
        .to_vec()
    }

    fn now(&self) -> u64 {
        now(self)
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        snapshot(self)
    }

    fn set_fence_counter(&self, key: &str, last: &str) {
        assert_eq!(self.cli(&["SET", &counter_of(key), last]), "OK");
    }

    fn fence_counter(&self, key: &str) -> String {
        get(self, &counter_of(key))
    }

    fn forget_fence_counters(&self) {
        let names = self.cli(&["KEYS", &counter_of("*")]);
        names.lines().for_each(|name| assert_eq!(self.cli(&["DEL", name]), "1"));
    }

    fn remove_lock(&self, key: &str, id: &LockId) {
        assert_eq!(self.cli(&["DEL", &record_of(key), &index_of(id)]), "2");
    }

    fn are_awaited(&self, keys: &[&str]) -> bool {
        let channels = self.cli(&["PUBSUB", "CHANNELS", "*:freed"]);
        let expected: BTreeSet<String> = keys.iter().map(|key| format!("{PREFIX}:{key}:freed")).collect();
        channels.lines().map(str::to_owned).collect::<BTreeSet<_>>() == expected
    }

    fn connections(&self) -> usize {
        connections(self, "normal") + connections(self, "pubsub")
    }

    fn listeners(&self) -> usize {
        connections(self, "pubsub")
    }

    fn end_listeners(&self) -> usize {
        kill(self, "pubsub")
    }

    fn end_connections(&self) -> usize {
        kill(self, "normal")
    }

    fn requests(&self) -> u64 {
        commands(self).into_values().sum()
    }

    fn wake(&self, key: &str, times: u32) {
        for _ in 0..times {
            self.cli(&["PUBLISH", &format!("{PREFIX}:{key}:freed"), ""]);
            std::thread::sleep(Duration::from_millis(4));
        }
    }

    fn flood(&self, messages: u32) {
        // The server would rather drop a client that is slow.
        self.cli(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 0 0"]);
        let channel = self.cli(&["PUBSUB", "CHANNELS", "*taken"]);
        let script = "for n = 1, ARGV[1] do
            redis.call('PUBLISH', KEYS[1], 'S' .. string.format('%015d', n) .. string.rep('x', 480)) end";
        // In parts: the server does nothing else while a script runs.
        for _ in 0..messages / 1000 {
            self.cli(&["EVAL", script, "1", &channel, "1000"]);
        }
        eventually("the server has sent everything", || {
            !self.cli(&["CLIENT", "LIST", "TYPE", "pubsub"]).lines().any(|client| !client.contains(" omem=0 "))
        });
    }

    fn break_next(&self, proxy: &Proxy, request: Request, how: Breakage) -> Broken<'_> {
        let bytes = match request {
            // Every operation sends these, and nothing else does.
            Request::Change | Request::Question => "EVALSHA",
            // With its length, so that it is not the end of another command.
            Request::Subscription => "$9\r\nSUBSCRIBE\r\n",
        };
        how.by_proxy(proxy, bytes)
    }

    fn checks(&self) -> &'static [&'static str] {
        &["redis", "clocks", "role", "persistence"]
    }

    fn foreign_styles(&self) -> usize {
        other::STYLES.len()
    }

    fn write_foreign(&self, key: &str, held_for: u64, left: i64, style: usize) -> Foreign {
        other::write(self, key, held_for, left, style)
    }

    async fn other_library(&self) -> Box<dyn OtherLibrary + '_> {
        Box::new(Other(self))
    }
}
