use std::path::Path;
use std::process::Command;

/// How often each of many processes takes a lock. Each is a process with connections of its own, and the server starts a process for each connection.
pub(crate) const TURNS: usize = 15;

/// How long the lock of a killed holder lasts, but for the tolerance. The first renewal takes a new connection, for which the server starts a process.
pub(crate) const SHORT_TTL: &str = "1s";

/// Locks in a server of the test's own.
pub(crate) struct Store {
    server: test_servers::Postgres,
}

impl Store {
    pub(crate) fn new(_: &Path) -> Self {
        let server = test_servers::Postgres::start();
        let mut migrate = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        let done = migrate.args(["migrate", "--store", &server.url()]).status().unwrap();
        assert!(done.success(), "the tables are made");
        Self { server }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// The URL as the command may see it.
    pub(crate) fn public_url(&self) -> String {
        self.url().replace("postgres@", "")
    }
}
