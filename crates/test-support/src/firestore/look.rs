use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};
use test_servers::Firestore;

/// The path of the document of a lock.
pub fn lock_of(key: &str) -> String {
    format!("locks/{key}")
}

/// The path of the document with the last fence of a key.
pub fn counter_of(key: &str) -> String {
    format!("fence_counters/fence:{key}")
}

/// The server's clock, in milliseconds.
pub fn now(server: &Firestore) -> u64 {
    u64::try_from(server.now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// A string, as Firestore writes it in JSON.
pub fn text(value: &str) -> Value {
    json!({ "stringValue": value })
}

/// A whole number, as Firestore writes it in JSON.
pub fn integer(value: u64) -> Value {
    json!({ "integerValue": value.to_string() })
}

/// The last fence of a key, as a number; none if there is no counter.
pub fn last_fence(server: &Firestore, key: &str) -> Option<u64> {
    let counter = server.document(&counter_of(key))?;
    Some(counter.fields["fence"]["stringValue"].as_str().unwrap().parse().unwrap())
}

/// Makes the last fence of a key be this number.
pub fn set_last_fence(server: &Firestore, key: &str, last: u64) {
    let fields = json!({ "fence": text(&format!("{last:015}")), "keyDebug": text(key) });
    server.set_document(&counter_of(key), &fields);
}

/// All documents, with what is in them and when they were changed last.
pub fn snapshot(server: &Firestore) -> BTreeMap<String, String> {
    let documents = server.documents().into_iter();
    documents.map(|(path, document)| (path, format!("{} {}", document.update_time, document.fields))).collect()
}
