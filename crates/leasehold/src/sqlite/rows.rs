//! Rows of the tables as the rest of the program knows them.

use std::num::NonZeroU16;

use rusqlite::Row;
use rusqlite::types::Type;

use super::placeholder;
use crate::backend::{Mode, Record, Waiter};
use crate::key_state::Place;
use crate::remote::placeholder::Placeholder;
use crate::remote::stored::unreadable;
use crate::{Fence, Holder, Key, Metadata, Timestamp};

/// The row of a key: who holds it, and its last fence in any case.
#[derive(Debug)]
pub(super) struct KeyRow {
    pub(super) fence: Fence,
    pub(super) held: Held,
}

#[derive(Debug, PartialEq)]
pub(super) enum Held {
    Nobody,
    /// By one alone, live or dead.
    Plain(Record),
    /// In another way, or for somebody.
    Otherwise(Reserved),
}

/// A placeholder, live or dead.
#[derive(Debug, PartialEq)]
pub(super) struct Reserved {
    pub(super) kind: Placeholder,
    pub(super) acquired_at: Timestamp,
    pub(super) expires_at: Timestamp,
}

/// Reads `key, lock_id, fence, acquired_at_ms, expires_at_ms, holder, metadata` of the table of
/// locks.
pub(super) fn key_row(row: &Row<'_>) -> rusqlite::Result<KeyRow> {
    let fence = fence(row)?;
    let Some(lock_id) = row.get_ref(1)?.as_str_or_null()? else {
        return Ok(KeyRow { fence, held: Held::Nobody });
    };
    let held = match placeholder::of(lock_id, row.get_ref(0)?.as_str()?) {
        Some(kind) => Held::Otherwise(Reserved { kind, acquired_at: time(row, 3)?, expires_at: time(row, 4)? }),
        None => Held::Plain(plain(row)?),
    };
    Ok(KeyRow { fence, held })
}

/// Reads the same columns where they are those of a lock, whichever table it is in.
fn plain(row: &Row<'_>) -> rusqlite::Result<Record> {
    Ok(Record {
        key: key(row, 0)?,
        lock_id: row.get_ref(1)?.as_str()?.parse().map_err(|error| invalid(1, error))?,
        fence: fence(row)?,
        acquired_at: time(row, 3)?,
        expires_at: time(row, 4)?,
        holder: holder(row, 5)?,
        metadata: metadata(row, 6)?,
        mode: Mode::Exclusive,
        slot: None,
    })
}

/// Reads the same columns, and `mode, permits, slot` after them.
pub(super) fn grant(row: &Row<'_>) -> rusqlite::Result<Record> {
    let slot: Option<i64> = row.get(9)?;
    let slot = slot.map(u16::try_from).transpose().map_err(|error| invalid(9, error))?;
    Ok(Record { mode: mode(row, 7)?, slot, ..plain(row)? })
}

/// Reads `key, lock_id, since_ms, until_ms, holder, metadata, mode, permits, called`.
pub(super) fn place(row: &Row<'_>) -> rusqlite::Result<Place> {
    let lock_id = row.get_ref(1)?.as_str()?.parse().map_err(|error| invalid(1, error))?;
    let waiter = Waiter::new(key(row, 0)?, lock_id, mode(row, 6)?, time(row, 2)?, time(row, 3)?)
        .with_holder(holder(row, 4)?)
        .with_metadata(metadata(row, 5)?);
    Ok(Place { waiter, called: row.get(8)? })
}

/// What the columns `mode` and `permits` say.
pub(super) fn mode_columns(mode: Mode) -> (&'static str, Option<u16>) {
    match mode {
        Mode::Exclusive => ("exclusive", None),
        Mode::Shared => ("shared", None),
        Mode::Permit { of } => ("permit", Some(of.get())),
    }
}

fn mode(row: &Row<'_>, column: usize) -> rusqlite::Result<Mode> {
    match row.get_ref(column)?.as_str()? {
        "exclusive" => Ok(Mode::Exclusive),
        "shared" => Ok(Mode::Shared),
        "permit" => {
            let of = u16::try_from(number(row, column + 1)?).and_then(NonZeroU16::try_from);
            Ok(Mode::Permit { of: of.map_err(|error| invalid(column + 1, error))? })
        }
        _ => Err(invalid(column, "no way to hold a lock")),
    }
}

fn key(row: &Row<'_>, column: usize) -> rusqlite::Result<Key> {
    Key::new(row.get_ref(column)?.as_str()?).map_err(|error| invalid(column, error))
}

fn fence(row: &Row<'_>) -> rusqlite::Result<Fence> {
    Fence::new(number(row, 2)?).map_err(|error| invalid(2, error))
}

fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    number(row, column).map(Timestamp::from_millis)
}

fn holder(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Holder>> {
    let name = row.get_ref(column)?.as_str_or_null()?;
    name.map(Holder::new).transpose().map_err(|error| invalid(column, error))
}

fn metadata(row: &Row<'_>, column: usize) -> rusqlite::Result<Metadata> {
    let notes = row.get_ref(column)?.as_str_or_null()?.map(serde_json::from_str::<Metadata>).transpose();
    Ok(notes.map_err(|error| invalid(column, unreadable(&error)))?.unwrap_or_default())
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).and_then(|value| u64::try_from(value).map_err(|error| invalid(column, error)))
}

fn invalid(column: usize, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
}

/// SQLite's integers are signed. Ours stay far below the limit.
pub(super) fn column(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
