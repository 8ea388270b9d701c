use serde::Deserialize;
use serde_json::{Value, json};
use tokio_postgres::Row;

use super::class;
use crate::backend::{AcquireRequest, Mode, Record, Waiter};
use crate::remote::stored::{Stored, holder};
use crate::{Error, ErrorCode, Key, Metadata, Timestamp};

/// A lock as it is stored, or a place in line, which has the same columns.
#[derive(Debug)]
pub(super) struct Held {
    stored: Stored,
    mode: Mode,
    slot: Option<u16>,
}

impl Held {
    /// # Errors
    ///
    /// `Internal` if the key, the lock id or the fence is not one.
    pub(super) fn into_record(self) -> Result<Record, Error> {
        Ok(Record { mode: self.mode, slot: self.slot, ..into_record(self.stored)? })
    }

    /// # Errors
    ///
    /// `Internal` if the key or the lock id is not one.
    pub(super) fn into_waiter(self) -> Result<Waiter, Error> {
        let unusable = |source: Error| not_a_lock().with_source(source);
        let Stored { key, lock_id, acquired_at, expires_at, holder, metadata, .. } = self.stored;
        let (key, lock_id) = (Key::new(&key).map_err(unusable)?, lock_id.parse().map_err(unusable)?);
        let waiter = Waiter::new(key, lock_id, self.mode, acquired_at, expires_at);
        Ok(waiter.with_holder(holder).with_metadata(metadata))
    }
}

/// What only we write: of no meaning unless the lock id is that of the lock.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    lock_id: String,
    holder: Option<String>,
    /// JSON within JSON: the server's own type would refuse some of it.
    metadata: Option<String>,
}

/// Reads a row of the statements that look for locks.
pub(super) fn read(row: &Row) -> Result<Held, Error> {
    let text = |column| row.try_get::<_, String>(column).map_err(unreadable);
    let number = |column| row.try_get::<_, i64>(column).map_err(unreadable);
    let details: Option<String> = row.try_get("details").map_err(unreadable)?;
    let stored = stored(
        text("user_key")?,
        text("lock_id")?,
        text("fence")?,
        number("acquired_at_ms")?,
        number("expires_at_ms")?,
        details.as_deref(),
    );
    let permits = row.try_get("permits").map_err(unreadable)?;
    let mode = class::mode(Some(&text("class")?), permits);
    Ok(Held { stored, mode, slot: slot(row.try_get("slot").map_err(unreadable)?) })
}

/// The number of a permit.
pub(super) fn slot(number: Option<i32>) -> Option<u16> {
    number.and_then(|number| u16::try_from(number).ok())
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
