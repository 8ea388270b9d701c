//! What the command of `run` may do with the locks it runs under: the running `leasehold` does it,
//! asked through a socket that only its user can reach. So it knows of it, and the command needs no
//! credentials.

mod ask;
mod serve;

use leasehold::{Key, LockId};
use serde_json::{Value, json};

pub(crate) use ask::ask;
pub(crate) use serve::OwnLock;

use crate::key_view::KeyView;

/// The variable that names the socket.
pub(crate) const VARIABLE: &str = "LEASEHOLD_SOCKET";

/// No request is longer.
const LONGEST_REQUEST: u64 = 128 * 1024;

/// No answer is longer: a thousand who stand in line have metadata of 4 KiB each at most, which is
/// escaped and sent twice.
const LONGEST_ANSWER: u64 = 64 * 1024 * 1024;

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Extend { lock_id: LockId, ttl_ms: u64 },
    Release { lock_id: LockId },
    Show { key: Key },
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Whether the lock was there to be extended or released.
    Done(bool),
    /// Who holds the lock, and who waits for it.
    Shown(Shown),
    /// Nobody holds it, and nobody waits for it.
    NotHeld,
}

/// All about a key, for people and for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) object: Value,
    pub(crate) is_held: bool,
}

impl Shown {
    pub(crate) fn of(view: &KeyView) -> Self {
        Self { text: view.text(), object: view.object(), is_held: view.is_held() }
    }
}

impl Request {
    /// As a line. `store` is the store that is meant.
    fn encode(&self, store: &str) -> Value {
        match self {
            Request::Extend { lock_id, ttl_ms } => {
                json!({ "do": "extend", "store": store, "lock_id": lock_id.expose(), "ttl_ms": ttl_ms })
            }
            Request::Release { lock_id } => json!({ "do": "release", "store": store, "lock_id": lock_id.expose() }),
            Request::Show { key } => json!({ "do": "show", "store": store, "key": key }),
        }
    }

    /// The store that is meant, and what to do there.
    fn decode(line: &Value) -> Option<(&str, Self)> {
        let lock_id = || line["lock_id"].as_str()?.parse().ok();
        let request = match line["do"].as_str()? {
            "extend" => Request::Extend { lock_id: lock_id()?, ttl_ms: line["ttl_ms"].as_u64()? },
            "release" => Request::Release { lock_id: lock_id()? },
            "show" => Request::Show { key: Key::new(line["key"].as_str()?).ok()? },
            _ => return None,
        };
        Some((line["store"].as_str()?, request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_written() {
        let lock_id: LockId = "AAAAAAAAAAAAAAAAAAAAAA".parse().unwrap();
        for request in [
            Request::Extend { lock_id, ttl_ms: 7 },
            Request::Release { lock_id },
            Request::Show { key: Key::new("a \"key\"").unwrap() },
        ] {
            assert_eq!(Request::decode(&request.encode("redis://h")), Some(("redis://h", request)));
        }
        for odd in [json!({}), json!({ "do": "extend", "store": "s", "lock_id": "short", "ttl_ms": 1 }), json!([1])] {
            assert_eq!(Request::decode(&odd), None, "{odd}");
        }
    }
}
