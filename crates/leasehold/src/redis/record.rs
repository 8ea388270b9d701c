use serde::Deserialize;
use serde_json::{Number, Value};

use crate::backend::{AcquireRequest, Record};
use crate::remote::stored::{Stored, holder, unreadable};
use crate::{Error, ErrorCode, Metadata, Timestamp};

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

/// # Errors
///
/// `Internal` if it is not a lock.
pub(super) fn parse(raw: &[u8]) -> Result<Stored, Error> {
    let json: Json = serde_json::from_slice(raw).map_err(|error| not_a_lock().with_source(unreadable(&error)))?;
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
