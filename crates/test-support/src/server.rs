use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use async_trait::async_trait;
use leasehold::LockId;
use test_servers::{Proxy, Server};

use crate::breakage::{Breakage, Broken, Request};
use crate::stores::RunningStore;
use crate::{Foreign, OtherLibrary};

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

    /// Has the next request of this kind that comes through the proxy go wrong.
    fn break_next(&self, proxy: &Proxy, request: Request, how: Breakage) -> Broken<'_>;

    /// How many requests it takes to acquire a free lock and to release it.
    fn requests_of_a_hold(&self) -> u64 {
        2
    }

    /// For how many locks one request does something at least, when there are many of them.
    fn locks_in_a_request(&self) -> u64 {
        16
    }

    /// What an examination looks at, by name, besides what is the same for all stores.
    fn checks(&self) -> &'static [&'static str];

    /// What a handle shows of where its locks are.
    fn shown(&self) -> &str {
        "syncguard"
    }

    /// In how many ways the other library may write the same lock.
    fn foreign_styles(&self) -> usize;

    /// Writes a lock of the other library by hand: held for so many milliseconds, with `left` of
    /// them to go.
    fn write_foreign(&self, key: &str, held_for: u64, left: i64, style: usize) -> Foreign;

    /// A process that uses the other library.
    async fn other_library(&self) -> Box<dyn OtherLibrary + '_>;
}
