//! PostgreSQL: one server.

mod builder;
mod programs;
mod psql;
mod template;

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

pub use builder::PostgresBuilder;
pub(crate) use psql::Psql;

use crate::account::Account;
use crate::certificates::Certificates;
use crate::process_tree::{descendants, is_dead};
use crate::server::{Server, expect};
use psql::APPLICATION;

/// The superuser, and the database that everybody has.
const POSTGRES: &str = "postgres";

/// One private PostgreSQL server, killed and forgotten when it is dropped. As every [`Server`] it
/// can be stopped, killed, paused and restarted.
///
/// The newest version that Debian has installed, or else the one on the path; 14 is the oldest that
/// will do. If this process is root's, the server runs as `postgres` or `nobody`.
#[derive(Debug)]
pub struct Postgres {
    server: Server,
    psql: Psql,
    account: Account,
    password: Option<String>,
    certificates: Option<Certificates>,
}

impl Postgres {
    /// Starts a server with an empty database, as durable as PostgreSQL is. When this returns it
    /// takes connections.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is not installed, or does not start in time; the message has the end of its
    /// log.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Starts a server with more settings, such as `[("max_connections", "5")]`.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    #[track_caller]
    pub fn with(settings: &[(&str, &str)]) -> Self {
        settings.iter().fold(Self::builder(), |builder, (name, value)| builder.setting(name, value)).start()
    }

    /// Starts saying what the server is to be like.
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::default()
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`: the superuser's, with the password if there
    /// is one.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_as(POSTGRES, self.password.as_deref().unwrap_or_default())
    }

    /// The URL for another user. An empty password is left out. Neither is escaped.
    #[must_use]
    pub fn url_as(&self, user: &str, password: &str) -> String {
        let colon = if password.is_empty() { "" } else { ":" };
        format!("{POSTGRES}://{user}{colon}{password}@{}/{POSTGRES}", self.address())
    }

    /// The superuser's URL with an `sslmode`, such as `verify-full`, and the authority to trust as
    /// `sslrootcert`.
    ///
    /// # Panics
    ///
    /// If the server was not asked to speak TLS.
    #[must_use]
    #[track_caller]
    pub fn tls_url(&self, sslmode: &str) -> String {
        format!("{}?sslmode={sslmode}&sslrootcert={}", self.url(), self.ca_file().display())
    }

    /// The certificate of the authority that a client has to trust.
    ///
    /// # Panics
    ///
    /// If the server was not asked to speak TLS.
    #[must_use]
    #[track_caller]
    pub fn ca_file(&self) -> PathBuf {
        let certificates = self.certificates.as_ref();
        certificates.unwrap_or_else(|| panic!("this server was not asked to speak TLS")).ca_file()
    }

    /// The directory of the Unix socket, which clients take for a host name. Only root and the
    /// server's own account get in.
    #[must_use]
    pub fn socket_dir(&self) -> &Path {
        &self.psql.socket_dir
    }

    /// The process ids of the postmaster and of all that it has started: one for each connection,
    /// even one that is just ending, and those that work for all.
    ///
    /// # Panics
    ///
    /// If the server was stopped or killed.
    #[must_use]
    #[track_caller]
    pub fn pids(&self) -> Vec<u32> {
        let postmaster = self.pid();
        let children = descendants(postmaster).into_iter().filter(|pid| !is_dead(*pid));
        std::iter::once(postmaster).chain(children).collect()
    }

    /// Runs SQL with `psql` as the superuser, on a connection of its own, statement by statement,
    /// and returns what it prints: values between bars, rows on lines.
    ///
    /// # Panics
    ///
    /// If a statement fails, or the server cannot be reached in time.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> String {
        self.sql_as(POSTGRES, sql)
    }

    /// As [`sql`](Self::sql), as another user. It comes through the Unix socket, which demands no
    /// password.
    ///
    /// # Panics
    ///
    /// As [`sql`](Self::sql).
    #[track_caller]
    pub fn sql_as(&self, user: &str, sql: &str) -> String {
        self.psql.run(user, POSTGRES, &["-t"], sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// As [`sql`](Self::sql), for statements that may fail.
    ///
    /// # Errors
    ///
    /// What `psql` complains of.
    pub fn try_sql(&self, sql: &str) -> Result<String, String> {
        self.psql.run(POSTGRES, POSTGRES, &["-t"], sql)
    }

    /// How often statements were called whose text is `LIKE` the pattern, since the start or the
    /// last `SELECT pg_stat_statements_reset()`. In the text, `$1` and so on stand for constants.
    ///
    /// # Panics
    ///
    /// As [`sql`](Self::sql), or if the extension `pg_stat_statements` is not installed; Debian has
    /// it in the same package as the server.
    #[must_use]
    #[track_caller]
    pub fn calls(&self, pattern: &str) -> u64 {
        let pattern = pattern.replace('\'', "''");
        let calls =
            self.sql(&format!("SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '{pattern}'"));
        calls.parse().unwrap_or_else(|_| panic!("not a number: {calls}"))
    }

    /// Ends the connections of clients for which a condition on `pg_stat_activity` holds, such as
    /// `"application_name = 'leasehold'"`, and returns how many. When this returns they are gone;
    /// for each it waits ten seconds at most. Those of [`sql`](Self::sql), which may not quite have
    /// ended, are left alone and not counted, and so is a connection that ends by itself meanwhile.
    ///
    /// # Panics
    ///
    /// As [`sql`](Self::sql).
    #[track_caller]
    pub fn terminate_backends(&self, condition: &str) -> usize {
        let ended = self.sql(&format!(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND application_name <> '{APPLICATION}' AND ({condition})"
        ));
        ended.lines().filter(|ended| *ended == "t").count()
    }

    /// Ends the server without any order and starts it again, to recover from its log: PostgreSQL's
    /// *immediate* shutdown.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[track_caller]
    pub fn restart_immediate(&self) {
        self.stop_by(Signal::SIGQUIT);
        expect("restart", self.start());
    }

    pub(crate) fn psql(&self) -> &Psql {
        &self.psql
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }
}

impl Deref for Postgres {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// Whether the postmaster with this process id takes connections. It notes what it is up to in a
/// file, where `pg_ctl` looks too: to ask by connecting would leave traces in the statistics. A
/// killed one leaves its note behind.
fn is_ready(data: &Path, pid: u32) -> bool {
    let note = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let mut lines = note.lines().map(str::trim);
    lines.next() == Some(pid.to_string().as_str()) && lines.nth(6) == Some("ready")
}
