//! Which store, and how to name it to others.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::{Check, Locks};

use crate::exit::{self, Failure};
use crate::options::Common;
use crate::text;

/// The longest to wait at the end for what goes on in the background.
pub(crate) const CLOSING: Duration = Duration::from_secs(5);

/// The longest to wait after that for the store's files to be put in order.
#[cfg(feature = "sqlite")]
const TIDYING: Duration = Duration::from_millis(500);

/// The store to use.
#[derive(Debug)]
pub(crate) struct Store {
    url: String,
}

impl Store {
    /// The store that was asked for, or the file of this user.
    ///
    /// # Errors
    ///
    /// There is no place for the file.
    pub(crate) fn choose(common: &Common) -> Result<Self, Failure> {
        let url = match &common.store {
            Some(url) if !url.is_empty() => url.clone(),
            _ => format!("sqlite:{}", default_file()?.display()),
        };
        Ok(Self { url })
    }

    /// The URL, credentials and all.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// # Errors
    ///
    /// The store's.
    pub(crate) async fn connect(&self) -> Result<Locks, Failure> {
        Locks::connect(&self.url).await.map_err(Failure::from)
    }

    /// What the store can tell of itself.
    ///
    /// # Errors
    ///
    /// The store's.
    pub(crate) async fn examine(&self) -> Result<Vec<Check>, Failure> {
        Locks::examine(&self.url).await.map_err(Failure::from)
    }

    /// The URL as the command may see it: without user names and passwords, and usable from any directory.
    pub(crate) fn public_url(&self) -> String {
        let current = std::env::current_dir().unwrap_or_default();
        without_credentials(&absolute(&self.url, &current))
    }
}

/// # Errors
///
/// As [`Store::choose`] and [`Store::connect`].
pub(crate) async fn open(common: &Common) -> Result<Locks, Failure> {
    Store::choose(common)?.connect().await
}

/// Lets what goes on in the background, such as the undoing of a request, come to its end.
pub(crate) async fn close(locks: &Locks, patience: Duration) {
    // What failed was reported to whoever waited for it.
    let _ = tokio::time::timeout(patience, locks.shutdown()).await;
}

/// Lets the store put its files in order, for those who come next. All handles must be gone, or on their way.
pub(crate) fn tidy_up() {
    #[cfg(feature = "sqlite")]
    leasehold::Sqlite::wait_until_closed(TIDYING);
}

fn default_file() -> Result<PathBuf, Failure> {
    let directory = if rustix::process::geteuid().is_root() {
        PathBuf::from("/var/lib/leasehold")
    } else {
        state_directory(std::env::var_os("XDG_STATE_HOME").map(PathBuf::from), std::env::home_dir()).ok_or_else(
            || {
                Failure::new(exit::BAD_STORE, "there is no home directory for the locks")
                    .hint("name a store with --store")
            },
        )?
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|error| {
        let message = format!("cannot create {}: {error}", text::safe(&directory.to_string_lossy()));
        let code = match error.kind() {
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => exit::NOT_ALLOWED,
            _ => exit::BAD_STORE,
        };
        Failure::new(code, message).hint("name another store with --store or LEASEHOLD_STORE")
    })?;
    Ok(directory.join("locks.db"))
}

/// By the XDG rules a relative path is ignored.
fn state_directory(state_home: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let state_home = state_home.filter(|path| path.is_absolute());
    let state_home = state_home.or_else(|| Some(home?.join(".local/state")).filter(|path| path.is_absolute()));
    Some(state_home?.join("leasehold"))
}

/// A file in a relative place is somewhere else for a command that changes its directory.
fn absolute(url: &str, current: &Path) -> String {
    match url.strip_prefix("sqlite:") {
        Some(file) if !file.starts_with('/') => format!("sqlite:{}", current.join(file).display()),
        _ => url.to_owned(),
    }
}

/// The URL without `user:password@` and without parameters that look like secrets. Of a URL that could be read in another way,
/// such as one with a password that is not encoded, only the scheme.
fn without_credentials(url: &str) -> String {
    let scheme = url.split(':').next().unwrap_or_default();
    if matches!(scheme, "sqlite" | "memory") {
        return url.to_owned();
    }
    let (address, parameters) = url.split_once('?').unwrap_or((url, ""));
    let Some((_, rest)) = address.split_once("://") else { return format!("{scheme}:") };
    let place = match rest.rsplit_once('@') {
        Some((_, place)) => place,
        None if may_hide_a_password(rest, parameters) => return format!("{scheme}:"),
        None => rest,
    };
    let kept: Vec<_> =
        parameters.split('&').filter(|parameter| !parameter.is_empty() && is_harmless(parameter)).collect();
    let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
    format!("{scheme}://{place}{query}")
}

/// Whether what looks like hosts and parameters may be a user name and a password with a question mark.
fn may_hide_a_password(place: &str, parameters: &str) -> bool {
    let hosts = place.split('/').next().unwrap_or_default();
    let odd_port = hosts.split(',').any(|host| match host.rsplit_once(':') {
        Some((_, port)) if !host.ends_with(']') => port.parse::<u16>().is_err(),
        _ => false,
    });
    odd_port || parameters.split('&').any(|parameter| parameter.contains('@') && !parameter.contains('='))
}

fn is_harmless(parameter: &str) -> bool {
    let name = parameter.split('=').next().unwrap_or_default().to_ascii_lowercase();
    // These two name a file.
    matches!(name.as_str(), "key" | "sslkey")
        || !["user", "pass", "pwd", "token", "secret", "key", "auth", "cred"].iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_do_not_reach_the_command() {
        let cases = [
            ("redis://user:p@ss@host:6379/0", "redis://host:6379/0"),
            ("postgres://u:p@h/db?sslmode=require&password=x&user=y", "postgres://h/db?sslmode=require"),
            ("postgres://h/db?sslpassword=x", "postgres://h/db"),
            ("redis://host", "redis://host"),
            ("redis://u:pa/ss@h/0", "redis://h/0"),
            ("redis://u:pa?ss@h/0", "redis:"),
            ("redis://u:pa?ss=1@h/0", "redis:"),
            ("redis://user?ss@h/0", "redis:"),
            ("redis://h?prefix=team@app", "redis://h?prefix=team@app"),
            ("redis://a:1,b:2/0?prefix={x}", "redis://a:1,b:2/0?prefix={x}"),
            ("redis://[::1]:6379", "redis://[::1]:6379"),
            ("rediss://h?ca=/a&cert=/b&key=/c", "rediss://h?ca=/a&cert=/b&key=/c"),
            ("unix:///run/r.sock?pass=sec@ret&db=1", "unix:///run/r.sock?db=1"),
            ("redis+sentinel://me:x@h/m?sentinel_password=sec@ret", "redis+sentinel://h/m"),
            ("postgres:host=h password=x", "postgres:"),
            ("sqlite:/var/lib/a@b.db", "sqlite:/var/lib/a@b.db"),
            ("sqlite:///var/lib/a@b.db?synchronous=full", "sqlite:///var/lib/a@b.db?synchronous=full"),
            ("memory:", "memory:"),
        ];
        for (url, public) in cases {
            assert_eq!(without_credentials(url), public);
        }
    }

    #[test]
    fn a_relative_file_is_named_from_the_root() {
        let here = Path::new("/srv/app");
        assert_eq!(absolute("sqlite:locks.db", here), "sqlite:/srv/app/locks.db");
        assert_eq!(absolute("sqlite:/locks.db", here), "sqlite:/locks.db");
        assert_eq!(absolute("redis://host", here), "redis://host");
    }

    #[test]
    fn the_state_directory_follows_xdg() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(state_directory(path("/state"), path("/home/me")), path("/state/leasehold"));
        assert_eq!(state_directory(None, path("/home/me")), path("/home/me/.local/state/leasehold"));
        assert_eq!(state_directory(path("relative"), path("/home/me")), path("/home/me/.local/state/leasehold"));
        assert_eq!(state_directory(None, None), None);
    }
}
