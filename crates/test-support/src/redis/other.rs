//! The other library, as far as its layout in the server goes: what it reads and writes in one
//! script for each operation.

use async_trait::async_trait;
use leasehold::LockId;
use serde_json::{Value, json};
use test_servers::Redis;

use super::look::{counter_of, index_of, now, record_of};
use crate::{Foreign, OtherLibrary, id};

/// KEYS  lock, index, fence counter. ARGV  lock id, ttl, key. Returns the fence, or nothing if the
/// lock is held.
const ACQUIRE: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local raw = redis.call('GET', KEYS[1])
if raw and cjson.decode(raw).expiresAtMs > now - 1000 then
  return false
end
local fence = string.format('%015d', redis.call('INCR', KEYS[3]))
local record = { lockId = ARGV[1], expiresAtMs = now + tonumber(ARGV[2]), acquiredAtMs = now, key = ARGV[3], fence = fence }
redis.call('SET', KEYS[1], cjson.encode(record), 'PX', ARGV[2])
redis.call('SET', KEYS[2], KEYS[1], 'PX', ARGV[2])
return fence";

/// KEYS  index. ARGV  lock id, ttl. Returns 1 if the lock was held with this id.
const EXTEND: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local name = redis.call('GET', KEYS[1])
local raw = name and redis.call('GET', name)
if not raw then
  return 0
end
local record = cjson.decode(raw)
if record.lockId ~= ARGV[1] or record.expiresAtMs <= now - 1000 then
  return 0
end
record.expiresAtMs = now + tonumber(ARGV[2])
redis.call('SET', name, cjson.encode(record), 'PX', ARGV[2])
redis.call('SET', KEYS[1], name, 'PX', ARGV[2])
return 1";

/// KEYS  index. ARGV  lock id. Returns 1 if the lock was held with this id.
const RELEASE: &str = r"
local name = redis.call('GET', KEYS[1])
local raw = name and redis.call('GET', name)
if not raw or cjson.decode(raw).lockId ~= ARGV[1] then
  return 0
end
redis.call('DEL', name, KEYS[1])
return 1";

/// A process that uses the other library.
#[derive(Debug)]
pub struct Other<'a>(pub &'a Redis);

impl Other<'_> {
    /// Takes the lock of `key` and returns its fence, unless it is held.
    pub fn acquire(&self, key: &str, id: &LockId, ttl: u64) -> Option<u64> {
        let (record, index, counter, ttl) = (record_of(key), index_of(id), counter_of(key), ttl.to_string());
        let answer = self.0.cli(&["EVAL", ACQUIRE, "3", &record, &index, &counter, id.expose(), &ttl, key]);
        if answer.is_empty() {
            return None;
        }
        assert_eq!(answer.len(), 15, "{answer}");
        Some(answer.parse().unwrap())
    }

    /// Returns whether the lock was held with this id.
    pub fn extend(&self, id: &LockId, ttl: u64) -> bool {
        self.answer(&["EVAL", EXTEND, "1", &index_of(id), id.expose(), &ttl.to_string()])
    }

    /// Returns whether the lock was held with this id.
    pub fn release(&self, id: &LockId) -> bool {
        self.answer(&["EVAL", RELEASE, "1", &index_of(id), id.expose()])
    }

    fn answer(&self, command: &[&str]) -> bool {
        match self.0.cli(command).as_str() {
            "1" => true,
            "0" => false,
            other => panic!("{other}"),
        }
    }
}

#[async_trait]
impl OtherLibrary for Other<'_> {
    async fn acquire(&mut self, key: &str, id: &LockId, ttl: u64) -> Option<u64> {
        Self::acquire(self, key, id, ttl)
    }

    async fn extend(&mut self, id: &LockId, ttl: u64) -> bool {
        Self::extend(self, id, ttl)
    }

    async fn release(&mut self, id: &LockId) -> bool {
        Self::release(self, id)
    }
}

type Style = fn(&Value) -> String;

/// Ways to write the same record.
pub(super) const STYLES: [Style; 5] = [
    |record| record.to_string(),
    |record| serde_json::to_string_pretty(record).unwrap(),
    |record| {
        let field = |name: &str| format!("\"{name}\" :  {}", record[name]);
        let fields = ["fence", "key", "acquiredAtMs", "expiresAtMs", "lockId"].map(field);
        format!(" {{ {} }} ", fields.join(" ,\n"))
    },
    |record| {
        let field = |name: &str| format!("\"{name}\":{}", record[name]);
        format!("{{{}}}", ["lockId", "expiresAtMs", "acquiredAtMs", "key", "fence"].map(field).join(","))
    },
    // As JavaScript and Lua write large numbers when they are left to themselves.
    |record| record.to_string().replace("\"fence\"", "\"note\":1.5e300,\"fence\""),
];

/// Writes a record by hand. The server keeps it for half a minute, whatever the record says.
pub(super) fn write(server: &Redis, key: &str, held_for: u64, left: i64, style: usize) -> Foreign {
    let (now, id) = (now(server), id());
    let (acquired_at, expires_at) = (now - held_for, now.checked_add_signed(left).unwrap());
    let fence: u64 = server.cli(&["INCR", &counter_of(key)]).parse().unwrap();
    let record = json!({
        "lockId": id.expose(), "expiresAtMs": expires_at, "acquiredAtMs": acquired_at,
        "key": key, "fence": format!("{fence:015}"),
    });
    assert_eq!(server.cli(&["SET", &record_of(key), &STYLES[style](&record), "PX", "30000"]), "OK");
    assert_eq!(server.cli(&["SET", &index_of(&id), &record_of(key), "PX", "30000"]), "OK");
    Foreign { key: key.to_owned(), id, fence, acquired_at, expires_at }
}
