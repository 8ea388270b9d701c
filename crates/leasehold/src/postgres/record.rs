use serde::Deserialize;
use serde_json::{Value, json};
use tokio_postgres::Row;

use crate::backend::{AcquireRequest, Record};
use crate::remote::stored::{Stored, holder};
use crate::{Error, ErrorCode, Metadata, Timestamp};

/// Where a row has the name that it is stored under.
pub(super) const STORAGE_KEY: usize = 7;

/// What only we write: of no meaning unless the lock id is that of the lock.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    lock_id: String,
    holder: Option<String>,
    /// JSON within JSON: the server's own type would refuse some of it.
    metadata: Option<String>,
}

/// Reads a row of `user_key, lock_id, fence, acquired_at_ms, expires_at_ms, details, now_us, key`:
/// the lock, and the server's time.
pub(super) fn read(row: &Row) -> Result<(Stored, Timestamp), Error> {
    let text = |column| row.try_get::<_, String>(column).map_err(unreadable);
    let number = |column| row.try_get::<_, i64>(column).map_err(unreadable);
    let details: Option<String> = row.try_get(5).map_err(unreadable)?;
    let stored = stored(text(0)?, text(1)?, text(2)?, number(3)?, number(4)?, details.as_deref());
    Ok((stored, micros(number(6)?)))
}

pub(super) fn stored(
    key: String,
    lock_id: String,
    fence: String,
    since: i64,
    until: i64,
    details: Option<&str>,
) -> Stored {
    let details: Details = details.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let details = if details.lock_id == lock_id { details } else { Details::default() };
    let metadata = details.metadata.as_deref().map(serde_json::from_str::<Metadata>);
    Stored {
        key,
        lock_id,
        fence,
        acquired_at: millis(since),
        expires_at: millis(until),
        holder: holder(details.holder.as_deref()),
        metadata: metadata.and_then(Result::ok).unwrap_or_default(),
    }
}

/// # Errors
///
/// `Internal` if the key, the lock id or the fence is not one.
pub(super) fn into_record(stored: Stored) -> Result<Record, Error> {
    stored.into_record(not_a_lock)
}

/// What a new lock has in the column that only we write.
pub(super) fn details(request: &AcquireRequest) -> Value {
    let mut details = json!({"lockId": request.lock_id.expose(), "holder": request.holder.as_str()});
    if !request.metadata.is_empty() {
        details["metadata"] = request.metadata.to_json().into();
    }
    details
}

pub(super) fn millis(value: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(value).unwrap_or(0))
}

pub(super) fn micros(value: i64) -> Timestamp {
    Timestamp::from_micros(u64::try_from(value).unwrap_or(0))
}

fn not_a_lock() -> Error {
    Error::new(ErrorCode::Internal, "a row of the table is not a lock")
        .with_hint("another program may write to the table: remove the row, or give Leasehold tables of its own")
}

pub(super) fn unreadable(source: tokio_postgres::Error) -> Error {
    Error::new(ErrorCode::Internal, "an unexpected answer of the server")
        .with_hint("run `leasehold migrate`: the tables or functions may be of another version")
        .with_source(source)
        .with_outcome_unknown()
}
