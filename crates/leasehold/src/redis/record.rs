use std::num::NonZeroU16;

use serde::Deserialize;
use serde_json::{Number, Value};

use crate::backend::{AcquireRequest, Mode, Record, Waiter};
use crate::remote::stored::{Stored, holder, unreadable};
use crate::{Contention, Error, ErrorCode, Key, Metadata, Timestamp};

/// A lock as it is stored, in JSON.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Json {
    lock_id: String,
    expires_at_ms: Number,
    acquired_at_ms: Number,
    key: String,
    fence: String,
    #[serde(default)]
    holder: Value,
    #[serde(default)]
    metadata: Value,
}

/// How a lock is held or wanted that is no plain one, in JSON: no other program writes this.
#[derive(Deserialize)]
struct JsonMode {
    mode: String,
    of: Option<NonZeroU16>,
    slot: Option<u16>,
}

/// A place in line as it is stored, in JSON.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonPlace {
    lock_id: String,
    until_ms: u64,
    since_ms: u64,
    key: String,
    #[serde(default)]
    holder: Value,
    #[serde(default)]
    metadata: Value,
}

/// What a script says something is that it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// What is stored under the name of a lock.
    Record,
    /// A grant that is not exclusive, as its index has it.
    Grant,
    /// The same, and those who hold the lock together come in the order of their fences.
    Holder,
    /// A place in line, as its index has it.
    Place,
}

impl Form {
    pub(super) fn of(word: &[u8]) -> Option<Self> {
        match word {
            b"record" => Some(Form::Record),
            b"grant" => Some(Form::Grant),
            b"holder" => Some(Form::Holder),
            b"place" => Some(Form::Place),
            _ => None,
        }
    }
}

/// A lock as a script found it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) stored: Stored,
    mode: Mode,
    slot: Option<u16>,
}

impl Found {
    /// # Errors
    ///
    /// `Internal` if it is not a lock.
    pub(super) fn parse(form: Form, raw: &[u8]) -> Result<Self, Error> {
        let (mode, slot) = match form {
            Form::Record => (Mode::Exclusive, None),
            Form::Grant | Form::Holder | Form::Place => parse_mode(raw)?,
        };
        Ok(Self { stored: parse(raw)?, mode, slot })
    }

    /// # Errors
    ///
    /// `Internal` if the key, the lock id or the fence is not one.
    pub(super) fn into_record(self) -> Result<Record, Error> {
        let record = into_record(self.stored)?;
        Ok(Record { mode: self.mode, slot: self.slot, ..record })
    }

    /// The answer to somebody else who wants it at `now`.
    fn contention(&self, now: Timestamp) -> Contention {
        self.stored.contention(now).with_mode(self.mode)
    }
}

/// Who is in the way of a request at `now`.
///
/// # Errors
///
/// `Internal` if it is neither a lock nor a place.
pub(super) fn contention(form: Form, raw: &[u8], now: Timestamp) -> Result<Contention, Error> {
    if form != Form::Place {
        return Ok(Found::parse(form, raw)?.contention(now));
    }
    let Waiter { holder, since, until, mode, .. } = parse_place(raw)?;
    Ok(Contention::new(holder, since, until, now).with_mode(mode))
}

/// # Errors
///
/// `Internal` if it is not a lock.
pub(super) fn parse(raw: &[u8]) -> Result<Stored, Error> {
    let json: Json = from_json(raw)?;
    Ok(Stored {
        acquired_at: timestamp(&json.acquired_at_ms),
        expires_at: timestamp(&json.expires_at_ms),
        holder: holder(json.holder.as_str()),
        // Notes of other programs that do not fit ours are no reason not to show the lock.
        metadata: Metadata::new(json.metadata).unwrap_or_default(),
        key: json.key,
        lock_id: json.lock_id,
        fence: json.fence,
    })
}

fn from_json<'a, T: Deserialize<'a>>(raw: &'a [u8]) -> Result<T, Error> {
    serde_json::from_slice(raw).map_err(|error| not_a_lock().with_source(unreadable(&error)))
}

fn parse_mode(raw: &[u8]) -> Result<(Mode, Option<u16>), Error> {
    let JsonMode { mode, of, slot } = from_json(raw)?;
    match (&*mode, of) {
        (EXCLUSIVE, _) => Ok((Mode::Exclusive, None)),
        (SHARED, _) => Ok((Mode::Shared, None)),
        (PERMIT, Some(of)) => Ok((Mode::Permit { of }, slot)),
        _ => Err(not_a_lock()),
    }
}

/// # Errors
///
/// `Internal` if it is not a place in line.
pub(super) fn parse_place(raw: &[u8]) -> Result<Waiter, Error> {
    let json: JsonPlace = from_json(raw)?;
    let unusable = |source: Error| not_a_lock().with_source(source);
    let (key, lock_id) = (Key::new(&json.key).map_err(unusable)?, json.lock_id.parse().map_err(unusable)?);
    let (since, until) = (Timestamp::from_millis(json.since_ms), Timestamp::from_millis(json.until_ms));
    Ok(Waiter::new(key, lock_id, parse_mode(raw)?.0, since, until)
        .with_holder(holder(json.holder.as_str()))
        .with_metadata(Metadata::new(json.metadata).unwrap_or_default()))
}

const EXCLUSIVE: &str = "exclusive";
const SHARED: &str = "shared";
const PERMIT: &str = "permit";

/// A mode as scripts know it, and how many may hold a lock in it, or a dash if any number may.
pub(super) fn mode_and_limit(mode: Mode) -> (&'static str, String) {
    match mode {
        Mode::Exclusive => (EXCLUSIVE, "-".to_owned()),
        Mode::Shared => (SHARED, "-".to_owned()),
        Mode::Permit { of } => (PERMIT, of.to_string()),
    }
}

/// # Errors
///
/// `Internal` if the key, the lock id or the fence is not one.
pub(super) fn into_record(stored: Stored) -> Result<Record, Error> {
    stored.into_record(not_a_lock)
}

/// Milliseconds, which some programs write as a floating-point number.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn timestamp(number: &Number) -> Timestamp {
    let millis = number.as_u64().or_else(|| number.as_f64().map(|millis| millis as u64));
    Timestamp::from_millis(millis.unwrap_or_default())
}

/// The part of a new record that does not depend on the server's time: the key, and all that
/// follows the fence.
pub(super) fn parts(request: &AcquireRequest) -> (String, String) {
    let holder = Value::from(request.holder.as_str());
    let mut rest = format!(",\"holder\":{holder}");
    if !request.metadata.is_empty() {
        rest.push_str(",\"metadata\":");
        rest.push_str(&request.metadata.to_json());
    }
    rest.push('}');
    (Value::from(request.key.as_str()).to_string(), rest)
}

pub(super) fn not_a_lock() -> Error {
    Error::new(ErrorCode::Internal, "what is stored under the name of the lock is not a lock").with_hint(
        "another program may use the same names: give Leasehold a prefix of its own, or remove what is in the way",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fence;

    const FOREIGN: &str = r#"{"key":"a","fence":"000000000000007","acquiredAtMs":1.7e12,"lockId":"abcdefghijklmnopqrstuv",
        "expiresAtMs":1700000030000,"holder":7,"metadata":["not","an","object"],"more":true}"#;

    #[test]
    fn what_other_programs_write_is_read_as_far_as_it_goes() {
        let record = parse(FOREIGN.as_bytes()).and_then(into_record).unwrap();
        assert_eq!(record.acquired_at, Timestamp::from_millis(1_700_000_000_000));
        assert_eq!(record.expires_at, Timestamp::from_millis(1_700_000_030_000));
        assert_eq!((record.holder, record.metadata), (None, Metadata::default()));
        assert_eq!(record.fence, Fence::new(7).unwrap());
    }

    #[test]
    fn what_is_not_a_lock_is_an_error_that_shows_nothing_of_it() {
        for raw in [
            "",
            "secret",
            "{}",
            "[]",
            "{\"lockId\":\"secret\"}",
            &FOREIGN.replace("000000000000007", "7"),
            &FOREIGN.replace("1700000030000", "\"secret\""),
            &FOREIGN.replace("\"a\"", "{\"secret\":1}"),
            &FOREIGN.replace("abcdefghijklmnopqrstuv", "secret"),
        ] {
            let error = parse(raw.as_bytes()).and_then(into_record).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Internal, "{raw}");
            assert!(std::error::Error::source(&error).is_some(), "{raw}");
            // Nor do its causes.
            assert!(!format!("{error}{error:?}").contains("secret"), "{error:?}");
        }
    }
}
