use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use super::answers::number;
use super::control::{send, send_all, socket};
use super::{Firestore, FirestoreCounts, FirestoreDocument, FirestoreFault};
use crate::server::expect;

/// What tests ask of the server, beside what clients ask. All of it panics if the server does not
/// run, or refuses.
impl Firestore {
    /// All documents by their path.
    #[must_use]
    #[track_caller]
    pub fn documents(&self) -> BTreeMap<String, FirestoreDocument> {
        let prefix = format!("{}/", self.root());
        let answer = self.control(json!({"command": "documents", "prefix": prefix}));
        let documents = answer.as_object().into_iter().flatten();
        documents.map(|(name, document)| (name[prefix.len()..].to_owned(), FirestoreDocument::new(document))).collect()
    }

    /// The document at this path, if there is one.
    #[must_use]
    #[track_caller]
    pub fn document(&self, path: &str) -> Option<FirestoreDocument> {
        self.documents().remove(path)
    }

    /// Writes a document with exactly these fields, in Firestore's JSON. It waits for transactions
    /// as every commit does.
    #[track_caller]
    pub fn set_document(&self, path: &str, fields: &Json) {
        self.control(json!({"command": "set_document", "path": self.name(path), "fields": fields}));
    }

    /// Deletes a document, if there is one.
    #[track_caller]
    pub fn delete_document(&self, path: &str) {
        self.control(json!({"command": "delete_document", "path": self.name(path)}));
    }

    /// What was done since the start or the last [`take_counts`](Self::take_counts).
    #[must_use]
    #[track_caller]
    pub fn counts(&self) -> FirestoreCounts {
        FirestoreCounts::new(&self.control(json!({"command": "counts"})))
    }

    /// As [`counts`](Self::counts), which start from zero again.
    #[track_caller]
    pub fn take_counts(&self) -> FirestoreCounts {
        FirestoreCounts::new(&self.control(json!({"command": "counts", "reset": true})))
    }

    /// How often `method` was called, such as `Commit`.
    #[must_use]
    #[track_caller]
    pub fn calls(&self, method: &str) -> u64 {
        self.counts().calls.get(method).copied().unwrap_or_default()
    }

    /// Lets something go wrong.
    #[track_caller]
    pub fn inject(&self, fault: FirestoreFault) {
        self.control(fault.into_command());
    }

    /// How many calls were hit by the faults that were not cleared.
    #[must_use]
    #[track_caller]
    pub fn fault_hits(&self) -> u64 {
        let answer = self.control(json!({"command": "faults"}));
        answer.as_array().into_iter().flatten().map(|fault| number(fault, "hits")).sum()
    }

    /// Nothing goes wrong any more. What already waits for an answer in vain does so still.
    #[track_caller]
    pub fn clear_faults(&self) {
        self.control(json!({"command": "clear_faults"}));
    }

    /// The server's time.
    #[must_use]
    #[track_caller]
    pub fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(number(&self.control(json!({"command": "now"})), "micros"))
    }

    /// Moves the server's clock to so many milliseconds before or after that of the machine. It
    /// never goes back behind a time that it has told: it then stands still.
    #[track_caller]
    pub fn set_clock_offset(&self, milliseconds: i64) {
        self.control(json!({"command": "clock", "offset_ms": milliseconds}));
    }

    /// Whether commits go ahead, and fail transactions, rather than wait for them.
    #[track_caller]
    pub fn set_optimistic(&self, optimistic: bool) {
        let mode = if optimistic { "optimistic" } else { "pessimistic" };
        self.control(json!({"command": "mode", "mode": mode}));
    }

    /// Transactions are none any more: whatever else they read may change before they commit.
    #[track_caller]
    pub fn ignore_transactions(&self) {
        self.control(json!({"command": "mode", "mode": "careless"}));
    }

    /// How long a commit waits for other transactions; one second as it is.
    #[track_caller]
    pub fn set_lock_wait(&self, duration: Duration) {
        self.control(json!({"command": "limits", "lock_wait_ms": milliseconds(duration)}));
    }

    /// How long a transaction lives without a request, and at all; as it is 60 and 270 seconds.
    #[track_caller]
    pub fn set_transaction_lifetime(&self, idle: Duration, total: Duration) {
        let (idle, total) = (milliseconds(idle), milliseconds(total));
        self.control(json!({"command": "limits", "idle_ms": idle, "total_ms": total}));
    }

    /// Whether queries that need an index of several fields are answered; as it is they are not.
    #[track_caller]
    pub fn set_composite_indexes(&self, exist: bool) {
        self.control(json!({"command": "indexes", "composite": exist}));
    }

    /// Takes the indexes of these fields away, such as `locks.lockId`, and gives all others back.
    #[track_caller]
    pub fn exempt_fields(&self, fields: &[&str]) {
        self.control(json!({"command": "exempt", "fields": fields}));
    }

    /// Makes a database with this id exist, in every project.
    #[track_caller]
    pub fn add_database(&self, id: &str) {
        self.control(json!({"command": "databases", "add": [id]}));
    }

    /// Makes a database, such as `(default)`, not exist. Its documents come back with it.
    #[track_caller]
    pub fn remove_database(&self, id: &str) {
        self.control(json!({"command": "databases", "remove": [id]}));
    }

    /// Makes all tokens that were issued so far worthless. Streams that are open stay so.
    #[track_caller]
    pub fn expire_tokens(&self) {
        self.control(json!({"command": "expire_tokens"}));
    }

    /// Ends all `Listen` streams with this code, such as `UNAVAILABLE`, and says how many.
    #[track_caller]
    pub fn close_streams(&self, code: &str) -> u64 {
        number(&self.control(json!({"command": "close_streams", "code": code})), "closed")
    }

    /// Whether `Listen` streams keep what they hear to themselves. They tell it afterwards.
    #[track_caller]
    pub fn mute_streams(&self, muted: bool) {
        self.control(json!({"command": "mute_streams", "muted": muted}));
    }

    /// Closes this part of the connections, rounded up, and says how many.
    #[track_caller]
    pub fn close_connections(&self, fraction: f64) -> u64 {
        number(&self.control(json!({"command": "close_connections", "fraction": fraction})), "closed")
    }

    /// The number of open connections.
    #[must_use]
    #[track_caller]
    pub fn connections(&self) -> u64 {
        number(&self.control(json!({"command": "connections"})), "open")
    }

    /// The number of open `Listen` streams.
    #[must_use]
    #[track_caller]
    pub fn streams(&self) -> u64 {
        number(&self.control(json!({"command": "listening"})), "streams")
    }

    /// The paths of the documents that somebody listens to by name.
    #[must_use]
    #[track_caller]
    pub fn listened_documents(&self) -> Vec<String> {
        self.listened("documents")
    }

    /// The paths of the collections that somebody listens to by a query.
    #[must_use]
    #[track_caller]
    pub fn listened_collections(&self) -> Vec<String> {
        self.listened("collections")
    }

    /// The number of open transactions that have read something, so that others may have to wait.
    #[must_use]
    #[track_caller]
    pub fn transactions(&self) -> u64 {
        number(&self.control(json!({"command": "transactions"})), "reading")
    }

    #[track_caller]
    fn listened(&self, what: &str) -> Vec<String> {
        let prefix = format!("{}/", self.root());
        let answer = self.control(json!({"command": "listening"}));
        let names = answer[what].as_array().into_iter().flatten().filter_map(Json::as_str);
        names.filter_map(|name| name.strip_prefix(&prefix)).map(str::to_owned).collect()
    }

    fn name(&self, path: &str) -> String {
        format!("{}/{path}", self.root())
    }

    /// Sends many commands, one after the other, as fast as the server takes them.
    #[track_caller]
    pub fn control_all(&self, commands: impl IntoIterator<Item = Json>) {
        expect("firestore-double", send_all(&socket(self.directory()), commands));
    }

    /// Sends any command to the server, and returns its answer.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "commands are written down where they are sent")]
    pub fn control(&self, command: Json) -> Json {
        let mut answer = expect("firestore-double", send(&socket(self.directory()), &command));
        match answer.get_mut("ok") {
            Some(answer) => answer.take(),
            None => panic!("firestore-double refuses {command}: {answer}"),
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
