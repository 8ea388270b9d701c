use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, LoadBalanceHosts, SslNegotiation, TargetSessionAttrs};

use super::options::PostgresOptions;
use super::tls::Protection;
use super::url::{KEEPALIVE, READER, Target};
use crate::Error;
use crate::url_writer::{self, UrlWriter, seconds};

/// The URL of this database as others may see it: without the user, the password, and whatever is
/// so anyway.
///
/// # Errors
///
/// A host has an `@` in its name: as the server's own clients read a URL, the first one ends the
/// password, and this is the rest of it.
pub(super) fn public_url(scheme: &str, target: &Target) -> Result<String, Error> {
    let Target { config, tls, options } = target;
    if config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(name) if name.contains('@'))) {
        return Err(READER.unusable("has an @ in the name of a host").with_hint("in a password it is written %40"));
    }
    let database = config.get_dbname().map(|name| format!("/{}", url_writer::part(name))).unwrap_or_default();
    let mut url = UrlWriter::new(format!("{scheme}://{}{database}", hosts(config)));
    if !config.get_hostaddrs().is_empty() {
        url.option("hostaddr", list(config.get_hostaddrs()));
    }
    // Otherwise they are beside the hosts.
    if config.get_hosts().is_empty() && !config.get_ports().is_empty() {
        url.option("port", list(config.get_ports()));
    }
    our_options(&mut url, options);
    // Named authorities may change what is done without a mode.
    if tls.protection != Protection::default() || tls.roots.is_some() {
        url.option("sslmode", tls.protection.name());
    }
    for (name, file) in [("sslrootcert", &tls.roots), ("sslcert", &tls.cert), ("sslkey", &tls.key)] {
        if let Some(file) = file {
            url.option(name, file.display());
        }
    }
    their_options(&mut url, config, options.timeout);
    Ok(url.finish())
}

fn hosts(config: &Config) -> String {
    let ports = config.get_ports();
    let address = |(number, host): (usize, &Host)| {
        let port = ports.get(number).or(ports.first()).copied().filter(|port| *port != 5432);
        match host {
            Host::Tcp(name) if name.contains(':') => url_writer::host(name, port),
            Host::Tcp(name) => url_writer::host(&url_writer::part(name), port),
            #[cfg(unix)]
            Host::Unix(directory) => url_writer::host(&url_writer::part(&directory.to_string_lossy()), port),
        }
    };
    config.get_hosts().iter().enumerate().map(address).collect::<Vec<_>>().join(",")
}

fn our_options(url: &mut UrlWriter, options: &PostgresOptions) {
    let usual = PostgresOptions::default();
    url.option_unless(&usual.schema, "schema", &options.schema);
    url.option_unless(&usual.locks_table, "locks_table", &options.locks_table);
    url.option_unless(&usual.fences_table, "fences_table", &options.fences_table);
    url.option_unless(&seconds(usual.timeout), "timeout", &seconds(options.timeout));
    url.option_unless(&usual.pool_size, "pool_size", &options.pool_size);
    if options.wake_ups != usual.wake_ups {
        url.option("wake_ups", if options.wake_ups { "on" } else { "off" });
    }
    if let Some(time) = options.sweep_every {
        url.option("sweep_every", seconds(time));
    }
}

/// Those that the server's own clients know.
fn their_options(url: &mut UrlWriter, config: &Config, timeout: Duration) {
    url.option_unless("leasehold", "application_name", config.get_application_name().unwrap_or("leasehold"));
    if let Some(options) = config.get_options() {
        url.option("options", options);
    }
    // Whole seconds, as those clients have it.
    if let Some(time) = config.get_connect_timeout().filter(|time| **time != timeout) {
        url.option("connect_timeout", time.as_secs_f64().ceil());
    }
    if let Some(time) = config.get_tcp_user_timeout() {
        url.option("tcp_user_timeout", time.as_secs());
    }
    if !config.get_keepalives() {
        url.option("keepalives", 0);
    }
    url.option_unless(&KEEPALIVE.as_secs(), "keepalives_idle", &config.get_keepalives_idle().as_secs());
    if let Some(time) = config.get_keepalives_interval() {
        url.option("keepalives_interval", time.as_secs());
    }
    if let Some(count) = config.get_keepalives_retries() {
        url.option("keepalives_retries", count);
    }
    match config.get_target_session_attrs() {
        TargetSessionAttrs::ReadWrite => url.option("target_session_attrs", "read-write"),
        TargetSessionAttrs::ReadOnly => url.option("target_session_attrs", "read-only"),
        // With several hosts it may be a choice.
        TargetSessionAttrs::Any if config.get_hosts().len() > 1 => url.option("target_session_attrs", "any"),
        _ => {}
    }
    match config.get_channel_binding() {
        ChannelBinding::Disable => url.option("channel_binding", "disable"),
        ChannelBinding::Require => url.option("channel_binding", "require"),
        _ => {}
    }
    if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
        url.option("load_balance_hosts", "random");
    }
    if config.get_ssl_negotiation() == SslNegotiation::Direct {
        url.option("sslnegotiation", "direct");
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::super::url::parse_in;
    use super::*;
    use crate::testing::odd_urls;
    use proptest::prelude::*;

    /// Without the environment.
    fn read(url: &str) -> Result<Target, Error> {
        parse_in(url, PostgresOptions::default(), |_| None)
    }

    fn public(url: &str) -> String {
        read(url).and_then(|target| public_url("postgres", &target)).unwrap_or_else(|error| panic!("{url}: {error:?}"))
    }

    #[test]
    fn others_see_the_same_database_without_credentials() {
        for (url, expected) in [
            ("postgres://u:p@h/db?sslmode=require&password=x&user=y", "postgres://h/db?sslmode=require"),
            ("postgres://me@%2Frun%2Fpg:6000/d%2Fb", "postgres://%2Frun%2Fpg:6000/d%2Fb"),
            (
                "postgres://u:p%40@a,[::1]:6/db?target_session_attrs=read-write",
                "postgres://a,[::1]:6/db?target_session_attrs=read-write",
            ),
            ("postgres://h/db?p%61ssword=x&us%65r=y", "postgres://h/db"),
            ("postgres://h/db?application_name=me@work", "postgres://h/db?application_name=me%40work"),
            (
                "postgres://h/db?schema=a%26b&timeout=1.5&wake_ups=off&pool_size=4",
                "postgres://h/db?schema=a%26b&timeout=1.5&wake_ups=off",
            ),
            ("postgres://h?sslrootcert=/a%20b&sslmode=verify-ca", "postgres://h?sslmode=verify-ca&sslrootcert=/a%20b"),
            ("postgres://h?options=-c%20search_path%3Da", "postgres://h?options=-c%20search_path%3Da"),
        ] {
            assert_eq!(public(url), expected, "{url}");
            assert_eq!(public(expected), expected, "{url}");
        }
    }

    proptest! {
        #[test]
        fn no_secret_of_any_url_is_public_and_the_rest_is(written in odd_urls::written(
            &["user", "password"],
            &[
                "sslmode=require", "sslmode=verify-ca", "sslrootcert=/a%26b", "schema=a%40b", "schema=b@c", "locks_table=l", "timeout=2.5",
                "pool_size=9", "wake_ups=off", "sweep_every=60", "application_name=me@work", "connect_timeout=9",
                "keepalives_idle=77", "keepalives=0", "target_session_attrs=any", "target_session_attrs=read-write",
                "channel_binding=require", "load_balance_hosts=random", "options=-c%20a%3Db", "tcp_user_timeout=3",
            ],
            &["h", "a:1,b", "[::1]:7", "%2Frun%2Fpg", "%2Frun%2Fpg:6000"],
            &["", "/", "/db", "/d%2Fb", "/d%40b"],
        )) {
            let url = written.url("postgres", "");
            let shown = read(&url).and_then(|target| Ok((public_url("postgres", &target)?, target)));
            if let Ok((public, target)) = shown {
                prop_assert!(!odd_urls::has_secret(&public), "{} is shown as {}", url, public);
                let again = read(&public).unwrap_or_else(|error| panic!("{url} is shown as {public}: {error}"));
                prop_assert_eq!(public_url("postgres", &again).unwrap(), public);
                let place = |target: &Target| {
                    let config = &target.config;
                    (config.get_hosts().to_vec(), config.get_ports().to_vec(), config.get_dbname().map(str::to_owned))
                };
                prop_assert_eq!(place(&again), place(&target), "{}", url);
                prop_assert_eq!((again.options, again.tls), (target.options, target.tls), "{}", url);
            }
        }
    }
}
