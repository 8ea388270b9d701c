//! The functions for everybody who speaks SQL.

mod examples;
mod exclusion;
mod input;
mod kinds;
mod operations;
mod roles;
mod storage_keys;

use tokio_postgres::{Client, Error};

/// What `leasehold_acquire` answers. Times are milliseconds since 1970.
#[derive(Debug, PartialEq)]
struct Answer {
    granted: bool,
    lock_id: Option<String>,
    fence: Option<String>,
    expires_at: i64,
    held_by: Option<String>,
    held_since: i64,
}

impl Answer {
    /// The lock id of a lock that was granted.
    fn id(&self) -> &str {
        assert!(self.granted, "{self:?}");
        self.lock_id.as_deref().unwrap()
    }
}

/// Calls `leasehold_acquire` with arguments as they are written in SQL.
async fn try_acquire(client: &Client, arguments: &str) -> Result<Answer, Error> {
    let ms = |column: &str| format!("(extract(epoch FROM {column}) * 1000)::bigint");
    let columns = format!("granted, lock_id, fence, {}, held_by, {}", ms("expires_at"), ms("held_since"));
    let row = client.query_one(&format!("SELECT {columns} FROM leasehold_acquire({arguments})"), &[]).await?;
    Ok(Answer {
        granted: row.get(0),
        lock_id: row.get(1),
        fence: row.get(2),
        expires_at: row.get(3),
        held_by: row.get(4),
        held_since: row.get(5),
    })
}

async fn acquire(client: &Client, arguments: &str) -> Answer {
    try_acquire(client, arguments).await.unwrap_or_else(|error| panic!("{arguments}: {error:?}"))
}

async fn release(client: &Client, lock_id: &str) -> bool {
    client.query_one("SELECT leasehold_release($1)", &[&lock_id]).await.unwrap().get(0)
}

/// The new expiry in milliseconds since 1970.
async fn extend(client: &Client, lock_id: &str, seconds: f64) -> Option<i64> {
    let extend = "SELECT (extract(epoch FROM leasehold_extend($1, $2)) * 1000)::bigint";
    client.query_one(extend, &[&lock_id, &seconds]).await.unwrap().get(0)
}
