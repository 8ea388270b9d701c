use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use super::error::translate;
use super::options::{RedisOptions, RedisTls};
use super::password_file;
use super::server::{Place, Server};
use super::tls::client;
use crate::Error;
use crate::stores::Credentials;
use crate::url_option::{UrlOption, UrlReader};
use crate::url_writer::{self, UrlWriter, time};

/// A peer that is gone without a word is noticed after this long.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// What our errors say of URLs.
pub(super) const READER: UrlReader = UrlReader { scheme: "redis" };

const KNOWN: &str = "prefix, timeout, batching, ca, cert, key, password_file, sentinel_user, sentinel_password; and for sockets: db, user, pass";

/// What a URL is made of.
struct Parts<'a> {
    scheme: &'a str,
    user_info: Option<&'a str>,
    hosts: &'a str,
    path: &'a str,
}

/// What a URL says, before anything is opened.
pub(super) struct Target {
    /// As it stands in the URL.
    scheme: String,
    place: Place<ConnectionInfo>,
    options: RedisOptions,
}

/// Where the server is, and the options with what the URL says.
pub(super) fn parse(url: &str, options: RedisOptions) -> Result<(Server, RedisOptions), Error> {
    let Target { place, options, .. } = Target::read(url, options)?;
    let password = options.password_file.as_deref().map(password_file::read).transpose()?;
    let open = |info: ConnectionInfo| client(info, &options);
    let log_in = |info: ConnectionInfo| open(with_password(info, password.as_deref())?);
    let place = match place {
        Place::Hosts(hosts) => Place::Hosts(hosts.into_iter().map(log_in).collect::<Result<_, _>>()?),
        Place::Sentinels { sentinels, name, primary } => Place::Sentinels {
            sentinels: sentinels.into_iter().map(open).collect::<Result<_, _>>()?,
            name,
            primary: Box::new(log_in(*primary)?),
        },
    };
    let server = Server { place, timeout: options.timeout, first: AtomicUsize::default() };
    Ok((server, options))
}

impl Target {
    pub(super) fn read(url: &str, mut options: RedisOptions) -> Result<Self, Error> {
        // Without this, what follows in a password would be lost, and its beginning taken for a
        // port.
        if url.contains('#') {
            return Err(unusable("contains a #").with_hint("in names, passwords and options it is written %23"));
        }
        let (address, given) = READER.split(url)?;
        read_options(&given, address.starts_with("unix:"), &mut options)?;
        READER.check_time(options.timeout)?;
        let parts = split(address)?;
        let place = match &parts {
            Parts { scheme: "unix", .. } => Place::Hosts(vec![socket(address, &given)?]),
            parts if parts.scheme.ends_with("+sentinel") => sentinels(parts, &options)?,
            parts => Place::Hosts(hosts(parts, parts.user_info, parts.path)?),
        };
        Ok(Self { scheme: parts.scheme.to_owned(), place, options })
    }

    /// What others may not see of it.
    pub(super) fn credentials(&self) -> Credentials {
        let of = |server: &ConnectionInfo| match server.redis_settings() {
            settings if settings.password().is_some() => Credentials::Password,
            settings if settings.username().is_some() => Credentials::Name,
            _ => Credentials::None,
        };
        let in_place = match &self.place {
            Place::Hosts(hosts) => hosts.iter().map(of).max(),
            Place::Sentinels { sentinels, primary, .. } => sentinels.iter().map(of).chain([of(primary)]).max(),
        };
        let in_file = self.options.password_file.as_ref().map(|_| Credentials::Name);
        in_place.max(in_file).unwrap_or_default()
    }

    /// As others may see it.
    pub(super) fn public_url(&self) -> String {
        let (address, database) = match &self.place {
            Place::Hosts(hosts) => {
                let database = database(hosts.first());
                match hosts.first().map(ConnectionInfo::addr) {
                    Some(ConnectionAddr::Unix(socket)) => {
                        (format!("unix://{}", url_writer::path(&socket.to_string_lossy())), database)
                    }
                    _ => (format!("{}://{}{}", self.scheme, addresses(hosts), in_path(database)), 0),
                }
            }
            Place::Sentinels { sentinels, name, primary } => {
                let (name, database) = (url_writer::part(name), database(Some(primary)));
                (format!("{}://{}/{name}{}", self.scheme, addresses(sentinels), in_path(database)), 0)
            }
        };
        let (options, usual) = (&self.options, RedisOptions::default());
        let mut url = UrlWriter::new(address);
        url.option_unless(&0, "db", &database);
        url.option_unless(&usual.prefix, "prefix", &options.prefix);
        url.option_unless(&time(usual.timeout), "timeout", &time(options.timeout));
        url.option_unless("on", "batching", if options.batching { "on" } else { "off" });
        let RedisTls { ca, cert, key } = &options.tls;
        for (name, file) in [("ca", ca), ("cert", cert), ("key", key)] {
            if let Some(file) = file {
                url.option(name, file.display());
            }
        }
        if let Some(file) = &options.password_file {
            url.option("password_file", file.display());
        }
        url.finish()
    }
}

/// The server with the password of the password file, if there is one.
fn with_password(info: ConnectionInfo, password: Option<&str>) -> Result<ConnectionInfo, Error> {
    let Some(password) = password else { return Ok(info) };
    let settings = info.redis_settings().clone();
    if settings.password().is_some() {
        return Err(unusable("has a password and a password_file").with_hint("leave one of them out"));
    }
    Ok(info.set_redis_settings(settings.set_password(password)))
}

fn database(server: Option<&ConnectionInfo>) -> i64 {
    server.map_or(0, |server| server.redis_settings().db())
}

fn in_path(database: i64) -> String {
    if database == 0 { String::new() } else { format!("/{database}") }
}

fn addresses(hosts: &[ConnectionInfo]) -> String {
    let address = |host: &ConnectionInfo| match host.addr() {
        ConnectionAddr::Tcp(name, port) | ConnectionAddr::TcpTls { host: name, port, .. } => {
            url_writer::host(name, Some(*port))
        }
        _ => String::new(),
    };
    hosts.iter().map(address).collect::<Vec<_>>().join(",")
}

fn split(address: &str) -> Result<Parts<'_>, Error> {
    let (scheme, rest) = address.split_once(':').ok_or_else(|| unusable("has no scheme"))?;
    if scheme == "unix" {
        return Ok(Parts { scheme, user_info: None, hosts: "", path: rest });
    }
    let rest = rest.strip_prefix("//").ok_or_else(|| unusable("has no // before the host"))?;
    let (user_info, rest) = match rest.rsplit_once('@') {
        Some((user_info, rest)) => (Some(user_info), rest),
        None => (None, rest),
    };
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    if hosts.is_empty() {
        return Err(unusable("names no host"));
    }
    Ok(Parts { scheme, user_info, hosts, path })
}

fn hosts(parts: &Parts<'_>, user_info: Option<&str>, path: &str) -> Result<Vec<ConnectionInfo>, Error> {
    let scheme = parts.scheme.trim_end_matches("+sentinel");
    let user_info = user_info.map(|user_info| format!("{user_info}@")).unwrap_or_default();
    parts.hosts.split(',').map(|host| info(&format!("{scheme}://{user_info}{host}/{path}"))).collect()
}

/// `redis+sentinel://user:password@sentinel:26379,sentinel:26379/name/database`: the credentials
/// are those of the servers.
fn sentinels(parts: &Parts<'_>, options: &RedisOptions) -> Result<Place<ConnectionInfo>, Error> {
    let (name, database) = parts.path.split_once('/').unwrap_or((parts.path, ""));
    if name.is_empty() {
        return Err(unusable("names no primary")
            .with_hint("for example redis+sentinel://sentinel-1:26379,sentinel-2:26379/mymaster"));
    }
    let with_port = |host: &str| match host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => host.to_owned(),
        _ => format!("{host}:26379"),
    };
    let named: Vec<String> = parts.hosts.split(',').map(with_port).collect();
    let endpoints = Parts { hosts: &named.join(","), ..*parts };
    let credentials = |info: ConnectionInfo| {
        let mut settings = info.redis_settings().clone();
        if let Some(user) = &options.sentinel_user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &options.sentinel_password {
            settings = settings.set_password(password);
        }
        info.set_redis_settings(settings)
    };
    let sentinels = hosts(&endpoints, None, "")?.into_iter().map(credentials).collect();
    let primary = Parts { hosts: "primary", ..*parts };
    let primary = Box::new(hosts(&primary, parts.user_info, database)?.remove(0));
    let name = READER.decode(name)?;
    Ok(Place::Sentinels { sentinels, name, primary })
}

/// A socket in the file system; the driver reads `db`, `user` and `pass` from the query.
fn socket(address: &str, options: &[UrlOption<'_>]) -> Result<ConnectionInfo, Error> {
    let path = address.trim_start_matches("unix:");
    let path = path.strip_prefix("//").unwrap_or(path);
    if !path.starts_with('/') {
        return Err(unusable("names no socket").with_hint("for example unix:///run/redis/redis.sock?db=0"));
    }
    // Of a URL of another kind, this is the end of a password.
    if path.contains('@') {
        return Err(unusable("has an @ in the path of the socket").with_hint("write %40 for it"));
    }
    let kept = options.iter().filter(|option| FOR_SOCKETS.contains(&option.name)).map(|option| option.text);
    // The driver takes a plus sign for a space.
    let url = format!("unix://{path}?{}", kept.collect::<Vec<_>>().join("&").replace('+', "%2B"));
    info(&url)
}

const FOR_SOCKETS: [&str; 3] = ["db", "user", "pass"];

fn info(url: &str) -> Result<ConnectionInfo, Error> {
    let info = url.into_connection_info().map_err(|error| translate(error, false))?;
    if matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
        return Err(unusable("asks for TLS without trust").with_hint("name the server's authority with ?ca=FILE"));
    }
    Ok(settings(info))
}

fn settings(info: ConnectionInfo) -> ConnectionInfo {
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3).with_retries(3));
    let redis: RedisConnectionInfo = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3)
        .set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
    info.set_tcp_settings(tcp).set_redis_settings(redis)
}

fn read_options(given: &[UrlOption<'_>], of_socket: bool, options: &mut RedisOptions) -> Result<(), Error> {
    for UrlOption { name, value, .. } in given {
        match *name {
            "prefix" => options.prefix.clone_from(value),
            "timeout" => options.timeout = READER.time(name, value)?,
            "batching" => options.batching = READER.switch(name, value)?,
            "ca" => options.tls.ca = Some(value.into()),
            "cert" => options.tls.cert = Some(value.into()),
            "key" => options.tls.key = Some(value.into()),
            "password_file" => options.password_file = Some(value.into()),
            "sentinel_user" => options.sentinel_user = Some(value.clone()),
            "sentinel_password" => options.sentinel_password = Some(value.clone()),
            name if of_socket && FOR_SOCKETS.contains(&name) => {}
            _ => return Err(READER.unknown_option(KNOWN)),
        }
    }
    Ok(())
}

pub(super) fn unusable(why: &str) -> Error {
    READER.unusable(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;
    use crate::testing::odd_urls;
    use proptest::prelude::*;
    use proptest::sample::select;

    fn parsed(url: &str) -> (Server, RedisOptions) {
        parse(url, RedisOptions::default()).unwrap_or_else(|error| panic!("{url}: {error} ({:?})", error.hint()))
    }

    fn info(url: &str) -> ConnectionInfo {
        match parsed(url).0.place {
            Place::Hosts(mut hosts) => hosts.remove(0).get_connection_info().clone(),
            Place::Sentinels { primary, .. } => primary.get_connection_info().clone(),
        }
    }

    #[test]
    fn hosts_users_databases_and_options_are_understood() {
        let found = info("redis://me:p%40ss@db.example:7000/3?prefix=app");
        assert_eq!(found.addr().to_string(), "db.example:7000");
        let redis = found.redis_settings();
        assert_eq!((redis.username(), redis.password(), redis.db()), (Some("me"), Some("p@ss"), 3));
        assert_eq!(info("redis://[::1]:7000").addr().to_string(), "::1:7000");
        assert_eq!(info("valkey://host").addr().to_string(), "host:6379");
        assert_eq!(info("unix:///run/redis.sock?db=2&prefix=x").redis_settings().db(), 2);
        assert_eq!(info("unix:/run/redis.sock").addr().to_string(), "/run/redis.sock");
        assert!(matches!(info("rediss://host").addr(), redis::ConnectionAddr::TcpTls { insecure: false, .. }));

        let options = parsed("redis://h?prefix={locks}&timeout=2.5s").1;
        assert_eq!((options.prefix.as_str(), options.timeout), ("{locks}", Duration::from_millis(2500)));
        assert_eq!(parsed("redis://h?prefix=a%3Ab%26c").1.prefix, "a:b&c");
        let Place::Hosts(nodes) = parsed("redis://:secret@a:1,b:2,c:3/0").0.place else { panic!("hosts") };
        assert_eq!(nodes.len(), 3);
        assert!(nodes.iter().all(|node| node.get_connection_info().redis_settings().password() == Some("secret")));
    }

    #[test]
    fn sentinels_have_credentials_of_their_own() {
        let url = "redis+sentinel://me:secret@s1,s2:5000/mymaster/4?sentinel_password=other";
        let Place::Sentinels { sentinels, name, primary } = parsed(url).0.place else { panic!("sentinels") };
        let addresses: Vec<_> =
            sentinels.iter().map(|sentinel| sentinel.get_connection_info().addr().to_string()).collect();
        assert_eq!(addresses, ["s1:26379", "s2:5000"]);
        assert_eq!(sentinels[0].get_connection_info().redis_settings().password(), Some("other"));
        assert_eq!(sentinels[0].get_connection_info().redis_settings().username(), None);
        assert_eq!(name, "mymaster");
        let redis = primary.get_connection_info().redis_settings();
        assert_eq!((redis.username(), redis.password(), redis.db()), (Some("me"), Some("secret"), 4));
    }

    #[test]
    fn others_see_the_same_server_without_credentials() {
        for (url, public) in [
            ("redis://user:p@ss@host:6379/0", "redis://host:6379"),
            ("redis://host", "redis://host:6379"),
            ("valkey://me@[::1]:7000/3", "valkey://[::1]:7000/3"),
            ("redis://:x@a:1,b:2/0?prefix={x}", "redis://a:1,b:2?prefix={x}"),
            ("redis://h?prefix=team@app&timeout=2.5s", "redis://h:6379?prefix=team%40app&timeout=2.5s"),
            ("rediss://h?ca=/a&cert=/b&key=/c%20d", "rediss://h:6379?ca=/a&cert=/b&key=/c%20d"),
            ("unix:///run/r.sock?pass=sec@ret&db=1&user=me", "unix:///run/r.sock?db=1"),
            ("unix:/run/a%20b.sock", "unix:///run/a%20b.sock"),
            ("redis://me@h?password_file=/run/a%20b", "redis://h:6379?password_file=/run/a%20b"),
            (
                "redis+sentinel://me:x@h/m%2Fn/4?sentinel_password=sec@ret&sentinel_user=u",
                "redis+sentinel://h:26379/m%2Fn/4",
            ),
        ] {
            assert_eq!(Target::read(url, RedisOptions::default()).unwrap().public_url(), public, "{url}");
            assert_eq!(Target::read(public, RedisOptions::default()).unwrap().public_url(), public, "{url}");
        }
        for unreadable in ["redis://u:pa/ss@h/0", "redis://u:pa?ss@h/0", "redis://user:1?a=x@h", "redis://h?p%61ss=x"] {
            assert!(Target::read(unreadable, RedisOptions::default()).is_err(), "{unreadable}");
        }
    }

    #[test]
    fn what_others_do_not_see_is_known() {
        for (url, credentials) in [
            ("redis://h?prefix=a", Credentials::None),
            ("redis://me@h", Credentials::Name),
            ("redis://h?password_file=/run/password", Credentials::Name),
            ("redis://:secret@a,b", Credentials::Password),
            ("unix:///run/r.sock?pass=secret", Credentials::Password),
            ("redis+sentinel://h/m?sentinel_password=secret", Credentials::Password),
        ] {
            assert_eq!(Target::read(url, RedisOptions::default()).unwrap().credentials(), credentials, "{url}");
        }
    }

    #[test]
    fn the_password_of_a_file_is_for_the_servers() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "s3cret\n").unwrap();
        let with_file = |url: &str| format!("{url}?password_file={}", file.path().display());
        for url in ["redis://me@h", "redis+sentinel://me@h/m"] {
            let found = info(&with_file(url));
            let redis = found.redis_settings();
            assert_eq!((redis.username(), redis.password()), (Some("me"), Some("s3cret")), "{url}");
        }
        assert!(parse(&with_file("redis://me:other@h"), RedisOptions::default()).is_err());
    }

    proptest! {
        #[test]
        fn no_secret_of_any_url_is_public_and_the_rest_is(
            scheme in select(vec!["redis", "rediss", "valkey", "valkeys", "unix", "redis+sentinel", "rediss+sentinel"]),
            written in odd_urls::written(
                &["pass", "user", "sentinel_password", "sentinel_user", "password"],
                &["prefix=a%40b", "prefix={x}", "prefix=b@c", "timeout=2.5s", "timeout=0.123456789s", "batching=off", "ca=/a%26b", "db=3"],
                &["h", "a:1,b:2", "[::1]:7", "h%41", "H"],
                &["", "/", "/0", "/3", "/m", "/m%2Fn/4"],
            ),
        ) {
            let url = written.url(scheme, "/run/r.sock");
            if let Ok(target) = Target::read(&url, RedisOptions::default()) {
                let public = target.public_url();
                prop_assert!(!odd_urls::has_secret(&public), "{} is shown as {}", url, public);
                let again = Target::read(&public, RedisOptions::default());
                let again = again.unwrap_or_else(|error| panic!("{url} is shown as {public}: {error}"));
                let place = |target: &Target| match &target.place {
                    Place::Hosts(hosts) => (addresses(hosts), database(hosts.first()), String::new()),
                    Place::Sentinels { sentinels, name, primary } => {
                        (addresses(sentinels), database(Some(primary)), name.clone())
                    }
                };
                prop_assert_eq!(place(&again), place(&target));
                let options = RedisOptions { sentinel_user: None, sentinel_password: None, ..target.options };
                prop_assert_eq!(again.options, options, "{} is shown as {}", url, public);
            }
        }
    }

    #[test]
    fn the_rest_is_refused_without_repeating_it() {
        for wrong in [
            "redis:secret",
            "redis://",
            "redis:///0",
            "redis://host:secret",
            "redis://host/secret",
            "redis://host?secret=1",
            "redis://host?timeout=0s",
            "redis://host?timeout=5",
            "redis://host?timeout=5M",
            "redis://host?timeout=secret",
            "redis://host?ca=/secret",
            "redis://host?prefix=%ff",
            "rediss://host?ca=/no/such/secret",
            "rediss://host?cert=/secret",
            "rediss://host/#insecure",
            "redis+sentinel://host",
            "unix:secret",
            "redis://0.0.0.0",
        ] {
            let error = parse(wrong, RedisOptions::default()).err().unwrap_or_else(|| panic!("{wrong} is refused"));
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{wrong}");
            assert!(error.hint().is_some() && !error.to_string().contains("secret"), "{wrong}: {error}");
        }
    }
}
