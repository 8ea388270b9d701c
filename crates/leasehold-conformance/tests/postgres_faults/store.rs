//! The store under test.

use std::sync::Arc;

use leasehold::{Backend, Locks};
use test_servers::{Postgres, Proxy};
use tokio_postgres::{Client, NoTls};

pub(crate) async fn connect(url: &str) -> Arc<dyn Backend> {
    Arc::new(leasehold::Postgres::connect(url).await.unwrap())
}

/// The URL of the server behind `proxy`.
pub(crate) fn through(proxy: &Proxy) -> String {
    format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port())
}

/// A server with tables and these settings.
pub(crate) async fn server(settings: &[(&str, &str)]) -> Postgres {
    let server = Postgres::with(settings);
    Locks::migrate(&server.url()).await.unwrap();
    server
}

/// A session of somebody else, which can stop between two statements.
pub(crate) async fn session(server: &Postgres) -> Client {
    let url = format!("{}?application_name=session", server.url());
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// How many sessions of ours there are for which a condition holds.
pub(crate) fn ours(server: &Postgres, condition: &str) -> usize {
    let query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold' AND ";
    server.sql(&format!("{query} ({condition})")).parse().unwrap()
}

/// Waits for something that others have.
pub(crate) const STUCK: &str = "wait_event_type = 'Lock'";

/// A server that the cuts are about.
pub(crate) type Server = test_servers::Postgres;

pub(crate) async fn start() -> Server {
    server(&[]).await
}

/// What every operation says: the name of the table, or of a function that is named after it.
pub(crate) const OPERATION: &str = "\"public\".\"syncguard_locks";

/// What only the connection for wake-ups says.
pub(crate) const SUBSCRIBE: &str = "pg_advisory_lock_shared";
