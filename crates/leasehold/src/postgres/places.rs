use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, LoadBalanceHosts, SslMode, SslNegotiation, TargetSessionAttrs};

use super::endpoints::Endpoint;
use super::password_file::PasswordFile;
use super::tls::Protection;
use super::url::{READER, unusable};
use super::words::Words;
use crate::Error;

/// Where Debian and others keep the server's socket.
const SOCKETS: &str = "/var/run/postgresql";

/// What `password_file.rs` and the server's own clients call the server at that socket.
const LOCALHOST: &str = "localhost";

pub(super) const PORT: u16 = 5432;

/// A peer that is gone without a word is noticed after this long.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(15);

/// The servers, each with what is said of all of them and with its own password.
pub(super) fn read_endpoints(
    words: &mut Words<impl Fn(&str) -> Option<String>>,
    protection: Protection,
) -> Result<Vec<Endpoint>, Error> {
    let places = read_places(words)?;
    let common = read_config(words, places.len())?;
    let password = words.take_or("password", "PGPASSWORD");
    let file = words.take_or("passfile", "PGPASSFILE").map(PathBuf::from);
    let file = match &password {
        Some(_) => PasswordFile::default(),
        None => file
            .or_else(|| Some(std::env::home_dir()?.join(".pgpass")))
            .map_or_else(PasswordFile::default, |file| PasswordFile::read(&file)),
    };
    let endpoint = |place: Place| {
        let mut config = common.clone();
        if let Some(host) = &place.host {
            config.host(host);
        }
        if let Some(address) = place.address {
            config.hostaddr(address);
        }
        config.port(place.port);
        // As the server's own clients do: there is no TLS on a socket of this host, and nobody in
        // between.
        config.ssl_mode(if place.is_socket() { SslMode::Disable } else { protection.mode() });
        let user = common.get_user().unwrap_or_default();
        let database = common.get_dbname().unwrap_or(user);
        let from_file = || file.password([&place.name(), &place.port.to_string(), database, user]);
        if let Some(password) = password.clone().map(String::into_bytes).or_else(from_file) {
            config.password(password);
        }
        Endpoint { config, no_password: file.ignored }
    };
    Ok(places.into_iter().map(endpoint).collect())
}

/// Where a server is.
struct Place {
    host: Option<String>,
    address: Option<IpAddr>,
    port: u16,
}

impl Place {
    fn is_socket(&self) -> bool {
        self.address.is_none() && self.host.as_ref().is_some_and(|host| host.starts_with('/'))
    }

    /// What a password file calls it.
    fn name(&self) -> String {
        match (&self.host, self.address) {
            (Some(host), _) if host == SOCKETS => LOCALHOST.to_owned(),
            (Some(host), _) => host.clone(),
            (None, Some(address)) => address.to_string(),
            (None, None) => LOCALHOST.to_owned(),
        }
    }
}

fn read_places(words: &mut Words<impl Fn(&str) -> Option<String>>) -> Result<Vec<Place>, Error> {
    let list = |text: String| -> Vec<String> { text.split(',').map(str::to_owned).collect() };
    let addresses = words.take("hostaddr").map(list).unwrap_or_default();
    let mut hosts = words.take("host").map(list).unwrap_or_default();
    if hosts.is_empty() && addresses.is_empty() {
        hosts = words.variable("PGHOST").map_or_else(|| vec![String::new()], list);
    }
    let count = hosts.len().max(addresses.len());
    let ports = words.take_or("port", "PGPORT").map(list).unwrap_or_default();
    let fits = |length: usize| length == 0 || length == count;
    if !fits(hosts.len()) || !fits(addresses.len()) || !(fits(ports.len()) || ports.len() == 1) {
        return Err(unusable("names another number of ports or addresses than of hosts"));
    }
    let place = |index: usize| {
        let text = |list: &[String]| list.get(index).filter(|text| !text.is_empty()).cloned();
        let address = text(&addresses).map(|text| text.parse()).transpose();
        let address = address.map_err(|_| unusable("has a hostaddr that is not an IP address"))?;
        let host = text(&hosts).or_else(|| address.is_none().then(default_host));
        let port = if ports.len() == 1 { Some(ports[0].clone()) } else { text(&ports) };
        let port = port.filter(|port| !port.is_empty()).map_or(Ok(PORT), |port| port.parse());
        let port = port.ok().filter(|port| *port > 0).ok_or_else(|| unusable("or PGPORT has a port that is none"))?;
        Ok(Place { host, address, port })
    };
    (0..count).map(place).collect()
}

fn default_host() -> String {
    if Path::new(SOCKETS).exists() { SOCKETS } else { LOCALHOST }.to_owned()
}

/// What is said of all servers.
fn read_config(words: &mut Words<impl Fn(&str) -> Option<String>>, servers: usize) -> Result<Config, Error> {
    let mut config = Config::new();
    if let Some(user) = words.take_or("user", "PGUSER").or_else(|| words.variable("USER")) {
        config.user(user);
    }
    if let Some(database) = words.take_or("dbname", "PGDATABASE") {
        config.dbname(database);
    }
    config.application_name(words.take_or("application_name", "PGAPPNAME").unwrap_or_else(|| "leasehold".to_owned()));
    if let Some(options) = words.take_or("options", "PGOPTIONS") {
        config.options(options);
    }
    // Nothing and less mean that there is no limit but our own.
    let is_limit = |time: &String| time != "0" && !time.starts_with('-');
    if let Some(time) = words.take_or("connect_timeout", "PGCONNECT_TIMEOUT").filter(is_limit) {
        config.connect_timeout(READER.seconds(&time)?);
    }
    if let Some(millis) = words.number("tcp_user_timeout")?.filter(|millis| *millis > 0) {
        config.tcp_user_timeout(Duration::from_millis(millis));
    }
    if let Some(on) = words.number::<u8>("keepalives")? {
        config.keepalives(on != 0);
    }
    let idle = words.number("keepalives_idle")?.filter(|seconds| *seconds > 0);
    config.keepalives_idle(Duration::from_secs(idle.unwrap_or(KEEPALIVE.as_secs())));
    if let Some(seconds) = words.number("keepalives_interval")?.filter(|seconds| *seconds > 0) {
        config.keepalives_interval(Duration::from_secs(seconds));
    }
    if let Some(count) = words.number("keepalives_count")?.filter(|count| *count > 0) {
        config.keepalives_retries(count);
    }
    let session = [
        ("any", TargetSessionAttrs::Any),
        ("read-write", TargetSessionAttrs::ReadWrite),
        ("primary", TargetSessionAttrs::ReadWrite),
    ];
    // Locks are written. Of several servers, only one can do that.
    let usual = if servers > 1 { TargetSessionAttrs::ReadWrite } else { TargetSessionAttrs::Any };
    config.target_session_attrs(words.choice("target_session_attrs", &session)?.unwrap_or(usual));
    let balance = [("disable", LoadBalanceHosts::Disable), ("random", LoadBalanceHosts::Random)];
    if let Some(balance) = words.choice("load_balance_hosts", &balance)? {
        config.load_balance_hosts(balance);
    }
    let binding = [
        ("disable", ChannelBinding::Disable),
        ("prefer", ChannelBinding::Prefer),
        ("require", ChannelBinding::Require),
    ];
    if let Some(binding) = words.choice("channel_binding", &binding)? {
        config.channel_binding(binding);
    }
    let negotiation = [("postgres", SslNegotiation::Postgres), ("direct", SslNegotiation::Direct)];
    if let Some(negotiation) = words.choice("sslnegotiation", &negotiation)? {
        config.ssl_negotiation(negotiation);
    }
    Ok(config)
}
