//! The other library, as far as its layout in the server goes: its tables, its rows, and its
//! acquire, step by step.

use async_trait::async_trait;
use leasehold::LockId;
use test_servers::Postgres as Server;
use tokio_postgres::Client;

use super::look::{now, number, session};
use crate::{Foreign, OtherLibrary, id};

/// Its tables, as it makes them.
pub const TABLES: &str = "
CREATE TABLE syncguard_locks (
  key TEXT PRIMARY KEY, lock_id TEXT NOT NULL, expires_at_ms BIGINT NOT NULL, acquired_at_ms BIGINT NOT NULL,
  fence TEXT NOT NULL, user_key TEXT NOT NULL
);
CREATE UNIQUE INDEX idx_syncguard_locks_lock_id ON syncguard_locks(lock_id);
CREATE INDEX idx_syncguard_locks_expires ON syncguard_locks(expires_at_ms);
CREATE TABLE syncguard_fence_counters (
  fence_key TEXT PRIMARY KEY, fence BIGINT NOT NULL DEFAULT 0, key_debug TEXT
);";

/// What one step of its acquire is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Step {
    Begin,
    Lock,
    Look,
    Count,
    Write,
    Commit,
}

/// All steps of its acquire, in order.
pub const STEPS: [Step; 6] = [Step::Begin, Step::Lock, Step::Look, Step::Count, Step::Write, Step::Commit];

/// An acquire of the other library that can stop between any two of its steps.
#[derive(Debug)]
pub struct Acquiring {
    client: Client,
    key: String,
    /// The lock id that it wants the lock for.
    pub id: LockId,
    ttl: u64,
    fence: i64,
    refused: bool,
    left: std::vec::IntoIter<Step>,
}

impl Acquiring {
    /// One that has not begun, for half a minute.
    pub async fn new(server: &Server, key: &str) -> Self {
        Self::with(session(server).await, key, id(), 30_000)
    }

    fn with(client: Client, key: &str, id: LockId, ttl: u64) -> Self {
        let left = STEPS.to_vec().into_iter();
        Self { client, key: key.to_owned(), id, ttl, fence: 0, refused: false, left }
    }

    /// Goes on until so many of the six steps are done.
    pub async fn advance(&mut self, steps: usize) {
        while STEPS.len() - self.left.len() < steps {
            let step = self.left.next().unwrap();
            self.step(step).await;
        }
    }

    /// Goes on to the end. Returns the fence, unless the lock is held.
    pub async fn finish(&mut self) -> Option<u64> {
        self.advance(STEPS.len()).await;
        (!self.refused).then(|| self.fence.try_into().unwrap())
    }

    async fn step(&mut self, step: Step) {
        let client = &self.client;
        match step {
            Step::Begin => client.batch_execute("BEGIN").await.unwrap(),
            Step::Lock => drop(client.query("SELECT pg_advisory_xact_lock(hashtext($1))", &[&self.key]).await.unwrap()),
            Step::Look => {
                let live = "SELECT 1 FROM syncguard_locks
                    WHERE key = $1 AND expires_at_ms > extract(epoch FROM clock_timestamp()) * 1000 - 1000";
                self.refused = !client.query(live, &[&self.key]).await.unwrap().is_empty();
            }
            Step::Count if !self.refused => {
                let count = "INSERT INTO syncguard_fence_counters AS f VALUES ($1, 1, $2)
                    ON CONFLICT (fence_key) DO UPDATE SET fence = f.fence + 1 RETURNING fence";
                let counter = format!("fence:{}", self.key);
                self.fence = client.query_one(count, &[&counter, &self.key]).await.unwrap().get(0);
            }
            Step::Write if !self.refused => {
                let write = "INSERT INTO syncguard_locks
                    (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key)
                    SELECT $1, $2, now_ms + $4::bigint, now_ms, $3, $1
                    FROM floor(extract(epoch FROM clock_timestamp()) * 1000) AS now_ms
                    ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id,
                      expires_at_ms = excluded.expires_at_ms, acquired_at_ms = excluded.acquired_at_ms,
                      fence = excluded.fence, user_key = excluded.user_key";
                let fence = format!("{:015}", self.fence);
                let ttl = i64::try_from(self.ttl).unwrap();
                client.execute(write, &[&self.key, &self.id.expose(), &fence, &ttl]).await.unwrap();
            }
            Step::Count | Step::Write => {}
            Step::Commit => client.batch_execute("COMMIT").await.unwrap(),
        }
    }
}

/// A process that uses the other library, with a session of its own.
pub(super) struct Other(pub(super) Option<Client>);

impl Other {
    async fn changes(&self, statement: &str, id: &LockId) -> bool {
        self.0.as_ref().unwrap().execute(statement, &[&id.expose()]).await.unwrap() == 1
    }
}

#[async_trait]
impl OtherLibrary for Other {
    async fn acquire(&mut self, key: &str, id: &LockId, ttl: u64) -> Option<u64> {
        let mut acquiring = Acquiring::with(self.0.take().unwrap(), key, *id, ttl);
        let fence = acquiring.finish().await;
        self.0 = Some(acquiring.client);
        fence
    }

    async fn extend(&mut self, id: &LockId, ttl: u64) -> bool {
        let extend = format!(
            "UPDATE syncguard_locks SET expires_at_ms = now_ms + {ttl}
            FROM floor(extract(epoch FROM clock_timestamp()) * 1000) AS now_ms
            WHERE lock_id = $1 AND expires_at_ms > now_ms - 1000"
        );
        self.changes(&extend, id).await
    }

    async fn release(&mut self, id: &LockId) -> bool {
        self.changes("DELETE FROM syncguard_locks WHERE lock_id = $1", id).await
    }
}

/// Writes its row by hand, held for `held_for` milliseconds, with `left` of them to go.
pub fn write(server: &Server, key: &str, held_for: u64, left: i64) -> Foreign {
    let (now, id) = (now(server), id());
    let (acquired_at, expires_at) = (now - held_for, now.checked_add_signed(left).unwrap());
    let fence = number(
        server,
        &format!(
            "INSERT INTO syncguard_fence_counters AS f VALUES ('fence:{key}', 1, '{key}')
            ON CONFLICT (fence_key) DO UPDATE SET fence = f.fence + 1 RETURNING fence"
        ),
    );
    server.sql(&format!(
        "INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key)
        VALUES ('{key}', '{}', {expires_at}, {acquired_at}, '{fence:015}', '{key}')
        ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, expires_at_ms = excluded.expires_at_ms,
          acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence, user_key = excluded.user_key",
        id.expose()
    ));
    Foreign { key: key.to_owned(), id, fence, acquired_at, expires_at }
}
