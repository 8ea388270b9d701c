use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::options::PostgresOptions;
use super::tls::{Protection, Tls};
use crate::url_option::UrlReader;
use crate::{Error, url_writer};

/// What our errors say of URLs.
pub(super) const READER: UrlReader = UrlReader { scheme: "postgres" };

/// Where Debian and others keep the server's socket.
const SOCKETS: &str = "/var/run/postgresql";

/// A peer that is gone without a word is noticed after this long.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(15);

/// What a URL and the environment say.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) config: Config,
    pub(super) tls: Tls,
    pub(super) options: PostgresOptions,
}

/// Reads a URL, and the variables `PG*` for whatever it leaves open.
pub(super) fn parse(url: &str, options: PostgresOptions) -> Result<Target, Error> {
    parse_in(url, options, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

pub(super) fn parse_in(
    url: &str,
    mut options: PostgresOptions,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Target, Error> {
    let (address, given) = READER.split(url)?;
    let mut tls = Tls {
        protection: protection(&variable("PGSSLMODE").unwrap_or_else(|| "prefer".to_owned()))?,
        roots: variable("PGSSLROOTCERT").map(PathBuf::from),
        cert: variable("PGSSLCERT").map(PathBuf::from),
        key: variable("PGSSLKEY").map(PathBuf::from),
    };
    let mut mode_given = variable("PGSSLMODE").is_some();
    let mut theirs = Vec::new();
    for option in &given {
        mode_given |= option.name == "sslmode";
        if !read_option(option.name, &option.value, &mut options, &mut tls)? {
            // Encoded: the driver looks for an @ everywhere.
            theirs.push(format!("{}={}", option.name, url_writer::part(&option.value)));
        }
    }
    let plain = if theirs.is_empty() { address.to_owned() } else { format!("{address}?{}", theirs.join("&")) };
    // As the server's own clients do: everybody can have a certificate of one of the system's
    // authorities.
    if tls.roots.as_deref() == Some(Path::new("system")) {
        if mode_given && tls.protection != Protection::VerifyFull {
            return Err(unusable("has sslrootcert=system with an sslmode other than verify-full"));
        }
        tls.protection = Protection::VerifyFull;
    }
    if !POOLS.contains(&options.pool_size) {
        return Err(unusable("has a pool_size that is not between 1 and 1000 connections"));
    }
    READER.check_time(options.timeout)?;
    // Without the source, which repeats what it does not know: for all we know, half of a password.
    let mut config: Config = plain.parse().map_err(|_: tokio_postgres::Error| unusable("cannot be used"))?;
    complete(&mut config, &variable)?;
    // As the server's own clients do: there is no TLS on a socket of this host, and nobody in
    // between.
    let local = config.get_hostaddrs().is_empty()
        && !config.get_hosts().is_empty()
        && config.get_hosts().iter().all(|host| !matches!(host, Host::Tcp(_)));
    config.ssl_mode(if local { SslMode::Disable } else { tls.protection.mode() });
    if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        config.keepalives_idle(KEEPALIVE);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(options.timeout);
    }
    Ok(Target { config, tls, options })
}

/// Whether the option is one of ours.
fn read_option(name: &str, value: &str, options: &mut PostgresOptions, tls: &mut Tls) -> Result<bool, Error> {
    match name {
        "schema" => value.clone_into(&mut options.schema),
        "locks_table" => value.clone_into(&mut options.locks_table),
        "fences_table" => value.clone_into(&mut options.fences_table),
        "timeout" => options.timeout = READER.seconds(value)?,
        "sweep_every" => options.sweep_every = Some(READER.seconds(value)?),
        "pool_size" => {
            options.pool_size = value
                .parse()
                .ok()
                .filter(|size| POOLS.contains(size))
                .ok_or_else(|| unusable("has a pool_size that is not between 1 and 1000 connections"))?;
        }
        "wake_ups" => {
            options.wake_ups = match value {
                "on" => true,
                "off" => false,
                _ => return Err(unusable("has a wake_ups option that is neither on nor off")),
            }
        }
        "sslmode" => tls.protection = protection(value)?,
        "sslrootcert" => tls.roots = Some(value.into()),
        "sslcert" => tls.cert = Some(value.into()),
        "sslkey" => tls.key = Some(value.into()),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Fills what the URL leaves open.
fn complete(config: &mut Config, variable: &impl Fn(&str) -> Option<String>) -> Result<(), Error> {
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        let socket = Path::new(SOCKETS).exists().then(|| SOCKETS.to_owned());
        let hosts = variable("PGHOST").or(socket).unwrap_or_else(|| "localhost".to_owned());
        for host in hosts.split(',') {
            config.host(host);
        }
    }
    if config.get_ports().is_empty()
        && let Some(ports) = variable("PGPORT")
    {
        for port in ports.split(',') {
            config.port(port.parse().map_err(|_| unusable("lacks a port, and PGPORT is not one"))?);
        }
    }
    if config.get_user().is_none()
        && let Some(user) = variable("PGUSER").or_else(|| variable("USER"))
    {
        config.user(user);
    }
    if config.get_dbname().is_none()
        && let Some(database) = variable("PGDATABASE")
    {
        config.dbname(database);
    }
    if config.get_application_name().is_none() {
        config.application_name(variable("PGAPPNAME").unwrap_or_else(|| "leasehold".to_owned()));
    }
    if config.get_options().is_none()
        && let Some(options) = variable("PGOPTIONS")
    {
        config.options(options);
    }
    if config.get_connect_timeout().is_none()
        && let Some(timeout) = variable("PGCONNECT_TIMEOUT").filter(|timeout| timeout != "0")
    {
        config.connect_timeout(READER.seconds(&timeout)?);
    }
    if config.get_password().is_none()
        && let Some(password) = variable("PGPASSWORD").or_else(|| from_password_file(config, variable))
    {
        config.password(password);
    }
    Ok(())
}

/// The password in `~/.pgpass`, or the file that `PGPASSFILE` names: lines of
/// `host:port:database:user:password`.
fn from_password_file(config: &Config, variable: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let file = variable("PGPASSFILE").map(PathBuf::from).or_else(|| Some(std::env::home_dir()?.join(".pgpass")))?;
    let text = std::fs::read_to_string(file).ok()?;
    let host = match config.get_hosts().first()? {
        Host::Tcp(host) => host.clone(),
        #[cfg(unix)]
        Host::Unix(_) => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let user = config.get_user()?.to_owned();
    let database = config.get_dbname().unwrap_or(&user).to_owned();
    password_of(&text, [&host, &port, &database, &user])
}

fn password_of(text: &str, wanted: [&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let [found @ .., password] = &fields[..] else { return None };
        let matches = |(found, wanted): (&String, &str)| found == "*" || found == wanted;
        (found.len() == 4 && found.iter().zip(wanted).all(matches)).then(|| password.clone())
    })
}

/// Splits at colons; a backslash takes the next character as it is.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        let last = fields.len() - 1;
        match c {
            // Whatever follows the fourth colon is the password.
            ':' if last < 4 => fields.push(String::new()),
            '\\' => fields[last].extend(characters.next()),
            c => fields[last].push(c),
        }
    }
    fields
}

fn protection(text: &str) -> Result<Protection, Error> {
    Protection::parse(text).ok_or_else(|| {
        unusable("has an unknown sslmode")
            .with_hint("the known ones are: disable, allow, prefer, require, verify-ca, verify-full")
    })
}

/// The smallest and the largest pool.
const POOLS: std::ops::RangeInclusive<usize> = 1..=1000;

fn unusable(why: &str) -> Error {
    READER.unusable(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn parsed(url: &str, variable: impl Fn(&str) -> Option<String>) -> Target {
        parse_in(url, PostgresOptions::default(), variable).unwrap_or_else(|error| panic!("{url}: {error:?}"))
    }

    #[test]
    fn a_url_says_everything() {
        let url = "postgres://me:p%40ss@db:6000/app?schema=s&locks_table=l&fences_table=f&timeout=1.5&pool_size=9&wake_ups=off\
                   &sweep_every=60&sslmode=verify-full&sslrootcert=/ca.pem&application_name=job";
        let Target { config, tls, options } = parsed(url, nothing);
        assert_eq!(config.get_hosts(), [Host::Tcp("db".into())]);
        assert_eq!(
            (config.get_ports(), config.get_user(), config.get_dbname()),
            (&[6000][..], Some("me"), Some("app"))
        );
        assert_eq!(config.get_password(), Some(&b"p@ss"[..]));
        assert_eq!(config.get_application_name(), Some("job"));
        assert_eq!((tls.protection, tls.roots), (Protection::VerifyFull, Some("/ca.pem".into())));
        let expected = PostgresOptions {
            schema: "s".into(),
            locks_table: "l".into(),
            fences_table: "f".into(),
            timeout: Duration::from_millis(1500),
            pool_size: 9,
            wake_ups: false,
            sweep_every: Some(Duration::from_secs(60)),
        };
        assert_eq!(options, expected);
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
        assert_eq!(open.config.get_hosts(), [Host::Tcp("other".into())]);
        assert_eq!((open.config.get_ports(), open.config.get_user()), (&[7000][..], Some("somebody")));
        assert_eq!((open.config.get_dbname(), open.tls.protection), (Some("data"), Protection::Require));
        let said = parsed("postgres://me:mine@db:1/app?sslmode=disable", environment);
        assert_eq!((said.config.get_user(), said.config.get_password()), (Some("me"), Some(&b"mine"[..])));
        assert_eq!((said.config.get_ports(), said.tls.protection), (&[1][..], Protection::Disable));
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
        let several = parsed("postgres://?keepalives_idle=77", environment).config;
        assert_eq!(several.get_hosts(), [Host::Tcp("one".into()), Host::Unix("/run/two".into())]);
        assert_eq!(several.get_ports(), [7000, 7001]);
        assert_eq!(several.get_connect_timeout(), Some(&PostgresOptions::default().timeout));
        assert_eq!(several.get_keepalives_idle(), Duration::from_secs(77));
        let local = parsed("postgres://me@%2Frun%2Fpostgresql/db?sslmode=verify-full", nothing).config;
        assert_eq!(local.get_ssl_mode(), SslMode::Disable, "a socket has no TLS");
        for remote in ["postgres://me@db/db?sslmode=require", "postgres:///db?hostaddr=10.0.0.1&sslmode=require"] {
            assert_eq!(parsed(remote, nothing).config.get_ssl_mode(), SslMode::Require, "{remote}");
        }
    }

    #[test]
    fn the_authorities_of_the_system_are_trusted_with_the_name_they_vouch_for() {
        let url = |query: &str| format!("postgres://me@db/app?{query}");
        let protection = |query| parsed(&url(query), nothing).tls.protection;
        assert_eq!(protection("sslrootcert=system"), Protection::VerifyFull);
        assert_eq!(protection("sslrootcert=system&sslmode=verify-full"), Protection::VerifyFull);
        assert_eq!(parsed(&url("sslrootcert=system"), nothing).config.get_ssl_mode(), SslMode::Require);
        for weak in ["disable", "prefer", "require", "verify-ca"] {
            let said = url(&format!("sslrootcert=system&sslmode={weak}"));
            assert!(parse_in(&said, PostgresOptions::default(), nothing).is_err(), "{weak}");
            let variable = |name: &str| (name == "PGSSLMODE").then(|| weak.to_owned());
            assert!(parse_in(&url("sslrootcert=system"), PostgresOptions::default(), variable).is_err(), "{weak}");
        }
    }

    #[test]
    fn the_password_file_is_read_as_the_servers_own_clients_do() {
        let text = "# comment\nelse:*:*:*:no\n*:5432:app:me:a\\:b\\\\c:d\n*:*:*:*:any\n";
        assert_eq!(password_of(text, ["db", "5432", "app", "me"]).as_deref(), Some("a:b\\c:d"));
        assert_eq!(password_of(text, ["db", "5432", "app", "you"]).as_deref(), Some("any"));
        assert_eq!(password_of("db:1:a", ["db", "1", "a", "b"]), None);
    }

    #[test]
    fn a_query_may_contain_an_at_sign() {
        let target = parsed("postgres://me@db/app?application_name=me@work&timeout=2", nothing);
        assert_eq!(target.config.get_application_name(), Some("me@work"));
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
            "postgres://host/db?schema=%ff",
        ] {
            let error = parse_in(wrong, PostgresOptions::default(), nothing).expect_err(wrong);
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{wrong}");
            assert!(error.hint().is_some() && !error.to_string().contains("secret"), "{wrong}: {error}");
        }
    }
}
