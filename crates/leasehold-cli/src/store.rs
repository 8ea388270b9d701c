//! Which store, and how to name it to others.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::stores::{Credentials, Migrated, ScratchKeys, StoreDescriptor, credentials};
use leasehold::{Check, Error, Locks};

use crate::config::{self, Config};
use crate::default_store::DefaultStore;
use crate::event;
use crate::exit::{self, Failure};
use crate::options::Common;
use crate::reporter::Reporter;

/// The longest to wait at the end for what goes on in the background.
pub(crate) const CLOSING: Duration = Duration::from_secs(5);

/// The longest to wait after that for the store's files to be put in order.
const TIDYING: Duration = Duration::from_millis(500);

/// The variable that names the store.
pub(crate) const VARIABLE: &str = "LEASEHOLD_STORE";

/// The store to use.
#[derive(Debug)]
pub(crate) struct Store {
    url: String,
    /// What it is called in a configuration file.
    name: Option<String>,
    origin: Origin,
}

/// Who chose the store.
#[derive(Debug)]
pub(crate) enum Origin {
    Option,
    Environment,
    File(PathBuf),
    Default {
        /// Whether nobody has used it so far.
        is_new: bool,
        store: DefaultStore,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Option => f.write_str("from --store"),
            Origin::Environment => write!(f, "from {VARIABLE}"),
            Origin::File(path) => write!(f, "from {}", path.display()),
            Origin::Default { store, .. } => write!(f, "by default, {}", store.scope),
        }
    }
}

impl Store {
    /// The store that was asked for: by the option, the environment, a configuration file; or the
    /// default one. Says what is wrong with the way it was asked for.
    ///
    /// # Errors
    ///
    /// There is no such store, or no place for the default one.
    pub(crate) fn choose(common: &Common, reporter: &Reporter) -> Result<Self, Failure> {
        let store = Self::find(common, reporter)?;
        if let Origin::Default { store, .. } = &store.origin {
            store.make()?;
        }
        Ok(store)
    }

    /// The same store for somebody who only looks: nothing is made.
    ///
    /// # Errors
    ///
    /// There is no such store, or no place for the default one.
    pub(crate) fn find(common: &Common, reporter: &Reporter) -> Result<Self, Failure> {
        let (store, warnings) = Self::asked_for(common)?;
        for warning in &warnings {
            reporter.report(&event::warning(warning));
        }
        reporter.note_store(store.public_url());
        Ok(store)
    }

    fn asked_for(common: &Common) -> Result<(Self, Vec<String>), Failure> {
        if common.store.as_ref().is_some_and(String::is_empty) {
            return Err(Failure::new(exit::USAGE, "--store is empty")
                .hint("give a URL or a name, or leave it out for the default store"));
        }
        let given = common.store.clone();
        let asked = match given {
            Some(store) => Some((store, Origin::Option)),
            None => from_environment()?.map(|store| (store, Origin::Environment)),
        };
        match asked {
            // Whoever has a URL needs no file.
            Some((url, origin)) if url.contains(':') => {
                let told = matches!(origin, Origin::Option) && credentials(&url) == Credentials::Password;
                let warning = told.then(|| ON_COMMAND_LINE.to_owned());
                Ok((Self { url, name: None, origin }, warning.into_iter().collect()))
            }
            Some((name, _)) => Self::named(&name, &config::read_all()?),
            None => {
                let configs = config::read_all()?;
                match configs.iter().find_map(|config| Some((config, config.store.as_ref()?))) {
                    Some((config, url)) if url.contains(':') => {
                        let store = Self { url: config.absolute(url), name: None, origin: config.origin() };
                        Ok((store, config.warning().into_iter().collect()))
                    }
                    Some((_, name)) => Self::named(name, &configs),
                    None => Self::by_default(),
                }
            }
        }
    }

    fn named(name: &str, configs: &[Config]) -> Result<(Self, Vec<String>), Failure> {
        let found = configs.iter().find_map(|config| Some((config, config.url(name)?)));
        let Some((config, url)) = found else {
            // What is no name may be a part of a password.
            let called = if config::is_name(name) { format!("called '{name}'") } else { "of this name".to_owned() };
            let file = config::of_user().unwrap_or_else(|| config::OF_HOST.into());
            return Err(Failure::new(exit::BAD_STORE, format!("there is no store {called}")).hint(format!(
                "give a URL, for example {}, or a name that is in {} or {}",
                examples().join(", "),
                file.display(),
                config::OF_HOST
            )));
        };
        let store = Self { url, name: Some(name.to_owned()), origin: config.origin() };
        Ok((store, config.warning().into_iter().collect()))
    }

    fn by_default() -> Result<(Self, Vec<String>), Failure> {
        let store = DefaultStore::find()?;
        let url = format!("sqlite:{}", store.file.display());
        Ok((Self { url, name: None, origin: Origin::Default { is_new: !store.file.exists(), store } }, Vec::new()))
    }

    /// What to know of the locks that are there, if other users have stores of their own.
    pub(crate) fn scope_warning(&self) -> Option<String> {
        match &self.origin {
            Origin::Default { store, .. } => store.scope.warning(),
            _ => None,
        }
    }

    /// What to know before a lock is taken: that nobody heeds it, or not all who may be thought to.
    /// The latter is said once.
    pub(crate) fn locking_warning(&self) -> Option<String> {
        match &self.origin {
            _ if self.url.starts_with("memory:") => Some(EXCLUDES_NOBODY.to_owned()),
            Origin::Default { is_new: true, store } => store.scope.warning(),
            _ => None,
        }
    }

    /// The store and who chose it, for people.
    pub(crate) fn description(&self) -> String {
        format!("{} ({})", self.public_url(), self.origin)
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
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
        Locks::examine(&self.url_to_examine()).await
    }

    /// Where to examine it: a directory that would only be made for the first lock has its place in
    /// one that is there.
    fn url_to_examine(&self) -> String {
        let Origin::Default { store, .. } = &self.origin else { return self.url.clone() };
        let mut directories = store.file.ancestors().skip(1);
        match directories.find(|directory| directory.is_dir()) {
            Some(there) if Some(there) != store.file.parent() => {
                format!("sqlite:{}", there.join("leasehold-locks.db").display())
            }
            _ => self.url.clone(),
        }
    }

    /// Has the store forget the fences of keys that only we have used.
    ///
    /// # Errors
    ///
    /// The store's.
    pub(crate) async fn forget(&self, keys: &ScratchKeys) -> Result<(), Error> {
        keys.forget(&self.url).await
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

    /// What the command of `run` finds in its environment: the name, which whoever may read the
    /// configuration can use as we do, or the URL.
    pub(crate) fn public_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.public_url())
    }

    /// The URL as others may see it: without user names and passwords, and usable from any
    /// directory.
    pub(crate) fn public_url(&self) -> String {
        let current = std::env::current_dir().unwrap_or_default();
        leasehold::stores::public_url(&leasehold::stores::absolute_url(&self.url, &current))
    }
}

/// What the environment says. Nobody who has set it gets another store by mistake.
fn from_environment() -> Result<Option<String>, Failure> {
    let unreadable = |_| Failure::new(exit::BAD_STORE, format!("{VARIABLE} is not UTF-8"));
    let value = std::env::var_os(VARIABLE).map(OsString::into_string).transpose().map_err(unreadable)?;
    Ok(value.filter(|store| !store.is_empty()))
}

/// # Errors
///
/// As [`Store::choose`] and [`Store::connect`].
pub(crate) async fn open(common: &Common, reporter: &Reporter) -> Result<Locks, Failure> {
    Store::choose(common, reporter)?.connect().await
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

/// Locks in memory are gone with the process that took them.
const EXCLUDES_NOBODY: &str = "locks in memory: exclude nobody, as no other process can see them";

/// Others can read the arguments of every process.
const ON_COMMAND_LINE: &str = "the password in --store can be read by every user of this host, for example with ps: \
    put the URL into LEASEHOLD_STORE or a configuration file, or the password into a file of its own";

/// The help of `--store`: an example of each store.
pub(crate) fn help() -> String {
    format!("Where the locks are, for example {}; or the name of a store [env: {VARIABLE}]", examples().join(", "))
}

/// The same with all the schemes.
pub(crate) fn long_help() -> String {
    let stores = usable().map(|store| {
        let schemes: Vec<_> = store.schemes.iter().map(|scheme| format!("{scheme}:")).collect();
        format!("{} ({})", store.name, schemes.join(", "))
    });
    format!(
        "{}\n\nThe stores of this build: {}.\n\nA name is looked up in $XDG_CONFIG_HOME/leasehold/config.toml or \
         ~/.config/leasehold/config.toml, and in {}, which may also name the store to use by default.\n\n\
         Without all that, the store is a SQLite file: /var/lib/leasehold/locks.db for root, and for everybody \
         if `leasehold init` has made it one for a group; or else one that is for this user alone, \
         $XDG_STATE_HOME/leasehold/locks.db or ~/.local/state/leasehold/locks.db.",
        help(),
        stores.collect::<Vec<_>>().join("; "),
        config::OF_HOST,
    )
}

/// A URL of each store that others can share.
fn examples() -> Vec<&'static str> {
    usable().filter(|store| store.schemes != ["memory"]).map(|store| store.example).collect()
}

fn usable() -> impl Iterator<Item = StoreDescriptor> {
    leasehold::stores::all().into_iter().filter(StoreDescriptor::is_built_in)
}
