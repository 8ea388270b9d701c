use serde::{Serialize, Serializer};

use crate::{HashId, Key, LockId};

/// One operation of a store, as reported to a telemetry callback. Serialises under the names that
/// other users of the storage layout give these fields (`keyHash`, `lockIdHash`, …).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LockEvent {
    /// Which operation.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// How it went.
    pub result: EventResult,
    /// The hash of the key, if the operation was given one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_hash: Option<HashId>,
    /// The hash of the lock id, if the operation was given or granted one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_id_hash: Option<HashId>,
    /// Why an acquire, release or extend found the lock in the way or missing. `None` for errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The raw key, if allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// The raw lock id, if allowed.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "expose")]
    pub lock_id: Option<LockId>,
}

/// The operations that are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum EventType {
    /// A lock was asked for.
    Acquire,
    /// A lock was given back.
    Release,
    /// A lock was extended.
    Extend,
    /// It was asked whether a key is locked.
    IsLocked,
    /// A lock was looked up.
    Lookup,
}

/// How an operation went. A check that finds the key unlocked and a lookup that finds nothing count
/// as failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum EventResult {
    /// It did what it was asked for.
    Ok,
    /// It did not.
    Fail,
}

impl EventResult {
    pub(super) fn of(ok: bool) -> Self {
        if ok { Self::Ok } else { Self::Fail }
    }
}

/// Why an operation found the lock in the way or missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// Somebody else holds the lock.
    Locked,
    /// The lock's time was over.
    Expired,
    /// There is no such lock.
    NotFound,
}

fn expose<S: Serializer>(id: &Option<LockId>, serializer: S) -> Result<S::Ok, S::Error> {
    id.as_ref().map(LockId::expose).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_written_under_the_names_of_the_shared_format() {
        let id: LockId = "AAAAAAAAAAAAAAAAAAAAAA".parse().unwrap();
        let event = LockEvent {
            event_type: EventType::IsLocked,
            result: EventResult::Fail,
            key_hash: Some(Key::new("a").unwrap().hash_id()),
            lock_id_hash: None,
            reason: Some(Reason::NotFound),
            key: None,
            lock_id: Some(id),
        };
        assert_eq!(
            serde_json::to_value(&event).unwrap(),
            json!({
                "type": "isLocked", "result": "fail", "keyHash": "0000006100000123000002a7",
                "reason": "not-found", "lockId": "AAAAAAAAAAAAAAAAAAAAAA",
            })
        );
    }
}
