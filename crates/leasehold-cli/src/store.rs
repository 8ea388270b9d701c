//! Which store, and how to name it to others.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::stores::{Migrated, StoreDescriptor};
use leasehold::{Check, Error, Locks};

use crate::exit::{self, Failure};
use crate::options::Common;

/// The longest to wait at the end for what goes on in the background.
pub(crate) const CLOSING: Duration = Duration::from_secs(5);

/// The longest to wait after that for the store's files to be put in order.
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
        let store = Self::find(common)?;
        if !is_named(common) {
            make_directory(&default_directory()?)?;
        }
        Ok(store)
    }

    /// The same store for somebody who only looks: nothing is made.
    ///
    /// # Errors
    ///
    /// There is no place for the file.
    pub(crate) fn find(common: &Common) -> Result<Self, Failure> {
        let url = match &common.store {
            Some(url) if !url.is_empty() => url.clone(),
            _ => format!("sqlite:{}", default_directory()?.join("locks.db").display()),
        };
        Ok(Self { url })
    }

    /// Where to examine it: a directory that would only be made for the first lock has its place in
    /// one that is there.
    ///
    /// # Errors
    ///
    /// There is no place for the file.
    pub(crate) fn to_examine(common: &Common) -> Result<Self, Failure> {
        let store = Self::find(common)?;
        if is_named(common) {
            return Ok(store);
        }
        let directory = default_directory()?;
        match directory.ancestors().find(|ancestor| ancestor.is_dir()) {
            Some(there) if there != directory => {
                Ok(Self { url: format!("sqlite:{}", there.join("leasehold-locks.db").display()) })
            }
            _ => Ok(store),
        }
    }

    /// A handle that only looks, for which nothing is made.
    ///
    /// # Errors
    ///
    /// The store's.
    pub(crate) async fn look(&self) -> Result<Locks, Failure> {
        Locks::connect_read_only(&self.url).await.map_err(Failure::from)
    }

    /// # Errors
    ///
    /// The store's.
    pub(crate) async fn connect(&self) -> Result<Locks, Failure> {
        self.try_connect().await.map_err(Failure::from)
    }

    /// As [`connect`](Store::connect), for those who look at the error.
    ///
    /// # Errors
    ///
    /// The store's.
    pub(crate) async fn try_connect(&self) -> Result<Locks, Error> {
        Locks::connect(&self.url).await
    }

    /// Whether locks work there, and what could break them.
    ///
    /// # Errors
    ///
    /// The store cannot be reached at all.
    pub(crate) async fn examine(&self) -> Result<Vec<Check>, Error> {
        Locks::examine(&self.url).await
    }

    /// Makes what the store needs.
    ///
    /// # Errors
    ///
    /// The store's.
    pub(crate) async fn migrate(&self) -> Result<Migrated, Failure> {
        Locks::migrate(&self.url).await.map_err(Failure::from)
    }

    /// What to know before [`migrate`](Store::migrate) is run.
    ///
    /// # Errors
    ///
    /// The store's.
    pub(crate) async fn migration_warnings(&self) -> Result<Vec<String>, Failure> {
        Locks::migration_warnings(&self.url).await.map_err(Failure::from)
    }

    /// What [`migrate`](Store::migrate) would run.
    ///
    /// # Errors
    ///
    /// The URL is wrong.
    pub(crate) fn migration(&self) -> Result<Option<String>, Failure> {
        Locks::migration(&self.url).map_err(Failure::from)
    }

    /// The URL as the command may see it: without user names and passwords, and usable from any
    /// directory.
    pub(crate) fn public_url(&self) -> String {
        let current = std::env::current_dir().unwrap_or_default();
        leasehold::stores::public_url(&leasehold::stores::absolute_url(&self.url, &current))
    }
}

/// # Errors
///
/// As [`Store::choose`] and [`Store::connect`].
pub(crate) async fn open(common: &Common) -> Result<Locks, Failure> {
    Store::choose(common)?.connect().await
}

/// Lets what goes on in the background, such as the undoing of a request, come to its end.
pub(crate) async fn close(locks: &Locks, timeout: Duration) {
    // What failed was reported to whoever waited for it.
    let _ = tokio::time::timeout(timeout, locks.shutdown()).await;
}

/// Lets the store put its files in order, for those who come next. All handles must be gone, or on
/// their way.
pub(crate) fn tidy_up() {
    leasehold::stores::wait_until_closed(TIDYING);
}

/// The help of `--store`: an example of each store.
pub(crate) fn help() -> String {
    let examples: Vec<_> = usable().map(|store| store.example).collect();
    format!("Where the locks are, for example {}", examples.join(", "))
}

/// The same with all the schemes.
pub(crate) fn long_help() -> String {
    let stores = usable().map(|store| {
        let schemes: Vec<_> = store.schemes.iter().map(|scheme| format!("{scheme}:")).collect();
        format!("{} ({})", store.name, schemes.join(", "))
    });
    format!(
        "{}\n\nThe stores of this build: {}.\n\nBy default a SQLite file for this user: \
         $XDG_STATE_HOME/leasehold/locks.db or ~/.local/state/leasehold/locks.db; for root \
         /var/lib/leasehold/locks.db.",
        help(),
        stores.collect::<Vec<_>>().join("; ")
    )
}

fn usable() -> impl Iterator<Item = StoreDescriptor> {
    leasehold::stores::all().into_iter().filter(StoreDescriptor::is_built_in)
}

/// Whether somebody named a store.
fn is_named(common: &Common) -> bool {
    common.store.as_ref().is_some_and(|url| !url.is_empty())
}

fn default_directory() -> Result<PathBuf, Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/leasehold"));
    }
    state_directory(std::env::var_os("XDG_STATE_HOME").map(PathBuf::from), std::env::home_dir()).ok_or_else(|| {
        Failure::new(exit::BAD_STORE, "there is no home directory for the locks").hint("name a store with --store")
    })
}

fn make_directory(directory: &Path) -> Result<(), Failure> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|error| {
        let message = format!("cannot create {}: {error}", directory.display());
        let code = match error.kind() {
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => exit::NOT_ALLOWED,
            _ => exit::BAD_STORE,
        };
        Failure::new(code, message).hint("name another store with --store or LEASEHOLD_STORE")
    })
}

/// By the XDG rules a relative path is ignored.
fn state_directory(state_home: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let state_home = state_home.filter(|path| path.is_absolute());
    let state_home = state_home.or_else(|| Some(home?.join(".local/state")).filter(|path| path.is_absolute()));
    Some(state_home?.join("leasehold"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_follows_xdg() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(state_directory(path("/state"), path("/home/me")), path("/state/leasehold"));
        assert_eq!(state_directory(None, path("/home/me")), path("/home/me/.local/state/leasehold"));
        assert_eq!(state_directory(path("relative"), path("/home/me")), path("/home/me/.local/state/leasehold"));
        assert_eq!(state_directory(None, None), None);
    }
}
