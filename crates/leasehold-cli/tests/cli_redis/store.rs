use std::path::Path;

/// How often each of many processes takes a lock.
pub(crate) const TURNS: usize = 50;

/// How long the lock of a killed holder lasts, but for the tolerance.
pub(crate) const SHORT_TTL: &str = "300ms";

/// Locks in a server of the test's own.
pub(crate) struct Store {
    server: test_servers::Redis,
}

impl Store {
    pub(crate) fn new(_: &Path) -> Self {
        Self { server: test_servers::Redis::start() }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// The URL as the command may see it.
    pub(crate) fn public_url(&self) -> String {
        self.url()
    }
}
