//! Locks of the other library, written by hand.

use serde_json::{Value, json};
use test_servers::Firestore;

use super::look::{integer, last_fence, lock_of, now, set_last_fence, text};
use crate::{Foreign, id};

type Style = fn(u64) -> Value;

/// Ways to write a time: as a whole number, and as JavaScript does if it is left to itself.
pub(super) const STYLES: [Style; 2] = [integer, |time| json!({ "doubleValue": time })];

/// Writes the documents of a lock.
pub(super) fn write(server: &Firestore, key: &str, held_for: u64, left: i64, style: usize) -> Foreign {
    let (now, id) = (now(server), id());
    let (acquired_at, expires_at) = (now - held_for, now.checked_add_signed(left).unwrap());
    let fence = last_fence(server, key).unwrap_or(0) + 1;
    set_last_fence(server, key, fence);
    let time = STYLES[style];
    let fields = json!({
        "lockId": text(id.expose()),
        "expiresAtMs": time(expires_at),
        "acquiredAtMs": time(acquired_at),
        "key": text(key),
        "fence": text(&format!("{fence:015}")),
        // Of a later version, perhaps.
        "note": { "mapValue": { "fields": { "of": text("nobody") } } },
    });
    server.set_document(&lock_of(key), &fields);
    Foreign { key: key.to_owned(), id, fence, acquired_at, expires_at }
}
