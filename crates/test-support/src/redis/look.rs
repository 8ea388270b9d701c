use std::collections::BTreeMap;

use leasehold::LockId;
use serde_json::Value;
use test_servers::Redis;

/// What every name starts with unless a prefix is chosen.
pub const PREFIX: &str = "syncguard";

/// The name of the set of held locks.
pub const HELD: &str = "syncguard:id:held";

/// The name of the record of a lock.
pub fn record_of(key: &str) -> String {
    format!("{PREFIX}:{key}")
}

/// The name of what leads from a lock id to its record.
pub fn index_of(id: &LockId) -> String {
    format!("{PREFIX}:id:{}", id.expose())
}

/// The name of the last fence of a key.
pub fn counter_of(key: &str) -> String {
    format!("{PREFIX}:fence:{PREFIX}:{key}")
}

/// The server's clock, in milliseconds.
pub fn now(server: &Redis) -> u64 {
    let time = server.cli(&["TIME"]);
    let (seconds, micros) = time.split_once('\n').unwrap();
    seconds.parse::<u64>().unwrap() * 1000 + micros.parse::<u64>().unwrap() / 1000
}

/// What is stored under a name; empty if there is nothing.
pub fn get(server: &Redis, name: &str) -> String {
    server.cli(&["GET", name])
}

/// What is stored under a name, as JSON.
pub fn json(server: &Redis, name: &str) -> Value {
    serde_json::from_str(&get(server, name)).unwrap()
}

/// How long a name has left in milliseconds: -1 without an end, -2 if there is none.
pub fn pttl(server: &Redis, name: &str) -> i64 {
    server.cli(&["PTTL", name]).parse().unwrap()
}

/// Whether there is something under a name.
pub fn exists(server: &Redis, name: &str) -> bool {
    server.cli(&["EXISTS", name]) == "1"
}

/// Everything in the server, with what it is and when it ends.
pub fn snapshot(server: &Redis) -> BTreeMap<String, String> {
    let names = server.cli(&["KEYS", "*"]);
    let describe = |name: &str| {
        let script = "local t = redis.call('TYPE', KEYS[1]).ok
            local v = t == 'string' and redis.call('GET', KEYS[1])
              or t == 'list' and cjson.encode(redis.call('LRANGE', KEYS[1], 0, -1)) or t
            return t .. ' ' .. redis.call('PEXPIRETIME', KEYS[1]) .. ' ' .. v";
        (name.to_owned(), server.cli(&["EVAL", script, "1", name]))
    };
    names.lines().map(describe).collect()
}
