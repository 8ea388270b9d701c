use std::collections::HashMap;

use redis::{Cmd, FromRedisValue};

use super::error::{server_error, translate};
use super::server::Place;
use super::{Redis, script};
use crate::{Check, Error, ErrorCode, LockId, Operation, Verdict};

/// What it takes to know how many wait for a lock.
const NUMSUB: &str = "+pubsub|numsub";

/// What it takes to keep and use the set of held locks.
const OF_HELD: [&str; 6] = ["+exists", "+sadd", "+srem", "+srandmember", "+sscan", "+info"];

/// What it takes to share a lock or to wait in line for one.
const OF_LINES: [&str; 12] = [
    "+zadd",
    "+zrem",
    "+zrange",
    "+zrevrange",
    "+zrangebyscore",
    "+zcard",
    "+zcount",
    "+zscore",
    "+zrank",
    "+setbit",
    "+bitpos",
    "+pexpireat",
];

/// How many names are looked at to judge the rest by.
const SAMPLE: usize = 1000;

/// The oldest version that has all we need.
const OLDEST: (u32, u32) = (6, 0);

impl Redis {
    /// Looks for whatever could break locks or fences in this server.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// As for any operation, if the server cannot be asked at all.
    pub async fn examine(&self) -> Result<Vec<Check>, Error> {
        self.client()?.connection.ready().await?;
        let info = self.info_of_primary().await?;
        let mut checks = vec![version(&info), self.permissions().await?, self.listening().await];
        if info.is_empty() {
            let detail = "the user may not run INFO, so eviction, persistence and replicas cannot be checked";
            checks.push(Check::new("configuration", Verdict::Warn, detail));
            return Ok(checks);
        }
        checks.push(self.role(&info));
        checks.push(eviction(&info));
        checks.extend(self.fence_counters(&info).await);
        checks.push(self.persistence(&info).await);
        checks.push(self.replicas(&info).await);
        checks.extend(self.cluster(&info).await);
        Ok(checks)
    }

    /// What the server tells of itself; empty if it may not be asked.
    async fn info(&self) -> HashMap<String, String> {
        let text: String = self.ask(&redis::cmd("INFO")).await.unwrap_or_default();
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
    }

    /// What the server that has the locks tells of itself: the one that a cluster sends us to, or
    /// the first of several hosts that is no replica.
    async fn info_of_primary(&self) -> Result<HashMap<String, String>, Error> {
        let probe = self.names.index(&LockId::random()?);
        let mut info = HashMap::new();
        for _ in 0..self.server.endpoints() {
            // Only to be sent to the right place. What is not allowed shows later.
            let _ = self.client()?.connection.run(Operation::Lookup, &script::BY_KEY, &[&probe], &[]).await;
            info = self.info().await;
            if info.get("role").is_none_or(|role| role == "master") {
                break;
            }
            self.client()?.connection.try_other_host();
        }
        Ok(info)
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Option<T> {
        let value = self.client().ok()?.connection.query(command).await.ok()?;
        redis::from_redis_value(value).ok()
    }

    /// One setting; none if it may not be asked for.
    async fn setting(&self, name: &str) -> Option<String> {
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg(name);
        self.ask::<HashMap<String, String>>(&command).await?.remove(name)
    }

    /// Tries every command that the scripts use, on a name and a channel of our own.
    async fn permissions(&self) -> Result<Check, Error> {
        if let Some(check) = self.scripts().await {
            return Ok(check);
        }
        let names = &self.names;
        // The name of an index that nobody has: every other name could be that of somebody's lock.
        let (probe, pattern) = (names.index(&LockId::random()?), names.index_pattern());
        let tried = self
            .client()?
            .connection
            .run(Operation::Lookup, &script::PERMISSIONS, &[&probe], &[&names.taken(), &pattern])
            .await;
        let answers: Vec<String> = match tried {
            Ok(value) => redis::from_redis_value(value).unwrap_or_default(),
            // Scripts may be run, but not with this name.
            Err(error) if error.code() == ErrorCode::AuthFailed => {
                let detail = format!("missing: grant ~{}*", names.start());
                return Ok(Check::new("permissions", Verdict::Fail, detail));
            }
            Err(error) => return Err(error),
        };
        let mut missing = Vec::new();
        for pair in answers.chunks_exact(2) {
            let (command, answer) = (pair[0].to_ascii_lowercase(), &pair[1]);
            let denied = ["NOPERM", "permission", "user executing the script"];
            if !denied.iter().any(|word| answer.contains(word)) {
                return Ok(Check::failed("permissions", &translate(server_error(answer.as_bytes()), false)));
            }
            missing.push(match () {
                () if answer.contains("channel") => format!("&{}*", names.start()),
                () if answer.contains("key") => format!("~{}*", names.start()),
                () if command == "pubsub" => NUMSUB.to_owned(),
                () => format!("+{command}"),
            });
        }
        missing.dedup();
        Ok(judge_permissions(&missing))
    }

    /// What is wrong if scripts cannot be run by hash or by source.
    async fn scripts(&self) -> Option<Check> {
        let mut missing = Vec::new();
        for (command, script, rule) in [("EVALSHA", "0".repeat(40), "+evalsha"), ("EVAL", "return 1".into(), "+eval")] {
            let mut command = redis::cmd(command);
            command.arg(script).arg(0);
            if self
                .client()
                .ok()?
                .connection
                .query(&command)
                .await
                .is_err_and(|error| error.code() == ErrorCode::AuthFailed)
            {
                missing.push(rule);
            }
        }
        let start = self.names.start();
        let detail = match missing[..] {
            [] => return None,
            [rule] => format!("missing: grant {rule}"),
            _ => format!(
                "the user may not run scripts: grant +evalsha +eval +time +get +set +mget +del +scan {} {} +publish \
                 {NUMSUB} +subscribe +unsubscribe +ping ~{start}* &{start}*",
                OF_HELD.join(" "),
                OF_LINES.join(" ")
            ),
        };
        Some(Check::new("permissions", Verdict::Fail, detail))
    }

    /// Whether wake-ups can be received.
    async fn listening(&self) -> Check {
        let start = self.names.start();
        let channel = format!("{start}doctor");
        let mut step = String::new();
        let listen = async {
            let mut connection = self.server.connect(None).await?;
            let subscribed = connection.commands.subscribe(&channel).await;
            if let Err(error) = &subscribed {
                let of_channel = error.detail().is_some_and(|detail| detail.contains("channel"));
                step = if of_channel { format!("&{start}*") } else { "+subscribe".to_owned() };
            }
            subscribed?;
            step = "+ping".to_owned();
            redis::cmd("PING").exec_async(&mut connection.commands).await?;
            step = "+unsubscribe".to_owned();
            connection.commands.unsubscribe(&channel).await
        };
        match listen.await {
            Ok(()) => Check::new("listening", Verdict::Ok, "the server tells of released locks"),
            Err(error) if error.code() == Some("NOPERM") => {
                Check::new("listening", Verdict::Warn, format!("waiting has to poll: grant {step}"))
            }
            Err(_) => Check::new("listening", Verdict::Warn, "no second connection to the server: waiting has to poll"),
        }
    }

    fn role(&self, info: &HashMap<String, String>) -> Check {
        let through = match &self.server.place {
            Place::Hosts(_) => "",
            Place::Sentinels { .. } => ", found through Sentinel",
        };
        match info.get("role").map(String::as_str) {
            Some("master") => Check::new("role", Verdict::Ok, format!("primary{through}")),
            Some(_) => Check::new("role", Verdict::Fail, "a replica, which takes no locks: connect to the primary"),
            None => Check::new("role", Verdict::Warn, "the server does not tell"),
        }
    }

    /// How many keys have a fence counter, judged by some of the names in the database.
    async fn fence_counters(&self, info: &HashMap<String, String>) -> Option<Check> {
        let database = info.get(&format!("db{}", self.server.database())).map_or("", String::as_str);
        let keys = database.split(',').find_map(|field| field.strip_prefix("keys=")?.parse::<usize>().ok());
        let mut command = redis::cmd("SCAN");
        command.arg(0).arg("COUNT").arg(SAMPLE);
        let (next, names): (String, Vec<Vec<u8>>) = self.ask(&command).await?;
        let start = format!("{}fence:", self.names.start());
        let counters = names.iter().filter(|name| name.starts_with(start.as_bytes())).count();
        let number = match keys {
            Some(keys) if next != "0" && !names.is_empty() => format!("about {}", keys * counters / names.len()),
            _ => counters.to_string(),
        };
        let detail = format!("{number} fence counters: each key that was ever locked keeps one, of some 120 bytes");
        Some(Check::new("counters", Verdict::Ok, detail))
    }

    async fn persistence(&self, info: &HashMap<String, String>) -> Check {
        let on = |field: &str| info.get(field).is_some_and(|value| value == "1");
        if on("aof_enabled") {
            return match self.setting("appendfsync").await.as_deref() {
                Some("always") => {
                    Check::new("persistence", Verdict::Ok, "every write is on disk before it is answered")
                }
                Some("everysec") => Check::new(
                    "persistence",
                    Verdict::Warn,
                    "appendfsync everysec: a crash of the machine forgets the locks of the last second or two; fences stay unique. \
                     `appendfsync always` forgets none",
                ),
                Some(_) => Check::new(
                    "persistence",
                    Verdict::Warn,
                    "appendfsync no: a crash of the machine forgets the locks of the last half minute; fences stay unique",
                ),
                None => {
                    Check::new("persistence", Verdict::Warn, "append-only file; how often it is synced cannot be told")
                }
            };
        }
        let snapshots = self.setting("save").await;
        let detail = match snapshots.as_deref() {
            Some("") => "off: a restart forgets all locks; fences stay unique while the clock does not go back",
            _ => {
                "snapshots at most: a restart forgets the locks since the last one; fences stay unique while the clock does \
                  not go back"
            }
        };
        Check::new("persistence", Verdict::Warn, format!("{detail}. `appendonly yes` keeps them"))
    }

    async fn replicas(&self, info: &HashMap<String, String>) -> Check {
        let connected = info.get("connected_slaves").and_then(|count| count.parse::<u32>().ok()).unwrap_or(0);
        if connected == 0 {
            return Check::new("replicas", Verdict::Ok, "none");
        }
        match self.setting("min-replicas-to-write").await.and_then(|count| count.parse::<u32>().ok()) {
            Some(0) => Check::new(
                "replicas",
                Verdict::Warn,
                format!(
                    "{connected}, and a primary that is cut off from them goes on granting locks that a failover forgets: \
                     set min-replicas-to-write to 1 or more"
                ),
            ),
            Some(least) => Check::new(
                "replicas",
                Verdict::Ok,
                format!(
                    "{connected}; without {least} of them no lock is granted. Replication is asynchronous all the same"
                ),
            ),
            None => Check::new("replicas", Verdict::Warn, format!("{connected}; min-replicas-to-write cannot be told")),
        }
    }

    /// Whether locks can be used while a cluster moves them.
    async fn may_ask(&self) -> bool {
        // On a connection of its own, because it changes what the next command means.
        let Ok(mut connection) = self.server.connect(None).await else { return true };
        let asking = redis::cmd("ASKING");
        let asked = tokio::time::timeout(self.server.timeout, asking.exec_async(&mut connection.commands)).await;
        !asked.is_ok_and(|asked| asked.is_err_and(|error| error.code() == Some("NOPERM")))
    }

    async fn cluster(&self, info: &HashMap<String, String>) -> Option<Check> {
        if info.get("cluster_enabled").is_none_or(|enabled| enabled != "1") {
            return None;
        }
        let start = self.names.start();
        let tagged =
            start.split_once('{').and_then(|(_, rest)| rest.split_once('}')).is_some_and(|(tag, _)| !tag.is_empty());
        Some(match tagged {
            true if !self.may_ask().await => Check::new(
                "cluster",
                Verdict::Warn,
                "locks cannot be used while the cluster moves them to another node: grant +asking",
            ),
            true => Check::new("cluster", Verdict::Ok, "the prefix has a hash tag, so all locks are on one node"),
            false => Check::new(
                "cluster",
                Verdict::Fail,
                "the prefix has no hash tag: use for example ?prefix={locks}, so that all locks are on one node",
            ),
        })
    }
}

/// What follows from rules that are missing. Locks work without some of them.
fn judge_permissions(missing: &[String]) -> Check {
    let (of_held, others): (Vec<_>, Vec<_>) = missing.iter().partition(|rule| OF_HELD.contains(&rule.as_str()));
    let only_wake_ups = others.iter().all(|rule| *rule == "+publish" || *rule == NUMSUB || rule.starts_with('&'));
    let waiting = match others[..] {
        [] => None,
        [rule] if rule == NUMSUB => Some("those who wait for one lock all try at once when it is free"),
        _ => Some("waiters cannot be woken and have to poll"),
    };
    let listing = (!of_held.is_empty()).then_some("listings look at all names in the database");
    let rules = missing.join(" ");
    match (missing, only_wake_ups) {
        ([], _) => Check::new("permissions", Verdict::Ok, "everything that locks need is allowed"),
        (_, true) => {
            let effects: Vec<_> = [waiting, listing].into_iter().flatten().collect();
            Check::new("permissions", Verdict::Warn, format!("{}: grant {rules}", effects.join(", and ")))
        }
        _ => Check::new("permissions", Verdict::Fail, format!("missing: grant {rules}")),
    }
}

fn version(info: &HashMap<String, String>) -> Check {
    let (name, found) = match (info.get("valkey_version"), info.get("redis_version")) {
        (Some(version), _) => ("Valkey", version),
        (None, Some(version)) => ("Redis", version),
        (None, None) => return Check::new("redis", Verdict::Warn, "the server does not tell its version"),
    };
    let mut numbers = found.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let found_version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if info.get("arch_bits").is_some_and(|bits| bits != "64") {
        return Check::new(
            "redis",
            Verdict::Fail,
            format!("{name} {found} for 32 bits, whose scripts cannot count high enough"),
        );
    }
    let verdict = if found_version >= OLDEST { Verdict::Ok } else { Verdict::Fail };
    Check::new("redis", verdict, format!("{name} {found}"))
}

/// Fence counters have no expiry, so only the `allkeys` policies evict them; the others evict
/// locks, which have one.
fn eviction(info: &HashMap<String, String>) -> Check {
    let policy = info.get("maxmemory_policy").map_or("unknown", String::as_str);
    let limited = info.get("maxmemory").is_none_or(|limit| limit != "0");
    let (verdict, detail) = match policy {
        "noeviction" => (Verdict::Ok, "a full server refuses new locks and keeps those it has".to_owned()),
        _ if !limited => {
            (Verdict::Warn, format!("{policy}, but without a limit on memory; `noeviction` is safe with one too"))
        }
        _ if policy.starts_with("allkeys") => (
            Verdict::Fail,
            format!(
                "{policy}: a full server forgets locks that are held, and fence counters. Set maxmemory-policy noeviction"
            ),
        ),
        _ => (
            Verdict::Fail,
            format!("{policy}: a full server forgets locks that are held. Set maxmemory-policy noeviction"),
        ),
    };
    Check::new("eviction", verdict, detail)
}
