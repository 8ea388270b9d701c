use std::fmt::Debug;
use std::sync::Arc;

use leasehold::stores::StoreDescriptor;

use crate::server::{Setup, StoreServer};
use crate::{firestore, postgres, redis, sqlite};

/// All stores that suites run over.
pub static STORES: &[StoreUnderTest] = &[sqlite::STORE, redis::STORE, postgres::STORE, firestore::STORE];

/// The stores that suites run over in this build: those of the library's own table that are built
/// in, which are found by the names of their features.
///
/// # Panics
///
/// If the library has a store behind a feature that [`STORES`] does not know: it would go untested.
pub fn stores() -> impl Iterator<Item = &'static StoreUnderTest> {
    let built_in = leasehold::stores::all().into_iter().filter(StoreDescriptor::is_built_in);
    let features: Vec<_> = built_in.filter_map(|store| store.feature).collect();
    for feature in &features {
        assert!(STORES.iter().any(|store| store.name == *feature), "no suite runs over the store {feature}");
    }
    STORES.iter().filter(move |store| features.contains(&store.name))
}

/// One entry of the table: how a store is started, and what not every store can do.
#[derive(Debug)]
pub struct StoreUnderTest {
    /// As the feature is called that it takes.
    pub name: &'static str,
    pub(crate) start: Start,
    /// Makes a store of its own in a server that others in this process use as well, for a store
    /// whose server takes long to start.
    pub(crate) share: Option<fn() -> Arc<dyn RunningStore>>,
    pub(crate) abilities: &'static [Ability],
    /// Whether it has lines, shared locks and permits, and takes several locks at once.
    pub lines: bool,
}

#[derive(Debug)]
pub(crate) enum Start {
    File(fn() -> Arc<dyn RunningStore>),
    Server(fn(&Setup) -> Arc<dyn StoreServer>),
    /// As a server, but for who needs only its URL: a server that runs already, if there is one.
    ServerOr {
        server: fn(&Setup) -> Arc<dyn StoreServer>,
        running: fn() -> Option<Arc<dyn RunningStore>>,
    },
}

/// What a store in a server may be unable to do by its nature. Suites run the cases that are about
/// it on the stores that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Every operation is one request.
    OneRequest,
    /// A Unix socket leads to it.
    UnixSocket,
    /// Its URL can have a password in it.
    PasswordInUrl,
    /// Anybody can wake those who wait for a lock, without ending the lock.
    WokenByAnybody,
    /// One lock can change hands many times a second.
    BusyLocks,
    /// Whoever waits stands in line without asking for it.
    FairByDefault,
    /// The line for a lock stays when a program that knows of no lines releases the lock.
    LineBesideTheLock,
}

/// All that a server of one's own can do.
pub(crate) const EVERYTHING: &[Ability] = &[
    Ability::OneRequest,
    Ability::UnixSocket,
    Ability::PasswordInUrl,
    Ability::WokenByAnybody,
    Ability::BusyLocks,
    Ability::FairByDefault,
    Ability::LineBesideTheLock,
];

/// A store of a test's own, which ends with it.
pub trait RunningStore: Debug + Send + Sync {
    /// The URL, with all that it takes to connect.
    fn url(&self) -> String;

    /// The URL without credentials.
    fn public_url(&self) -> String {
        self.url()
    }
}

impl StoreUnderTest {
    /// A store of its own, ready to be used.
    pub fn start(&self) -> Arc<dyn RunningStore> {
        match self.start {
            Start::File(start) => start(),
            Start::Server(start) => start(&Setup::default()),
            Start::ServerOr { server, running } => running().unwrap_or_else(|| server(&Setup::default())),
        }
    }

    /// A store of its own, perhaps in a server that others in this process use at the same time.
    pub fn share(&self) -> Arc<dyn RunningStore> {
        self.share.map_or_else(|| self.start(), |share| share())
    }

    /// A server of its own, ready to be used.
    pub fn server(&self) -> Arc<dyn StoreServer> {
        self.server_with(&Setup::default())
    }

    /// As [`server`](Self::server), with something special about it.
    pub fn server_with(&self, setup: &Setup) -> Arc<dyn StoreServer> {
        match self.start {
            Start::File(_) => panic!("{} has no server", self.name),
            Start::Server(start) | Start::ServerOr { server: start, .. } => start(setup),
        }
    }

    /// Whether it has a server, which can crash or be cut off.
    pub fn is_server(&self) -> bool {
        !matches!(self.start, Start::File(_))
    }

    /// Whether it can do what not every store can.
    pub fn can(&self, ability: Ability) -> bool {
        self.abilities.contains(&ability)
    }
}
