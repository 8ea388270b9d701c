//! The other library, as far as its layout in the server goes: what it reads and writes in one script for each operation.

use leasehold::LockId;
use test_servers::Redis as Server;

use crate::support::{PREFIX, index_of};

/// KEYS  lock, index, fence counter. ARGV  lock id, ttl, key. Returns the fence, or nothing if the lock is held.
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
pub(crate) struct Other<'a>(pub(crate) &'a Server);

impl Other<'_> {
    /// Takes the lock of `key` and returns its fence, unless it is held.
    pub(crate) fn acquire(&self, key: &str, id: &LockId, ttl: u64) -> Option<u64> {
        let (lock, fence) = (format!("{PREFIX}:{key}"), format!("{PREFIX}:fence:{PREFIX}:{key}"));
        let (index, ttl) = (index_of(id), ttl.to_string());
        let answer = self.0.cli(&["EVAL", ACQUIRE, "3", &lock, &index, &fence, id.expose(), &ttl, key]);
        if answer.is_empty() {
            return None;
        }
        assert_eq!(answer.len(), 15, "{answer}");
        Some(answer.parse().unwrap())
    }

    pub(crate) fn extend(&self, id: &LockId, ttl: u64) -> bool {
        self.answer(&["EVAL", EXTEND, "1", &index_of(id), id.expose(), &ttl.to_string()])
    }

    pub(crate) fn release(&self, id: &LockId) -> bool {
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
