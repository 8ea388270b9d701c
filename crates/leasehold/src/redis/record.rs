use serde::Deserialize;
use serde_json::{Number, Value};

use crate::{AcquireRequest, Contention, Error, ErrorCode, Fence, Holder, Key, LockId, Metadata, Record, Timestamp};

/// A lock as it is stored, in JSON. Other programs write it too, so nothing is taken for granted.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stored {
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

impl Stored {
    /// # Errors
    ///
    /// `Internal` if it is not a lock.
    pub(super) fn parse(raw: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(raw).map_err(|source| not_a_lock().with_source(source))
    }

    /// Whether somebody holds it.
    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        timestamp(&self.expires_at_ms).is_live(now)
    }

    pub(super) fn has_id(&self, id: &LockId) -> bool {
        self.lock_id == id.expose()
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// The answer to somebody else who wants it at `now`.
    pub(super) fn contention(&self, now: Timestamp) -> Contention {
        Contention {
            holder: self.holder(),
            acquired_at: timestamp(&self.acquired_at_ms),
            expires_at: timestamp(&self.expires_at_ms),
            now,
        }
    }

    /// # Errors
    ///
    /// `Internal` if the key, the lock id or the fence is not one.
    pub(super) fn into_record(self) -> Result<Record, Error> {
        let unusable = |source: Error| not_a_lock().with_source(source);
        let fence = self.fence.parse::<Fence>().and_then(|fence| Fence::new(fence.get()));
        Ok(Record {
            key: Key::new(&self.key).map_err(unusable)?,
            lock_id: self.lock_id.parse().map_err(unusable)?,
            fence: fence.map_err(unusable)?,
            acquired_at: timestamp(&self.acquired_at_ms),
            expires_at: timestamp(&self.expires_at_ms),
            holder: self.holder(),
            // Notes of other programs that do not fit ours are no reason not to show the lock.
            metadata: Metadata::new(self.metadata).unwrap_or_default(),
        })
    }

    fn holder(&self) -> Option<Holder> {
        self.holder.as_str().and_then(|name| Holder::new(name).ok())
    }
}

/// Milliseconds, which some programs write as a floating-point number.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn timestamp(number: &Number) -> Timestamp {
    let millis = number.as_u64().or_else(|| number.as_f64().map(|millis| millis as u64));
    Timestamp::from_millis(millis.unwrap_or_default())
}

/// The part of a new record that does not depend on the server's time: the key, and all that follows the fence.
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

    const FOREIGN: &str = r#"{"key":"a","fence":"000000000000007","acquiredAtMs":1.7e12,"lockId":"abcdefghijklmnopqrstuv",
        "expiresAtMs":1700000030000,"holder":7,"metadata":["not","an","object"],"more":true}"#;

    #[test]
    fn what_other_programs_write_is_understood_as_far_as_it_goes() {
        let record = Stored::parse(FOREIGN.as_bytes()).unwrap().into_record().unwrap();
        assert_eq!(record.acquired_at, Timestamp::from_millis(1_700_000_000_000));
        assert_eq!(record.expires_at, Timestamp::from_millis(1_700_000_030_000));
        assert_eq!((record.holder, record.metadata), (None, Metadata::default()));
        assert_eq!(record.fence, Fence::new(7).unwrap());
    }

    #[test]
    fn what_is_not_a_lock_is_an_error_that_shows_nothing_of_it() {
        for raw in ["", "secret", "{}", "[]", "{\"lockId\":\"secret\"}", &FOREIGN.replace("000000000000007", "7")] {
            let error = Stored::parse(raw.as_bytes()).and_then(Stored::into_record).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Internal, "{raw}");
            assert!(!error.to_string().contains("secret"));
        }
    }
}
