//! The configuration files: stores with names, and the one to use if nobody says which.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use leasehold::stores::{Credentials, absolute_url, credentials};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::exit::{self, Failure};
use crate::store::Origin;

/// The file for everybody on this host.
pub(crate) const OF_HOST: &str = "/etc/leasehold/config.toml";

/// Nobody writes that many stores down.
const LONGEST: u64 = 1024 * 1024;

const KNOWN: &str = "the known ones are: store, and [stores] with a line NAME = \"URL\" for each";

/// What one file says.
#[derive(Debug)]
pub(crate) struct Config {
    path: PathBuf,
    /// The store to use by default: a name or a URL.
    pub(crate) store: Option<String>,
    stores: BTreeMap<String, String>,
    /// Whether others may read it.
    is_readable: bool,
}

/// The files that there are: that of this user first, which counts before that of the host.
///
/// # Errors
///
/// One of them cannot be used.
pub(crate) fn read_all() -> Result<Vec<Config>, Failure> {
    let files = of_user().into_iter().chain([PathBuf::from(OF_HOST)]);
    files.filter_map(|path| Config::read(path).transpose()).collect()
}

/// Where the file of this user would be.
pub(crate) fn of_user() -> Option<PathBuf> {
    let config_home = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let directory = xdg_directory(config_home, std::env::home_dir(), ".config")?;
    Some(directory.join("config.toml"))
}

/// Our directory below one that the XDG rules name, or below a part of the home directory. By those
/// rules a relative path is ignored.
pub(crate) fn xdg_directory(named: Option<PathBuf>, home: Option<PathBuf>, in_home: &str) -> Option<PathBuf> {
    let named = named.filter(|path| path.is_absolute());
    let base = named.or_else(|| Some(home?.join(in_home)).filter(|path| path.is_absolute()));
    Some(base?.join("leasehold"))
}

/// Whether this can be the name of a store: URLs have a colon, names have none.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

impl Config {
    /// The URL of a store with a name.
    pub(crate) fn url(&self, name: &str) -> Option<String> {
        self.stores.get(name).map(|url| self.absolute(url))
    }

    /// A URL of this file: what it names is named from where the file is.
    pub(crate) fn absolute(&self, url: &str) -> String {
        absolute_url(url, self.path.parent().unwrap_or(Path::new("/")))
    }

    pub(crate) fn origin(&self) -> Origin {
        Origin::File(self.path.clone())
    }

    /// What is wrong with keeping a password here, if one is.
    pub(crate) fn warning(&self) -> Option<String> {
        let mut urls = self.stores.values().chain(&self.store);
        let is_told = self.is_readable && urls.any(|url| credentials(url) == Credentials::Password);
        is_told.then(|| format!("others may read the password in {}; chmod 600 helps", self.path.display()))
    }

    fn read(path: PathBuf) -> Result<Option<Self>, Failure> {
        // Before it is opened, which would wait for somebody to write if it is a pipe.
        let found = match std::fs::metadata(&path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            // A home directory that is not for us is as good as none.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && of_user().as_ref() == Some(&path) => {
                return Ok(None);
            }
            found => found.map_err(|error| unusable(&path, &error.to_string()))?,
        };
        check(&found).map_err(|why| unusable(&path, why))?;
        let mut file = File::open(&path).map_err(|error| unusable(&path, &error.to_string()))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|error| unusable(&path, &error.to_string()))?;
        let mut config = Self { path, store: None, stores: BTreeMap::new(), is_readable: found.mode() & 0o044 != 0 };
        config.parse(&text)?;
        Ok(Some(config))
    }

    fn parse(&mut self, text: &str) -> Result<(), Failure> {
        let at = |offset: usize| 1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
        // No message repeats a value, which may be a password.
        let wrong = |line: usize, why: &str| unusable(&self.path, &format!("line {line}: {}", why.trim()));
        let table = DeTable::parse(text)
            .map_err(|error| wrong(at(error.span().map_or(0, |span| span.start)), error.message()))?;
        let text_of = |value: &Spanned<DeValue<'_>>, what: &str| match value.get_ref().as_str() {
            Some(text) if !text.is_empty() => Ok(text.to_owned()),
            _ => Err(wrong(at(value.span().start), &format!("{what} is a text in quotes"))),
        };
        let (mut default, mut stores) = (None, BTreeMap::new());
        for (key, value) in table.get_ref() {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("store", _) => default = Some(text_of(value, "store")?),
                ("stores", DeValue::Table(named)) => {
                    for (name, url) in named {
                        if !is_name(name.get_ref()) {
                            let why = "the name of a store has only letters, digits, - and _";
                            return Err(wrong(at(name.span().start), why));
                        }
                        stores.insert(name.get_ref().to_string(), text_of(url, "the URL of a store")?);
                    }
                }
                ("stores", _) => return Err(wrong(at(value.span().start), "stores is a table: [stores]")),
                (unknown, _) => {
                    let why = format!("unknown key '{unknown}'");
                    return Err(wrong(at(key.span().start), &why).hint(KNOWN));
                }
            }
        }
        (self.store, self.stores) = (default, stores);
        Ok(())
    }
}

/// Whoever may write the file chooses where we look for locks, and who is told our password.
fn check(found: &Metadata) -> Result<(), &'static str> {
    let us = rustix::process::geteuid().as_raw();
    if !found.is_file() {
        Err("it is no regular file")
    } else if found.uid() != 0 && found.uid() != us {
        Err("it belongs to somebody else")
    } else if found.mode() & 0o022 != 0 {
        Err("others may write it; chmod go-w helps")
    } else if found.len() > LONGEST {
        Err("it is too long")
    } else {
        Ok(())
    }
}

fn unusable(path: &Path, why: &str) -> Failure {
    Failure::new(exit::BAD_STORE, format!("cannot use {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Config, String> {
        let mut config = Config { path: "/etc/c.toml".into(), store: None, stores: BTreeMap::new(), is_readable: true };
        config.parse(text).map_err(|failure| failure.message)?;
        Ok(config)
    }

    #[test]
    fn stores_have_names_and_one_is_the_default() {
        let config = parsed("store = \"prod\"\n[stores]\nprod = \"redis://h\"\nhere = \"sqlite:locks.db\"\n").unwrap();
        assert_eq!(config.store.as_deref(), Some("prod"));
        assert_eq!(config.url("prod").as_deref(), Some("redis://h"));
        assert_eq!(config.url("here").as_deref(), Some("sqlite:/etc/locks.db"), "beside the file");
        assert_eq!(config.url("other"), None);
        assert_eq!(config.warning(), None);
    }

    #[test]
    fn errors_tell_the_line_and_repeat_no_value() {
        for (text, expected) in [
            ("\nstoer = \"s3cret\"\n", "line 2: unknown key 'stoer'"),
            ("store = 7\n", "line 1: store is a text in quotes"),
            ("\n\nstores = \"s3cret\"\n", "line 3: stores is a table"),
            ("[stores]\nprod = { url = \"s3cret\" }\n", "line 2: the URL of a store is a text"),
            ("[stores]\n\"a b\" = \"s3cret\"\n", "line 2: the name of a store"),
            ("[stores]\nprod = redis://:s3cret@h\n", "line 2: "),
            ("store = \"a\"\nstore = \"s3cret\"\n", "line 2: "),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
            assert!(!error.contains("s3cret") && error.starts_with("cannot use /etc/c.toml: "), "{error}");
        }
    }

    #[test]
    fn a_password_that_others_may_read_is_warned_of() {
        let with_password = "[stores]\nprod = \"redis://:s3cret@h\"\n";
        let mut config = parsed(with_password).unwrap();
        assert!(config.warning().is_some_and(|warning| !warning.contains("s3cret")));
        config.is_readable = false;
        assert_eq!(config.warning(), None);
    }

    #[test]
    fn directories_follow_xdg() {
        let path = |text: &str| Some(PathBuf::from(text));
        let state = |named, home| xdg_directory(named, home, ".local/state");
        assert_eq!(state(path("/state"), path("/home/me")), path("/state/leasehold"));
        assert_eq!(state(None, path("/home/me")), path("/home/me/.local/state/leasehold"));
        assert_eq!(state(path("relative"), path("/home/me")), path("/home/me/.local/state/leasehold"));
        assert_eq!(state(None, None), None);
    }
}
