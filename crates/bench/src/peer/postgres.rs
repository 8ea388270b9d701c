//! What somebody would write by hand in PostgreSQL: no fences, holders, stealing or wake-ups, and
//! as few statements as it takes.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use leasehold::LockId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};

use super::{Held, Peer};

/// As many connections as the store of leasehold may have here.
const CONNECTIONS: usize = 16;

/// What the contestants below need.
pub(crate) const TABLES: &str = include_str!("tables.sql");

/// Connections that are used in turn.
#[derive(Clone)]
pub(super) struct Pool {
    free: Arc<Mutex<Vec<Client>>>,
    permits: Arc<Semaphore>,
}

/// A connection that nobody else uses.
struct Connection {
    client: Option<Client>,
    pool: Pool,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) async fn open(url: &str) -> Self {
        let url = url.split('?').next().unwrap_or(url);
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
            tokio::spawn(connection);
            clients.push(client);
        }
        Self { free: Arc::new(Mutex::new(clients)), permits: Arc::new(Semaphore::new(CONNECTIONS)) }
    }

    async fn connection(&self) -> Connection {
        let permit = self.permits.clone().acquire_owned().await.unwrap();
        let client = self.free.lock().unwrap().pop();
        Connection { client, pool: self.clone(), _permit: permit }
    }
}

impl Connection {
    /// One statement with texts, in one round trip: nothing is prepared.
    async fn run(&self, sql: &str, texts: &[&str]) -> u64 {
        let parameters: Vec<_> = texts.iter().map(|text| (text as _, Type::TEXT)).collect();
        self.client.as_ref().unwrap().execute_typed(sql, &parameters).await.unwrap()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.pool.free.lock().unwrap().extend(self.client.take());
    }
}

/// A session's advisory lock, which keeps its connection for as long as it is held.
pub(super) struct Advisory(pub(super) Pool);

struct Session(Connection, String);

#[async_trait]
impl Peer for Advisory {
    async fn acquire(&self, key: &str, _wait: bool) -> Box<dyn Held> {
        let connection = self.0.connection().await;
        connection.run("SELECT pg_advisory_lock(hashtextextended($1, 0))", &[key]).await;
        Box::new(Session(connection, key.to_owned()))
    }

    fn version(&self) -> String {
        String::new()
    }
}

#[async_trait]
impl Held for Session {
    async fn release(self: Box<Self>) {
        self.0.run("SELECT pg_advisory_unlock(hashtextextended($1, 0))", &[&self.1]).await;
    }
}

/// A row that is there, or that says until when it counts.
pub(super) struct Rows {
    pool: Pool,
    acquire: &'static str,
    release: &'static str,
}

struct Row(Pool, &'static str, String);

impl Rows {
    pub(super) fn inserted(pool: Pool) -> Self {
        Self {
            pool,
            acquire: "INSERT INTO inserted (key, lock_id, expires_at) VALUES ($1, $2, clock_timestamp() + interval '10 minutes')
                      ON CONFLICT (key) DO NOTHING",
            release: "DELETE FROM inserted WHERE lock_id = $1",
        }
    }

    pub(super) fn upserted(pool: Pool) -> Self {
        Self {
            pool,
            acquire: "INSERT INTO upserted (key, lock_id, expires_at) VALUES ($1, $2, clock_timestamp() + interval '10 minutes')
                      ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, expires_at = excluded.expires_at
                      WHERE upserted.expires_at < clock_timestamp()",
            release: "UPDATE upserted SET expires_at = '-infinity' WHERE lock_id = $1",
        }
    }
}

#[async_trait]
impl Peer for Rows {
    async fn acquire(&self, key: &str, _wait: bool) -> Box<dyn Held> {
        let id = LockId::random().unwrap().expose().to_owned();
        let changed = self.pool.connection().await.run(self.acquire, &[key, &id]).await;
        assert_eq!(changed, 1, "held");
        Box::new(Row(self.pool.clone(), self.release, id))
    }

    fn version(&self) -> String {
        String::new()
    }
}

#[async_trait]
impl Held for Row {
    async fn release(self: Box<Self>) {
        let changed = self.0.connection().await.run(self.1, &[&self.2]).await;
        assert_eq!(changed, 1, "absent");
    }
}
