//! The store in a PostgreSQL database.

mod database;
mod look;
mod other;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use leasehold::{LockId, Locks};
use test_servers::{Postgres, PostgresBuilder, Proxy, Server, eventually};

pub use database::Database;
pub use look::{LISTENING, awaited, channel, now, number, ours, row, session, stuck};
pub use other::{Acquiring, STEPS, Step, TABLES, write};

use crate::breakage::{Breakage, Broken, Request};
use crate::server::{Setup, StoreServer};
use crate::stores::{EVERYTHING, RunningStore, Start, StoreUnderTest};
use crate::{Foreign, OtherLibrary};

/// The server starts a process for each connection.
pub(crate) const STORE: StoreUnderTest = StoreUnderTest {
    name: "postgres",
    start: Start::Server(start),
    share: Some(Database::share),
    abilities: EVERYTHING,
    lines: true,
};

/// The permissions that locks need on tables in the schema `app`, as the documentation lists them.
pub const GRANTS: [&str; 16] = [
    "USAGE ON SCHEMA app",
    "SELECT ON app.syncguard_locks",
    "INSERT ON app.syncguard_locks",
    "UPDATE ON app.syncguard_locks",
    "DELETE ON app.syncguard_locks",
    "SELECT ON app.syncguard_fence_counters",
    "INSERT ON app.syncguard_fence_counters",
    "UPDATE ON app.syncguard_fence_counters",
    "SELECT ON app.syncguard_locks_grants",
    "INSERT ON app.syncguard_locks_grants",
    "UPDATE ON app.syncguard_locks_grants",
    "DELETE ON app.syncguard_locks_grants",
    "SELECT ON app.syncguard_locks_line",
    "INSERT ON app.syncguard_locks_line",
    "UPDATE ON app.syncguard_locks_line",
    "DELETE ON app.syncguard_locks_line",
];

fn start(setup: &Setup) -> Arc<dyn StoreServer> {
    let mut server = Postgres::builder();
    if let Some(password) = setup.password {
        server = server.password(password);
    }
    if setup.tls {
        server = server.tls();
    }
    Arc::new(migrated(server))
}

/// A server with tables.
pub fn migrated(server: PostgresBuilder) -> Postgres {
    let server = server.start();
    migrate(&server.url());
    server
}

/// Makes the tables, from wherever it is called.
fn migrate(url: &str) {
    let migrate = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Locks::migrate(url)).unwrap();
    };
    // A thread of a runtime must not run another one.
    std::thread::scope(|scope| scope.spawn(migrate).join().unwrap());
}

/// Makes tables in the schema `app` that belong to the user `keeper`, and the user `app` who may
/// use them. Returns the URL for the latter.
pub fn two_users(server: &Postgres, password: &str) -> String {
    server.sql(&format!("CREATE ROLE keeper LOGIN PASSWORD '{password}'; CREATE ROLE app LOGIN PASSWORD '{password}'"));
    server.sql("GRANT CREATE ON DATABASE postgres TO keeper");
    migrate(&format!("{}?schema=app", server.url_as("keeper", password)));
    for grant in GRANTS {
        server.sql_as("keeper", &format!("GRANT {grant} TO app"));
    }
    format!("{}?schema=app", server.url_as("app", password))
}

impl RunningStore for Postgres {
    fn url(&self) -> String {
        Postgres::url(self)
    }

    fn public_url(&self) -> String {
        format!("postgres://{}/postgres", self.address())
    }
}

#[async_trait]
impl StoreServer for Postgres {
    fn server(&self) -> &Server {
        self
    }

    fn url_at(&self, address: SocketAddr, password: Option<&str>) -> String {
        let password = password.map(|password| format!(":{password}")).unwrap_or_default();
        format!("postgres://postgres{password}@{address}/postgres")
    }

    fn frugal_url(&self) -> String {
        format!("{}?pool_size=1", self.url())
    }

    fn socket_urls(&self) -> Vec<String> {
        let (directory, port) = (self.socket_dir().display().to_string(), self.port());
        let escaped = directory.replace('/', "%2F");
        vec![
            format!("postgres://postgres@{escaped}:{port}/postgres"),
            format!("postgres:///postgres?host={directory}&port={port}&user=postgres"),
            format!("postgresql:///postgres?host={directory}&port={port}&user=postgres&pool_size=1&timeout=3s"),
        ]
    }

    fn missing_socket_url(&self) -> String {
        "postgres:///postgres?host=/nowhere&user=postgres".to_owned()
    }

    fn wrong_credentials(&self, password: &str) -> Vec<String> {
        vec![
            self.url_as("postgres", &format!("{password}-but-wrong")),
            self.url_as("nobody", password),
            self.url_as("postgres", ""),
        ]
    }

    fn least_permissions(&self, password: &str) -> String {
        two_users(self, password)
    }

    fn tls_urls(&self, authority: &Path, password: Option<&str>) -> Vec<String> {
        let url = self.url_at(self.address(), password);
        let with = |sslmode| format!("{url}?sslmode={sslmode}&sslrootcert={}", authority.display());
        ["require", "verify-full"].map(with).to_vec()
    }

    fn authority(&self) -> PathBuf {
        self.ca_file()
    }

    fn unusable_tls_urls(&self, garbage: &Path) -> Vec<String> {
        let garbage = garbage.display();
        [
            "sslmode=verify-full&sslrootcert=/nowhere".to_owned(),
            format!("sslmode=verify-full&sslrootcert={garbage}"),
            format!("sslmode=require&sslcert={garbage}&sslkey={garbage}"),
            format!("sslmode=require&sslkey={garbage}"),
        ]
        .map(|query| format!("{}?{query}", self.url()))
        .to_vec()
    }

    fn now(&self) -> u64 {
        now(self)
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        let rows = |table: &str, name: &str| {
            let rows = self.sql(&format!("SELECT {name}, row_to_json(t) FROM {table} AS t"));
            let split = |row: &str| row.split_once('|').map(|(name, row)| (name.to_owned(), row.to_owned())).unwrap();
            rows.lines().map(split).collect::<Vec<_>>()
        };
        let tables = [
            ("syncguard_locks", "key"),
            ("syncguard_fence_counters", "fence_key"),
            ("syncguard_locks_grants", "'grant ' || lock_id"),
            ("syncguard_locks_line", "'place ' || lock_id"),
        ];
        tables.iter().flat_map(|(table, name)| rows(table, name)).collect()
    }

    fn set_fence_counter(&self, key: &str, last: &str) {
        self.sql(&format!(
            "INSERT INTO syncguard_fence_counters VALUES ('fence:{key}', {last}, '{key}')
            ON CONFLICT (fence_key) DO UPDATE SET fence = excluded.fence"
        ));
    }

    fn fence_counter(&self, key: &str) -> String {
        self.sql(&format!("SELECT fence FROM syncguard_fence_counters WHERE fence_key = 'fence:{key}'"))
    }

    fn forget_fence_counters(&self) {
        self.sql("TRUNCATE syncguard_fence_counters");
    }

    fn remove_lock(&self, _: &str, id: &LockId) {
        self.sql(&format!("DELETE FROM syncguard_locks WHERE lock_id = '{}'", id.expose()));
    }

    fn are_awaited(&self, keys: &[&str]) -> bool {
        let keys = keys.iter().map(|key| format!("'{}'", key.replace('\'', "''"))).collect::<Vec<_>>().join(", ");
        let numbers = format!("SELECT count(DISTINCT hashtext(k) & 1023) FROM unnest(ARRAY[{keys}]::text[]) AS k");
        awaited(self) == number(self, &numbers)
    }

    fn connections(&self) -> usize {
        ours(self, "true").try_into().unwrap()
    }

    fn listeners(&self) -> usize {
        ours(self, LISTENING).try_into().unwrap()
    }

    fn end_listeners(&self) -> usize {
        self.terminate_backends(&format!("application_name = 'leasehold' AND {LISTENING}"))
    }

    /// Half of them, so that those that stay are in the middle of something.
    fn end_connections(&self) -> usize {
        self.terminate_backends(&format!("application_name = 'leasehold' AND NOT {LISTENING} AND random() < 0.5"))
    }

    fn requests(&self) -> u64 {
        let query = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query !~ 'pg_stat'";
        let calls = number(self, query);
        self.sql("SELECT pg_stat_statements_reset()");
        calls
    }

    fn wake(&self, key: &str, times: u32) {
        let channel = channel(self);
        self.sql(&format!(
            "DO $$ BEGIN FOR n IN 1..{times} LOOP
               PERFORM pg_notify('{channel}', 'F{key}'); COMMIT; PERFORM pg_sleep(0.004);
             END LOOP; END $$"
        ));
    }

    fn flood(&self, messages: u32) {
        let channel = channel(self);
        self.sql(&format!(
            "SELECT count(pg_notify('{channel}', 'S' || lpad(n::text, 15, '0') || repeat('x', 480)))
             FROM generate_series(1, {messages}) AS n"
        ));
        eventually("the server has sent everything", || self.sql("SELECT pg_notification_queue_usage()") == "0");
    }

    /// The name of the table, or of a function that is named after it.
    fn break_next(&self, proxy: &Proxy, request: Request, how: Breakage) -> Broken<'_> {
        let bytes = match request {
            // Every operation sends these, and nothing else does.
            Request::Change | Request::Question => "\"public\".\"syncguard_locks",
            Request::Subscription => "pg_try_advisory_lock_shared",
        };
        how.by_proxy(proxy, bytes)
    }

    fn checks(&self) -> &'static [&'static str] {
        &["postgres", "clocks", "role", "persistence"]
    }

    fn foreign_styles(&self) -> usize {
        1
    }

    fn write_foreign(&self, key: &str, held_for: u64, left: i64, _: usize) -> Foreign {
        write(self, key, held_for, left)
    }

    async fn other_library(&self) -> Box<dyn OtherLibrary + '_> {
        Box::new(other::Other(Some(session(self).await)))
    }
}
