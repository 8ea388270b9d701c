//! The store under test.

use std::sync::Arc;

use leasehold::{Backend, Key, Redis};
use leasehold_conformance::history::{History, What};
use test_servers::Proxy;

pub(crate) async fn connect(url: &str) -> Arc<dyn Backend> {
    Arc::new(Redis::connect(url).await.unwrap())
}

/// The URL of the server behind `proxy`.
pub(crate) fn through(proxy: &Proxy) -> String {
    format!("redis://127.0.0.1:{}", proxy.port())
}

/// A server that forgets its locks ends them all, as an operator would by force: whoever held one may not be alone any
/// more. The checker forgives that to locks asked for before [`over`](Amnesia::over), and nothing else: fences must rise all
/// the same, and locks asked for later exclude each other.
pub(crate) struct Amnesia {
    history: History,
    keys: Vec<Key>,
}

impl Amnesia {
    pub(crate) fn begins(history: &History, keys: impl IntoIterator<Item = Key>) -> Self {
        let keys: Vec<Key> = keys.into_iter().collect();
        keys.iter().for_each(|key| history.record(key.as_str(), "amnesia", What::ForceSent));
        Self { history: history.clone(), keys }
    }

    /// The server has forgotten all that it will forget.
    pub(crate) fn over(self) {
        self.keys.iter().for_each(|key| self.history.record(key.as_str(), "amnesia", What::ForceAnswered));
    }
}

/// A server that the cuts are about.
pub(crate) type Server = test_servers::Redis;

pub(crate) async fn start() -> Server {
    Server::start()
}

/// What every operation says.
pub(crate) const OPERATION: &str = "EVALSHA";

/// What only the connection for wake-ups says. With its length, so that it is not the end of another command.
pub(crate) const SUBSCRIBE: &str = "$9\r\nSUBSCRIBE\r\n";
