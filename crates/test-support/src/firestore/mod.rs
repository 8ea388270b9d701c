//! The store in a Firestore database.

mod credentials;
mod emulator;
mod look;
mod other;
mod token_server;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use leasehold::LockId;
use serde_json::json;
use test_servers::{Firestore, FirestoreFault, Proxy, Server, eventually};

pub use emulator::EMULATOR;
pub use look::{counter_of, integer, last_fence, lock_of, now, set_last_fence, snapshot, text};
pub use other::Other;

use crate::breakage::{Breakage, Broken, Request};
use crate::server::{Setup, StoreServer};
use crate::stores::{RunningStore, Start, StoreUnderTest};
use crate::{Foreign, OtherLibrary};

/// An operation is several requests, there is no socket, who we are is in a file, nobody is woken
/// but by the end of the lock, and a document can be changed about once a second.
pub(crate) const STORE: StoreUnderTest = StoreUnderTest {
    name: "firestore",
    start: Start::ServerOr { server: start, running: emulator::running },
    share: None,
    abilities: &[],
    lines: true,
};

fn start(setup: &Setup) -> Arc<dyn StoreServer> {
    let mut server = Firestore::builder();
    // Google's servers have both, emulators neither.
    if setup.tls || setup.password.is_some() {
        server = server.tls().credentials();
    }
    if setup.durable {
        server = server.durable();
    }
    Arc::new(server.start())
}

/// The URL of a server that speaks TLS and asks who we are.
fn endpoint(server: &Firestore, address: SocketAddr, authority: &Path, credentials: &Path) -> String {
    let (authority, credentials) = (authority.display(), credentials.display());
    format!("firestore://{}?endpoint={address}&ca={authority}&credentials={credentials}", server.project())
}

impl RunningStore for Firestore {
    /// There is no secret in it, but the name of the file that has one.
    fn url(&self) -> String {
        Firestore::url(self)
    }
}

#[async_trait]
impl StoreServer for Firestore {
    fn server(&self) -> &Server {
        self
    }

    fn url_at(&self, address: SocketAddr, _: Option<&str>) -> String {
        self.url().replace(&self.address().to_string(), &address.to_string())
    }

    fn frugal_url(&self) -> String {
        self.url()
    }

    fn socket_urls(&self) -> Vec<String> {
        panic!("Firestore has no Unix socket")
    }

    fn missing_socket_url(&self) -> String {
        panic!("Firestore has no Unix socket")
    }

    fn wrong_credentials(&self, password: &str) -> Vec<String> {
        let files = credentials::useless(self, password).into_iter();
        files.map(|file| endpoint(self, self.address(), &self.ca_file(), &file)).collect()
    }

    /// The role `roles/datastore.user`, which has no parts.
    fn least_permissions(&self, _: &str) -> String {
        self.url()
    }

    fn tls_urls(&self, authority: &Path, _: Option<&str>) -> Vec<String> {
        vec![endpoint(self, self.address(), authority, &credentials::key_file(self))]
    }

    fn authority(&self) -> PathBuf {
        self.ca_file()
    }

    fn unusable_tls_urls(&self, garbage: &Path) -> Vec<String> {
        let key_file = credentials::key_file(self);
        [garbage, Path::new("/no/such/file")].map(|file| endpoint(self, self.address(), file, &key_file)).to_vec()
    }

    fn now(&self) -> u64 {
        now(self)
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        snapshot(self)
    }

    fn set_fence_counter(&self, key: &str, last: &str) {
        set_last_fence(self, key, last.parse().unwrap());
    }

    fn fence_counter(&self, key: &str) -> String {
        last_fence(self, key).unwrap().to_string()
    }

    fn forget_fence_counters(&self) {
        let documents = self.documents();
        documents.keys().filter(|path| path.starts_with("fence_counters/")).for_each(|path| self.delete_document(path));
    }

    /// Those who listen are told nothing any more until they are [ended](Self::end_listeners).
    fn remove_lock(&self, key: &str, _: &LockId) {
        self.mute_streams(true);
        self.delete_document(&lock_of(key));
    }

    fn are_awaited(&self, keys: &[&str]) -> bool {
        let expected: BTreeSet<String> = keys.iter().map(|key| lock_of(key)).collect();
        self.listened_documents().into_iter().collect::<BTreeSet<_>>() == expected
    }

    fn connections(&self) -> usize {
        usize::try_from(Firestore::connections(self)).unwrap()
    }

    fn listeners(&self) -> usize {
        usize::try_from(self.streams()).unwrap()
    }

    fn end_listeners(&self) -> usize {
        let ended = self.close_streams("UNAVAILABLE");
        self.mute_streams(false);
        usize::try_from(ended).unwrap()
    }

    /// Those that listen as well: the server does not tell them apart.
    fn end_connections(&self) -> usize {
        usize::try_from(self.close_connections(1.0)).unwrap()
    }

    /// Of tokens only those who give them out know.
    fn requests(&self) -> u64 {
        let calls = self.take_counts().calls.into_iter();
        calls.filter(|(name, _)| name != "Token").map(|(_, count)| count).sum()
    }

    fn wake(&self, _: &str, _: u32) {
        panic!("nobody is woken but by the end of the lock")
    }

    /// Every message is a commit here, so they are fewer, and as much larger.
    fn flood(&self, messages: u32) {
        const FEWER: u32 = 20;
        let (streams, now, messages) = (self.streams(), now(self), messages / FEWER);
        let (key, padding) = ("x".repeat(400), "x".repeat(10_000));
        self.take_counts();
        let command = |number: u32| {
            let fence = text(&format!("{number:015}"));
            let fields = json!({
                "fence": fence, "keyDebug": text(&key),
                "takenFence": fence, "takenAtMs": integer(now), "takenHow": text("stolen"), "padding": text(&padding),
            });
            let path = format!("{}/fence_counters/flood-{}", self.root(), number % 100);
            json!({ "command": "set_document", "path": path, "fields": fields })
        };
        self.control_all((0..messages).map(command));
        eventually("the server has sent everything", || self.counts().reads >= streams * u64::from(messages));
    }

    /// What is said in HTTP/2 is hard to read for a proxy, so that the server itself makes trouble.
    fn break_next(&self, _: &Proxy, request: Request, how: Breakage) -> Broken<'_> {
        let fault = match how {
            Breakage::CutBefore => FirestoreFault::close_connection(),
            Breakage::CutAfter => FirestoreFault::close_connection().after(),
            Breakage::Stall => FirestoreFault::silence().after(),
        };
        let fault = match request {
            Request::Change => fault.on("Commit"),
            Request::Question => fault,
            Request::Subscription => fault.on("Listen"),
        };
        let before = self.fault_hits();
        self.inject(fault.times(1));
        Broken::new(move || {
            eventually("something goes wrong", || self.fault_hits() > before);
            true
        })
    }

    /// A look, a beginning, two reads and a commit; and a query and a commit.
    fn requests_of_a_hold(&self) -> u64 {
        7
    }

    /// Up to 30 are a question and a request to write.
    fn locks_in_a_request(&self) -> u64 {
        8
    }

    fn checks(&self) -> &'static [&'static str] {
        &["database", "index", "clock", "listening"]
    }

    fn shown(&self) -> &str {
        self.project()
    }

    fn foreign_styles(&self) -> usize {
        written::STYLES.len()
    }

    fn write_foreign(&self, key: &str, held_for: u64, left: i64, style: usize) -> Foreign {
        written::write(self, key, held_for, left, style)
    }

    async fn other_library(&self) -> Box<dyn OtherLibrary + '_> {
        Box::new(Other::connect(self).await)
    }
}
