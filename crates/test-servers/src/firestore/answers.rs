use std::collections::BTreeMap;

use serde_json::Value as Json;

/// One document of a [`Firestore`](crate::Firestore).
#[derive(Clone, Debug, PartialEq)]
pub struct FirestoreDocument {
    /// Its fields as Firestore writes them in JSON, such as `{"count": {"integerValue": "1"}}`.
    pub fields: Json,
    /// When it was created, by RFC 3339.
    pub create_time: String,
    /// When it was changed last, by RFC 3339.
    pub update_time: String,
}

/// What a [`Firestore`](crate::Firestore) has done, as Google would put it on the invoice.
///
/// What tests write by themselves is not on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirestoreCounts {
    /// Documents that were read.
    pub reads: u64,
    /// Documents that were written.
    pub writes: u64,
    /// Documents that were deleted.
    pub deletes: u64,
    /// Calls by their name, such as `Commit`; `Token` is a request for a token.
    pub calls: BTreeMap<String, u64>,
}

impl FirestoreDocument {
    pub(super) fn new(json: &Json) -> Self {
        let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        Self { fields: json["fields"].clone(), create_time: text("createTime"), update_time: text("updateTime") }
    }
}

impl FirestoreCounts {
    pub(super) fn new(json: &Json) -> Self {
        let calls = json["calls"].as_object().into_iter().flatten();
        Self {
            reads: number(json, "reads"),
            writes: number(json, "writes"),
            deletes: number(json, "deletes"),
            calls: calls.map(|(name, count)| (name.clone(), count.as_u64().unwrap_or_default())).collect(),
        }
    }
}

/// A number that the server always sends.
pub(super) fn number(json: &Json, name: &str) -> u64 {
    json[name].as_u64().unwrap_or_default()
}
