use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, LoadBalanceHosts, SslNegotiation, TargetSessionAttrs};

use super::endpoints::Endpoint;
use super::options::PostgresOptions;
use super::places::{KEEPALIVE, PORT};
use super::tls::Protection;
use super::url::{READER, Target};
use crate::Error;
use crate::url_writer::{self, UrlWriter, seconds, time};

/// The URL of this database as others may see it: without the user, the password, and whatever is
/// so anyway.
///
/// # Errors
///
/// A host has an `@` in its name: as the server's own clients read a URL, the first one ends the
/// password, and this is the rest of it.
pub(super) fn public_url(scheme: &str, target: &Target) -> Result<String, Error> {
    let Target { endpoints, tls, options } = target;
    let mut hosts = endpoints.iter().flat_map(|endpoint| endpoint.config.get_hosts());
    if hosts.any(|host| matches!(host, Host::Tcp(name) if name.contains('@'))) {
        return Err(READER.unusable("has an @ in the name of a host").with_hint("in a password it is written %40"));
    }
    // But for its place and its password, each has the same.
    let Some(Endpoint { config, .. }) = endpoints.first() else {
        return Err(READER.unusable("names no host"));
    };
    let database = config.get_dbname().map(|name| format!("/{}", url_writer::part(name))).unwrap_or_default();
    let mut url = UrlWriter::new(format!("{scheme}://{}{database}", places(endpoints)));
    if endpoints.iter().any(|Endpoint { config, .. }| !config.get_hosts().is_empty() && address(config).is_some()) {
        let addresses: Vec<_> = endpoints.iter().map(|place| address(&place.config).unwrap_or_default()).collect();
        url.option("hostaddr", addresses.join(","));
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
    their_options(&mut url, config, endpoints.len());
    Ok(url.finish())
}

fn places(endpoints: &[Endpoint]) -> String {
    let place = |Endpoint { config, .. }: &Endpoint| {
        let port = config.get_ports().first().copied().filter(|port| *port != PORT);
        match config.get_hosts().first() {
            Some(Host::Tcp(name)) if name.contains(':') => url_writer::host(name, port),
            Some(Host::Tcp(name)) => url_writer::host(&url_writer::part(name), port),
            #[cfg(unix)]
            Some(Host::Unix(directory)) => url_writer::host(&url_writer::part(&directory.to_string_lossy()), port),
            None => url_writer::host(&address(config).unwrap_or_default(), port),
        }
    };
    endpoints.iter().map(place).collect::<Vec<_>>().join(",")
}

fn address(config: &Config) -> Option<String> {
    config.get_hostaddrs().first().map(ToString::to_string)
}

fn our_options(url: &mut UrlWriter, options: &PostgresOptions) {
    let usual = PostgresOptions::default();
    // Whoever names the usual one leaves nothing to the search path.
    if let Some(schema) = &options.schema {
        url.option("schema", schema);
    }
    url.option_unless(&usual.locks_table, "locks_table", &options.locks_table);
    url.option_unless(&usual.fences_table, "fences_table", &options.fences_table);
    url.option_unless(&time(usual.timeout), "timeout", &time(options.timeout));
    url.option_unless(&usual.pool_size, "pool_size", &options.pool_size);
    for (name, usual, chosen) in
        [("wake_ups", usual.wake_ups, options.wake_ups), ("batching", usual.batching, options.batching)]
    {
        if chosen != usual {
            url.option(name, if chosen { "on" } else { "off" });
        }
    }
    if let Some(time) = options.sweep_every {
        url.option("sweep_every", url_writer::time(time));
    }
}

/// Those that the server's own clients know.
fn their_options(url: &mut UrlWriter, config: &Config, servers: usize) {
    url.option_unless("leasehold", "application_name", config.get_application_name().unwrap_or("leasehold"));
    if let Some(options) = config.get_options() {
        url.option("options", options);
    }
    if let Some(time) = config.get_connect_timeout() {
        url.option("connect_timeout", seconds(*time));
    }
    if let Some(time) = config.get_tcp_user_timeout() {
        url.option("tcp_user_timeout", time.as_millis());
    }
    if !config.get_keepalives() {
        url.option("keepalives", 0);
    }
    url.option_unless(&KEEPALIVE.as_secs(), "keepalives_idle", &config.get_keepalives_idle().as_secs());
    if let Some(time) = config.get_keepalives_interval() {
        url.option("keepalives_interval", time.as_secs());
    }
    if let Some(count) = config.get_keepalives_retries() {
        url.option("keepalives_count", count);
    }
    match config.get_target_session_attrs() {
        TargetSessionAttrs::ReadWrite if servers == 1 => url.option("target_session_attrs", "read-write"),
        TargetSessionAttrs::Any if servers > 1 => url.option("target_session_attrs", "any"),
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
                "postgres://u:p%40@a,[::1]:6/db?target_session_attrs=any",
                "postgres://a,[::1]:6/db?target_session_attrs=any",
            ),
            ("postgres://h/db?p%61ssword=x&us%65r=y", "postgres://h/db"),
            ("postgres://h/db?application_name=me@work", "postgres://h/db?application_name=me%40work"),
            (
                "postgres://h/db?schema=a%26b&timeout=1.5s&wake_ups=off&pool_size=4",
                "postgres://h/db?schema=a%26b&timeout=1.5s&wake_ups=off",
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
                "sslmode=require", "sslmode=verify-ca", "sslrootcert=/a%26b", "schema=a%40b", "schema=b@c", "locks_table=l", "timeout=2.5s",
                "pool_size=9", "wake_ups=off", "batching=off", "sweep_every=60s", "application_name=me@work", "connect_timeout=9",
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
                let place = |target: &Target| -> Vec<_> {
                    let place = |Endpoint { config, .. }: &Endpoint| {
                        (config.get_hosts().to_vec(), config.get_ports().to_vec(), config.get_dbname().map(str::to_owned))
                    };
                    target.endpoints.iter().map(place).collect()
                };
                prop_assert_eq!(place(&again), place(&target), "{}", url);
                prop_assert_eq!((again.options, again.tls), (target.options, target.tls), "{}", url);
            }
        }
    }
}
