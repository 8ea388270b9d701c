use std::path::{Path, PathBuf};

use super::endpoints::Endpoint;
use super::options::PostgresOptions;
use super::places::read_endpoints;
use super::tls::{Protection, Tls};
use super::words::{Words, check_at_sign, read_address};
use crate::Error;
use crate::stores::Credentials;
use crate::url_option::UrlReader;

/// What our errors say of URLs.
pub(super) const READER: UrlReader = UrlReader { scheme: "postgres" };

/// The words of the server's own clients that mean the same here.
const KNOWN: &str = "user, password, passfile, dbname, host, hostaddr, port, application_name, options, connect_timeout, \
    tcp_user_timeout, keepalives, keepalives_idle, keepalives_interval, keepalives_count, target_session_attrs, \
    load_balance_hosts, channel_binding, sslmode, sslnegotiation, sslrootcert, sslcert, sslkey, and of ours: schema, \
    locks_table, fences_table, timeout, pool_size, wake_ups, sweep_every, batching";

/// What a URL and the environment say.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) tls: Tls,
    pub(super) options: PostgresOptions,
}

/// Reads a URL, and the variables `PG*` for whatever it leaves open.
pub(super) fn parse(url: &str, options: PostgresOptions) -> Result<Target, Error> {
    parse_in(url, options, |name| std::env::var(name).ok())
}

pub(super) fn parse_in(
    url: &str,
    mut options: PostgresOptions,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Target, Error> {
    let (address, given) = READER.split(url)?;
    check_at_sign(url)?;
    let mut said = read_address(address)?;
    for option in given {
        if option.value.contains('\0') {
            return Err(unusable("has a NUL character"));
        }
        // As the server's own clients do.
        let name = READER.decode(option.name)?;
        if !read_option(&name, &option.value, &mut options)? {
            // What is said last counts.
            said.insert(name, option.value);
        }
    }
    if !POOLS.contains(&options.pool_size) {
        return Err(unusable("has a pool_size that is not between 1 and 1000 connections"));
    }
    READER.check_time(options.timeout)?;
    let mut words = Words { said, variable };
    let tls = read_tls(&mut words)?;
    let endpoints = read_endpoints(&mut words, tls.protection)?;
    if !words.said.is_empty() {
        return Err(READER.unknown_option(KNOWN));
    }
    Ok(Target { endpoints, tls, options })
}

/// What a URL itself says of who we are.
pub(super) fn credentials(url: &str) -> Result<Credentials, Error> {
    let (address, given) = READER.split(url)?;
    let mut said = read_address(address)?;
    for option in given {
        said.insert(READER.decode(option.name)?, option.value);
    }
    let says = |word: &str| said.get(word).is_some_and(|text| !text.is_empty());
    Ok(match (says("password"), says("user") || says("passfile")) {
        (true, _) => Credentials::Password,
        (false, true) => Credentials::Name,
        (false, false) => Credentials::None,
    })
}

/// Whether the option is one of ours.
fn read_option(name: &str, value: &str, options: &mut PostgresOptions) -> Result<bool, Error> {
    match name {
        "schema" => options.schema = Some(value.to_owned()),
        "locks_table" => value.clone_into(&mut options.locks_table),
        "fences_table" => value.clone_into(&mut options.fences_table),
        "timeout" => options.timeout = READER.time(name, value)?,
        "sweep_every" => options.sweep_every = Some(READER.time(name, value)?),
        "pool_size" => {
            options.pool_size = value
                .parse()
                .ok()
                .filter(|size| POOLS.contains(size))
                .ok_or_else(|| unusable("has a pool_size that is not between 1 and 1000 connections"))?;
        }
        "wake_ups" => options.wake_ups = READER.switch(name, value)?,
        "batching" => options.batching = READER.switch(name, value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn read_tls(words: &mut Words<impl Fn(&str) -> Option<String>>) -> Result<Tls, Error> {
    let mode = words.take_or("sslmode", "PGSSLMODE");
    let roots = words.take_or("sslrootcert", "PGSSLROOTCERT").map(PathBuf::from);
    let protection = match (mode, &roots) {
        (Some(mode), _) => protection(&mode)?,
        // Who names an authority wants it to be checked. The server's own clients would go on
        // without it, and without encryption if the server has none.
        (None, Some(_)) => Protection::VerifyFull,
        (None, None) => Protection::default(),
    };
    // As the server's own clients do: everybody can have a certificate of one of the system's
    // authorities.
    if roots.as_deref() == Some(Path::new("system")) && protection != Protection::VerifyFull {
        return Err(unusable("has sslrootcert=system with an sslmode other than verify-full"));
    }
    let cert = words.take_or("sslcert", "PGSSLCERT").map(PathBuf::from);
    let key = words.take_or("sslkey", "PGSSLKEY").map(PathBuf::from);
    Ok(Tls { protection, roots, cert, key })
}

fn protection(text: &str) -> Result<Protection, Error> {
    Protection::parse(text).ok_or_else(|| {
        unusable("has an unknown sslmode")
            .with_hint("the known ones are: disable, allow, prefer, require, verify-ca, verify-full")
    })
}

/// The smallest and the largest pool.
const POOLS: std::ops::RangeInclusive<usize> = 1..=1000;

pub(super) fn unusable(why: &str) -> Error {
    READER.unusable(why)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_postgres::Config;
    use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

    use super::*;
    use crate::ErrorCode;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn parsed(url: &str, variable: impl Fn(&str) -> Option<String>) -> Target {
        parse_in(url, PostgresOptions::default(), variable).unwrap_or_else(|error| panic!("{url}: {error:?}"))
    }

    /// The one server that a URL names.
    fn only(target: &Target) -> &Config {
        assert_eq!(target.endpoints.len(), 1);
        &target.endpoints[0].config
    }

    #[test]
    fn a_url_says_everything() {
        let url = "postgres://me:p%40ss@db:6000/app?schema=s&locks_table=l&fences_table=f&timeout=1.5s&pool_size=9&wake_ups=off&batching=off\
                   &sweep_every=60s&sslmode=verify-full&sslrootcert=/ca.pem&application_name=job";
        let target = parsed(url, nothing);
        let (config, tls, options) = (only(&target), &target.tls, &target.options);
        assert_eq!(config.get_hosts(), [Host::Tcp("db".into())]);
        assert_eq!(
            (config.get_ports(), config.get_user(), config.get_dbname()),
            (&[6000][..], Some("me"), Some("app"))
        );
        assert_eq!(config.get_password(), Some(&b"p@ss"[..]));
        assert_eq!(config.get_application_name(), Some("job"));
        assert_eq!((tls.protection, &tls.roots), (Protection::VerifyFull, &Some("/ca.pem".into())));
        let expected = PostgresOptions {
            schema: Some("s".into()),
            locks_table: "l".into(),
            fences_table: "f".into(),
            timeout: Duration::from_millis(1500),
            pool_size: 9,
            wake_ups: false,
            batching: false,
            sweep_every: Some(Duration::from_secs(60)),
        };
        assert_eq!(*options, expected);
    }

    #[test]
    fn the_environment_says_the_rest_and_only_the_rest() {
        let environment = |name: &str| {
            let value = match name {
                "PGHOST" => "other",
                "PGPORT" => "7000",
                "PGUSER" => "somebody",
                "PGPASSWORD" => "secret",
                "PGDATABASE" => "data",
                "PGSSLMODE" => "require",
                "PGAPPNAME" => "name",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let open = parsed("postgres://", environment);
        assert_eq!(open.options.schema, None);
        assert_eq!(only(&open).get_hosts(), [Host::Tcp("other".into())]);
        assert_eq!((only(&open).get_ports(), only(&open).get_user()), (&[7000][..], Some("somebody")));
        assert_eq!((only(&open).get_dbname(), open.tls.protection), (Some("data"), Protection::Require));
        for url in [
            "postgres://me:mine@db:1/app?sslmode=disable",
            "postgres://you:yours@x:9/y?user=me&password=mine&host=db&port=1&dbname=app&sslmode=disable",
        ] {
            let said = parsed(url, environment);
            let config = only(&said);
            assert_eq!(config.get_hosts(), [Host::Tcp("db".into())], "{url}");
            assert_eq!((config.get_user(), config.get_password()), (Some("me"), Some(&b"mine"[..])), "{url}");
            assert_eq!((config.get_ports(), said.tls.protection), (&[1][..], Protection::Disable), "{url}");
        }
    }

    #[test]
    fn the_environment_and_the_url_mean_what_they_mean_to_the_servers_own_clients() {
        let environment = |name: &str| {
            let value = match name {
                "PGHOST" => "one,/run/two",
                "PGPORT" => "7000,7001",
                "PGCONNECT_TIMEOUT" => "0",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let several = parsed("postgres://?keepalives_idle=77&keepalives_count=3&tcp_user_timeout=1500", environment);
        let places = |target: &Target| -> Vec<_> {
            let one = |it: &Endpoint| (it.config.get_hosts()[0].clone(), it.config.get_ports()[0]);
            target.endpoints.iter().map(one).collect()
        };
        let (one, two) = (Host::Tcp("one".into()), Host::Unix("/run/two".into()));
        assert_eq!(places(&several), [(one.clone(), 7000), (two.clone(), 7001)]);
        let config = &several.endpoints[1].config;
        assert_eq!(config.get_connect_timeout(), None);
        assert_eq!(config.get_keepalives_idle(), Duration::from_secs(77));
        assert_eq!(config.get_keepalives_retries(), Some(3));
        assert_eq!(config.get_tcp_user_timeout(), Some(&Duration::from_millis(1500)));
        assert_eq!(places(&parsed("postgres://one,%2Frun%2Ftwo:9/?port=8", nothing)), [(one, 8), (two, 8)]);
        let local = parsed("postgres://me@%2Frun%2Fpostgresql/db?sslmode=verify-full", nothing);
        assert_eq!(only(&local).get_ssl_mode(), SslMode::Disable, "a socket has no TLS");
        for remote in ["postgres://me@db/db?sslmode=require", "postgres:///db?hostaddr=10.0.0.1&sslmode=require"] {
            assert_eq!(only(&parsed(remote, nothing)).get_ssl_mode(), SslMode::Require, "{remote}");
        }
        let mixed = parsed("postgres://db,%2Frun%2Fpostgresql/db?sslmode=require", nothing);
        let modes = mixed.endpoints.iter().map(|endpoint| endpoint.config.get_ssl_mode());
        assert_eq!(modes.collect::<Vec<_>>(), [SslMode::Require, SslMode::Disable]);
    }

    #[test]
    fn of_several_servers_the_one_that_accepts_writes_is_wanted() {
        let wanted = |url: &str| parsed(url, nothing).endpoints[0].config.get_target_session_attrs();
        assert_eq!(wanted("postgres://a/db"), TargetSessionAttrs::Any);
        assert_eq!(wanted("postgres://a,b/db"), TargetSessionAttrs::ReadWrite);
        assert_eq!(wanted("postgres://a,b/db?target_session_attrs=any"), TargetSessionAttrs::Any);
        assert_eq!(wanted("postgres://a/db?target_session_attrs=primary"), TargetSessionAttrs::ReadWrite);
        for no_use in ["read-only", "standby", "prefer-standby"] {
            let url = format!("postgres://a,b/db?target_session_attrs={no_use}");
            let error = parse_in(&url, PostgresOptions::default(), nothing).expect_err(no_use);
            assert!(error.hint().is_some_and(|hint| hint.contains("read-write")), "{error:?}");
        }
    }

    #[test]
    fn an_at_sign_in_a_query_leads_to_no_other_host() {
        let target = parsed("postgres://db/app?user=me&password=p@ss", nothing);
        assert_eq!(only(&target).get_hosts(), [Host::Tcp("db".into())]);
        assert_eq!(only(&target).get_password(), Some(&b"p@ss"[..]));
    }

    #[test]
    fn each_host_gets_its_own_password_and_only_the_usual_socket_is_localhost() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "one:*:*:*:first\ntwo:7:*:*:second\nlocalhost:*:*:*:local\n10.0.0.1:*:*:*:by address\n";
        std::fs::write(file.path(), text).unwrap();
        let passwords = |url: &str| -> Vec<Option<String>> {
            let variable = |name: &str| (name == "PGPASSFILE").then(|| file.path().display().to_string());
            let password = |it: &Endpoint| it.config.get_password().map(|it| String::from_utf8(it.to_vec()).unwrap());
            parsed(url, variable).endpoints.iter().map(password).collect()
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(passwords("postgres://me@one,two:7,two:8,three/app"), [some("first"), some("second"), None, None]);
        assert_eq!(passwords("postgres://me@two:7,one/app"), [some("second"), some("first")]);
        assert_eq!(passwords("postgres://me@%2Fvar%2Frun%2Fpostgresql/app"), [some("local")]);
        assert_eq!(passwords("postgres://me@%2Ftmp/app"), [None], "a socket that anybody may have made");
        assert_eq!(passwords("postgres://me@/app?hostaddr=10.0.0.1"), [some("by address")]);
        assert_eq!(passwords("postgres://me@two/app?hostaddr=10.0.0.1&port=7"), [some("second")]);
        assert_eq!(passwords("postgres://me:mine@one,two/app"), [some("mine"), some("mine")]);
    }

    #[test]
    fn who_names_an_authority_has_it_checked() {
        let protection = |url: &str, variable: fn(&str) -> Option<String>| parsed(url, variable).tls.protection;
        assert_eq!(protection("postgres://db/app", nothing), Protection::Prefer);
        assert_eq!(protection("postgres://db/app?sslrootcert=/ca.pem", nothing), Protection::VerifyFull);
        let variable = |name: &str| (name == "PGSSLROOTCERT").then(|| "/ca.pem".to_owned());
        assert_eq!(protection("postgres://db/app", variable), Protection::VerifyFull);
        assert_eq!(protection("postgres://db/app?sslmode=prefer", variable), Protection::Prefer, "as it was said");
    }

    #[test]
    fn the_authorities_of_the_system_are_trusted_with_the_name_they_vouch_for() {
        let url = |query: &str| format!("postgres://me@db/app?{query}");
        let protection = |query| parsed(&url(query), nothing).tls.protection;
        assert_eq!(protection("sslrootcert=system"), Protection::VerifyFull);
        assert_eq!(protection("sslrootcert=system&sslmode=verify-full"), Protection::VerifyFull);
        assert_eq!(only(&parsed(&url("sslrootcert=system"), nothing)).get_ssl_mode(), SslMode::Require);
        for weak in ["disable", "prefer", "require", "verify-ca"] {
            let said = url(&format!("sslrootcert=system&sslmode={weak}"));
            assert!(parse_in(&said, PostgresOptions::default(), nothing).is_err(), "{weak}");
            let variable = |name: &str| (name == "PGSSLMODE").then(|| weak.to_owned());
            assert!(parse_in(&url("sslrootcert=system"), PostgresOptions::default(), variable).is_err(), "{weak}");
        }
    }

    #[test]
    fn what_others_do_not_see_is_known() {
        for (url, expected) in [
            ("postgres://db/app", Credentials::None),
            ("postgres://me@db/app", Credentials::Name),
            ("postgres://db/app?passfile=/run/pgpass", Credentials::Name),
            ("postgres://me:secret@db/app", Credentials::Password),
            ("postgres://db/app?p%61ssword=secret", Credentials::Password),
        ] {
            assert_eq!(credentials(url).unwrap(), expected, "{url}");
        }
    }

    #[test]
    fn a_query_may_contain_an_at_sign() {
        let target = parsed("postgres://me@db/app?application_name=me@work&timeout=2s", nothing);
        assert_eq!(only(&target).get_application_name(), Some("me@work"));
        assert_eq!(target.options.timeout, Duration::from_secs(2));
    }

    #[test]
    fn the_rest_is_refused_without_repeating_it() {
        for wrong in [
            "postgres://host:secret/db",
            "postgres://host/db?secret=1",
            "postgres://host/db?sslmode=secret",
            "postgres://host/db?timeout=secret",
            "postgres://host/db?pool_size=0",
            "postgres://host/db?wake_ups=secret",
            "postgres://host/db?batching=secret",
            "postgres://host/db?schema=%ff",
            "postgres://host/db?password=secret%00",
            "postgres://host?password=secret@there",
            "postgres://me:secret@there@host/db",
            "postgres://a,b/db?port=1,2,3",
            "postgres://a,b/db?hostaddr=10.0.0.1",
            "postgres://a/db?hostaddr=secret",
            "postgres://a/db?keepalives=secret",
            "postgres://a:0/db",
        ] {
            let error = parse_in(wrong, PostgresOptions::default(), nothing).expect_err(wrong);
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{wrong}");
            assert!(error.hint().is_some() && !error.to_string().contains("secret"), "{wrong}: {error}");
        }
    }
}
