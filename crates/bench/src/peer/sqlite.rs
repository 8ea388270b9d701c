//! What somebody would write for a lock without waiting, stealing and owners: two transactions on
//! the tables of the store.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use leasehold::LockId;
use rusqlite::{Connection, params};

use super::{Held, Peer};

/// One connection that all tasks share.
pub(super) struct Transactions(Arc<Mutex<Connection>>);

struct Row(Arc<Mutex<Connection>>, String);

impl Transactions {
    pub(super) fn open(url: &str) -> Self {
        let connection = Connection::open(url.trim_start_matches("sqlite:")).unwrap();
        connection.pragma_update(None, "synchronous", "normal").unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        Self(Arc::new(Mutex::new(connection)))
    }
}

const ACQUIRE: &str = "INSERT INTO locks (key, lock_id, fence, acquired_at_ms, expires_at_ms, holder)
    VALUES (?1, ?2, 1, 1, 30001, 'host/program')
    ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, fence = fence + 1,
    acquired_at_ms = excluded.acquired_at_ms, expires_at_ms = excluded.expires_at_ms, holder = excluded.holder";

const RELEASE: &str = "UPDATE locks SET lock_id = NULL, holder = NULL WHERE lock_id = ?1";

fn transaction(connection: &Mutex<Connection>, sql: &str, parameters: impl rusqlite::Params) {
    let connection = connection.lock().unwrap();
    let run = |sql: &str| connection.prepare_cached(sql).unwrap().execute([]).unwrap();
    run("BEGIN IMMEDIATE");
    connection.prepare_cached(sql).unwrap().execute(parameters).unwrap();
    run("COMMIT");
}

#[async_trait]
impl Peer for Transactions {
    async fn acquire(&self, key: &str, _wait: bool) -> Box<dyn Held> {
        let id = LockId::random().unwrap().expose().to_owned();
        transaction(&self.0, ACQUIRE, params![key, id]);
        Box::new(Row(self.0.clone(), id))
    }

    fn version(&self) -> String {
        String::new()
    }
}

#[async_trait]
impl Held for Row {
    async fn release(self: Box<Self>) {
        transaction(&self.0, RELEASE, params![self.1]);
        // Nothing else in here would let another task have its turn.
        tokio::task::yield_now().await;
    }
}
