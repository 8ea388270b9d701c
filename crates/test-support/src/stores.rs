use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold::LockId;
use leasehold::stores::StoreDescriptor;
use test_servers::Server;

use crate::{Foreign, OtherLibrary, postgres, redis, sqlite};

/// All stores that suites run over.
pub static STORES: &[StoreUnderTest] = &[sqlite::STORE, redis::STORE, postgres::STORE];

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

/// One entry of the table: how a store is started.
#[derive(Debug)]
pub struct StoreUnderTest {
    /// As the feature is called that it takes.
    pub name: &'static str,
    pub(crate) start: Start,
}

#[derive(Debug)]
pub(crate) enum Start {
    File(fn() -> Arc<dyn RunningStore>),
    Server(fn(&Setup) -> Arc<dyn StoreServer>),
}

/// What a server is to be like. As it is, whatever is quickest.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Demands this password.
    pub password: Option<&'static str>,
    /// Speaks TLS as well.
    pub tls: bool,
    /// Forgets nothing in a crash.
    pub durable: bool,
}

/// A store of a test's own, which ends with it.
pub trait RunningStore: Debug + Send + Sync {
    /// The URL, with all that it takes to connect.
    fn url(&self) -> String;

    /// The URL without credentials.
    fn public_url(&self) -> String {
        self.url()
    }
}

/// A store in a server of its own, as far as suites look into it and break it.
#[async_trait]
pub trait StoreServer: RunningStore {
    /// To stop, kill, pause and restart.
    fn server(&self) -> &Server;

    /// The URL of the same store at another address, such as that of a proxy, with a password if
    /// there is to be one.
    fn url_at(&self, address: SocketAddr, password: Option<&str>) -> String;

    /// The URL of a handle that makes do with one connection each for operations, renewals and
    /// wake-ups.
    fn frugal_url(&self) -> String;

    /// URLs that lead through the Unix socket.
    fn socket_urls(&self) -> Vec<String>;

    /// A URL that leads to a socket that does not exist.
    fn missing_socket_url(&self) -> String;

    /// URLs with passwords and users that are wrong, given the right password.
    fn wrong_credentials(&self, password: &str) -> Vec<String>;

    /// The URL of a user who has only the permissions that the documentation asks for, with this
    /// password.
    fn least_permissions(&self, password: &str) -> String;

    /// URLs that demand TLS, whether the server speaks it or not, and trust the authority whose
    /// certificate is in this file. With a password if there is to be one.
    fn tls_urls(&self, authority: &Path, password: Option<&str>) -> Vec<String>;

    /// The certificate of the authority that clients have to trust.
    fn authority(&self) -> std::path::PathBuf;

    /// URLs that demand TLS, with files for it that cannot be used, such as this one.
    fn unusable_tls_urls(&self, garbage: &Path) -> Vec<String>;

    /// The server's clock, in milliseconds.
    fn now(&self) -> u64;

    /// Everything that is stored for locks, by name.
    fn snapshot(&self) -> BTreeMap<String, String>;

    /// Makes the last fence of a key be this number, as the store writes it.
    fn set_fence_counter(&self, key: &str, last: &str);

    /// The last fence of a key, as the store writes it.
    fn fence_counter(&self, key: &str) -> String;

    /// Forgets the last fences of all keys.
    fn forget_fence_counters(&self);

    /// Removes a lock behind everybody's back: nobody is told.
    fn remove_lock(&self, key: &str, id: &LockId);

    /// Whether these keys are waited for, and no others.
    fn are_awaited(&self, keys: &[&str]) -> bool;

    /// How many connections the handles of all tests have.
    fn connections(&self) -> usize;

    /// How many of them are there to listen.
    fn listeners(&self) -> usize;

    /// Ends those that listen. Returns how many.
    fn end_listeners(&self) -> usize;

    /// Ends some of those that do not listen, or all. Returns how many.
    fn end_connections(&self) -> usize;

    /// How many requests clients sent since this was asked last.
    fn requests(&self) -> u64;

    /// Wakes those who wait for a key so many times, as a stranger could: one after the other, a
    /// few milliseconds apart.
    fn wake(&self, key: &str, times: u32);

    /// Tells all who listen of so many locks that were taken, as a stranger could, in half a
    /// kilobyte each. Returns when the server has sent everything.
    fn flood(&self, messages: u32);

    /// Bytes that every operation sends, and nothing else does.
    fn operation_bytes(&self) -> &'static str;

    /// Bytes that only a connection that listens sends, to wait for a key.
    fn subscribe_bytes(&self) -> &'static str;

    /// In how many ways the other library may write the same lock.
    fn foreign_styles(&self) -> usize;

    /// Writes a lock of the other library by hand: held for so many milliseconds, with `left` of
    /// them to go.
    fn write_foreign(&self, key: &str, held_for: u64, left: i64, style: usize) -> Foreign;

    /// A process that uses the other library.
    async fn other_library(&self) -> Box<dyn OtherLibrary + '_>;
}

impl StoreUnderTest {
    /// A store of its own, ready to be used.
    pub fn start(&self) -> Arc<dyn RunningStore> {
        match self.start {
            Start::File(start) => start(),
            Start::Server(start) => start(&Setup::default()),
        }
    }

    /// A server of its own, ready to be used.
    pub fn server(&self) -> Arc<dyn StoreServer> {
        self.server_with(&Setup::default())
    }

    /// As [`server`](Self::server), with something special about it.
    pub fn server_with(&self, setup: &Setup) -> Arc<dyn StoreServer> {
        match self.start {
            Start::File(_) => panic!("{} has no server", self.name),
            Start::Server(start) => start(setup),
        }
    }

    /// Whether it has a server, which can crash or be cut off.
    pub fn is_server(&self) -> bool {
        matches!(self.start, Start::Server(_))
    }
}
