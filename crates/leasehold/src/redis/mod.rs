//! Locks in a Redis server.

mod connection;
mod driver;
mod error;
mod examine;
#[cfg(feature = "_fuzzing")]
pub(crate) mod fuzzing;
mod herd;
mod list;
mod many;
mod names;
mod options;
mod password_file;
mod push;
mod record;
mod refusal;
mod script;
mod sentinel;
mod server;
mod tls;
mod url;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use redis::{FromRedisValue, Value};

use self::connection::ReconnectingConnection;
use self::names::Names;
use self::push::{Source, SubscriberConnection};
use self::script::Script;
use self::server::Server;
use crate::backend::{
    Absence, Acquire, AcquireRequest, Backend, Capabilities, Extend, ForceRelease, Grant, ListPage, ListRequest,
    LookupBy, Record, Release, Subscription, TimeAuthority, Topic,
};
use crate::remote::listener::Listener;
use crate::remote::notification::granted_to;
use crate::remote::per_runtime::PerRuntime;
use crate::remote::stored::Stored;
use crate::timestamp::TOLERANCE_MILLIS;
use crate::{Error, ErrorCode, Fence, Key, LockId, Operation, Timestamp, Ttl};

pub(crate) use driver::Driver;
pub use options::{RedisOptions, RedisTls};

/// The largest whole number a script can count with.
const LARGEST: u64 = (1 << 53) - 1;

/// Locks in a Redis or Valkey server, in a cluster of them, or behind Sentinel.
///
/// The layout is shared with the Node.js library SyncGuard: programs of both kinds exclude each
/// other and continue the same fences. Time is the server's. Every operation is one script and one
/// round trip, and so are the heartbeats of up to 64 locks.
///
/// A handle has one connection for each runtime that uses it, made on first use there, made again
/// when it is lost, and closed when the runtime is gone or nobody used it for five minutes. The
/// heartbeats of [`Locks`](crate::Locks) run on a runtime of their own, which also has the one
/// connection for wake-ups, however many wait.
///
/// A server that fails over to a replica, or restarts without its last writes, forgets the locks of
/// its last moments: two may hold one lock then, each with a fence of its own, as long as the
/// clocks of both servers agree. What a lock protects has to check the [fence](Fence) if that
/// matters. `leasehold doctor` and [`examine`](Redis::examine) tell how likely it is.
///
/// ```no_run
/// use leasehold::redis::Redis;
/// use leasehold::Locks;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let locks = Locks::new(Redis::connect("redis://127.0.0.1").await?);
/// locks.lock("payment:42").run(|lease| async move { println!("fence {}", lease.fence()) }).await?;
/// # Ok(())
/// # }
/// ```
pub struct Redis {
    names: Names,
    server: Arc<Server>,
    connections: PerRuntime<ReconnectingConnection>,
    listeners: PerRuntime<Listener>,
}

impl Redis {
    /// Connects to the server at `url`:
    ///
    /// | URL | what |
    /// | --- | --- |
    /// | `redis://user:password@host:6379/0` | one server; `valkey://` is the same |
    /// | `rediss://host` | the same with TLS; `valkeys://` is the same |
    /// | `unix:///run/redis.sock` | a socket; `?db=1&user=me&pass=secret` |
    /// | `redis://node-1,node-2,node-3?prefix={locks}` | a cluster, or whichever of the hosts can be reached first |
    /// | `redis+sentinel://host-1:26379,host-2:26379/mymaster/0` | the primary that Sentinel names; with TLS `rediss+sentinel://` |
    ///
    /// The options of [`RedisOptions`] go after a question mark: `prefix`, `timeout` such as `5s`,
    /// `ca`, `cert`, `key`, `sentinel_user` and `sentinel_password`. Special characters are
    /// percent-encoded.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorCode::InvalidArgument) if the URL is wrong,
    /// [`AuthFailed`](ErrorCode::AuthFailed) if the server does not let us in,
    /// [`ServiceUnavailable`](ErrorCode::ServiceUnavailable) or
    /// [`NetworkTimeout`](ErrorCode::NetworkTimeout) if it cannot be reached. No message repeats
    /// the URL.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(url, RedisOptions::default()).await
    }

    /// Connects to the server at `url` in the way `options` say.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// As [`connect`](Redis::connect).
    pub async fn connect_with(url: &str, options: RedisOptions) -> Result<Self, Error> {
        let (server, options) = url::parse(url, options)?;
        let redis = Self {
            names: Names::new(&options.prefix)?,
            server: Arc::new(server),
            connections: PerRuntime::new(),
            listeners: PerRuntime::new(),
        };
        redis.connection()?.ready().await?;
        Ok(redis)
    }

    async fn run<T: FromRedisValue>(
        &self,
        operation: Operation,
        script: &Script,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<T, Error> {
        let value = self.connection()?.run(operation, script, keys, arguments).await?;
        redis::from_redis_value(value).map_err(|source| {
            Error::new(ErrorCode::Internal, "an unexpected answer of the server")
                .with_source(source)
                .during(operation)
                .with_outcome_unknown()
        })
    }

    /// Removes what the key of an examination has left: its fence.
    async fn forget(&self, key: &Key) -> Result<(), Error> {
        let counter = self.names.fence(&self.names.lock(key)?)?;
        let mut command = redis::cmd("DEL");
        command.arg(counter);
        self.connection()?.query(&command).await.map(drop)
    }

    /// The connection of the runtime that runs the caller.
    fn connection(&self) -> Result<Arc<ReconnectingConnection>, Error> {
        self.connections.get(|| Ok(ReconnectingConnection::new(self.server.clone())))
    }

    /// The listener of the runtime that runs the caller.
    fn listener(&self) -> Result<Arc<Listener>, Error> {
        let source =
            || Source { server: self.server.clone(), taken: self.names.taken(), granted: self.names.granted() };
        self.listeners.get(|| Ok(Listener::start::<SubscriberConnection>(Arc::new(source()))))
    }

    /// The live record under a key or an id.
    async fn find(&self, operation: Operation, by: LookupBy<'_>) -> Result<Option<Stored>, Error> {
        let (script, name) = match by {
            LookupBy::Key(key) => (&*script::BY_KEY, self.names.lock(key)?),
            LookupBy::Id(id) => (&*script::BY_ID, self.names.index(id)),
        };
        let (now, raw): (u64, Option<Vec<u8>>) = self.run(operation, script, &[&name], &[]).await?;
        let Some(raw) = raw else { return Ok(None) };
        let stored = record::parse(&raw).map_err(|error| error.during(operation))?;
        let wanted = match by {
            LookupBy::Key(_) => true,
            // The index may have outlived its lock.
            LookupBy::Id(id) => stored.has_id(id),
        };
        Ok(Some(stored).filter(|stored| wanted && stored.is_live(Timestamp::from_millis(now))))
    }
}

#[async_trait]
impl Backend for Redis {
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        let names = &self.names;
        let lock = names.lock(&request.key)?;
        let (fence, index) = (names.fence(&lock)?, names.index(&request.lock_id));
        let (key, rest) = record::parts(request);
        let steal = request.steal;
        let same_holder = if steal.same_holder() { request.holder.as_str() } else { "" };
        let held_longer_than = steal.held_longer_than().map(|time| {
            let millis = u64::try_from(time.as_millis()).unwrap_or(LARGEST);
            millis.min(LARGEST).to_string()
        });
        let stuck_fence = steal.fence().map(String::from);
        let (ttl, life) = lifetime(request.ttl);
        let arguments = [
            request.lock_id.expose(),
            &ttl,
            &life,
            &key,
            &rest,
            &names.taken(),
            same_holder,
            held_longer_than.as_deref().unwrap_or_default(),
            stuck_fence.as_deref().unwrap_or_default(),
            &names.granted(),
            &granted_to(Some(&request.holder), &request.key),
            if names.may_be_in_cluster() { "1" } else { "" },
            &names.held(),
        ];
        let answer: Value =
            self.run(Operation::Acquire, &script::ACQUIRE, &[&lock, &fence, &index], &arguments).await?;
        decode_acquire(answer, request).map_err(|error| error.during(Operation::Acquire))
    }

    async fn release(&self, id: &LockId) -> Result<Release, Error> {
        let index = self.names.index(id);
        let arguments = [id.expose(), &self.names.held()];
        let answer = self.run(Operation::Release, &script::RELEASE, &[&index], &arguments).await?;
        Ok(decode_release(answer))
    }

    async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        let index = self.names.index(id);
        let (ttl, life) = lifetime(ttl);
        let arguments = [id.expose(), &ttl, &life];
        let answer = self.run(Operation::Extend, &script::EXTEND, &[&index], &arguments).await?;
        Ok(decode_extend(answer))
    }

    async fn extend_many(&self, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
        self.extend_together(locks).await
    }

    async fn release_many(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        self.release_together(ids).await
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        Ok(self.find(Operation::IsLocked, LookupBy::Key(key)).await?.is_some())
    }

    async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        let found = self.find(Operation::Lookup, by).await?;
        found.map(record::into_record).transpose().map_err(|error| error.during(Operation::Lookup))
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
        self.list_page(request).await
    }

    async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error> {
        let channel = match topic {
            Topic::Freed(key) => Names::freed(&self.names.lock(key)?),
            Topic::Taken => self.names.taken(),
            Topic::Granted => self.names.granted(),
        };
        self.listener()?.subscribe(channel, topic.backlog(), self.server.timeout).await
    }

    async fn force_release(&self, key: &Key) -> Result<ForceRelease, Error> {
        let name = self.names.lock(key)?;
        let arguments = [&*self.names.indexes(), &self.names.taken(), &self.names.held()];
        let ended: Option<Vec<u8>> =
            self.run(Operation::ForceRelease, &script::FORCE_RELEASE, &[&name], &arguments).await?;
        let Some(raw) = ended else { return Ok(ForceRelease::Absent) };
        let record = record::parse(&raw).and_then(record::into_record);
        record.map(ForceRelease::Released).map_err(|error| error.during(Operation::ForceRelease))
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        // Under a name with our prefix, as a user may have rights on those alone.
        let probe = format!("{}now", self.names.start());
        let (now, _): (u64, Value) = self.run(Operation::Lookup, &script::BY_KEY, &[&probe], &[]).await?;
        Ok(Timestamp::from_millis(now))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(TimeAuthority::Store)
            .with_wake_ups(true)
            .with_clock_floored_fences(true)
            .with_call_timeout(self.server.timeout)
    }
}

/// What the script of acquire answered: a new grant, or a record that stands.
fn decode_acquire(answer: Value, request: &AcquireRequest) -> Result<Acquire, Error> {
    let strange = || Error::new(ErrorCode::Internal, "an unexpected answer of the server").with_outcome_unknown();
    let number = |value: &Value| match value {
        Value::Int(number) => u64::try_from(*number).map_err(|_| strange()),
        _ => Err(strange()),
    };
    let Value::Array(answer) = answer else { return Err(strange()) };
    match &answer[..] {
        [Value::Int(1), fence, acquired_at, expires_at] => Ok(Acquire::Granted(Grant {
            lock_id: request.lock_id,
            fence: Fence::new(number(fence)?)?,
            acquired_at: Timestamp::from_millis(number(acquired_at)?),
            expires_at: Timestamp::from_millis(number(expires_at)?),
        })),
        [Value::Int(0), now, Value::BulkString(raw)] => {
            let now = Timestamp::from_millis(number(now)?);
            let stored = record::parse(raw)?;
            if stored.has_id(&request.lock_id) {
                return Ok(Acquire::Granted(record::into_record(stored)?.grant()));
            }
            Ok(Acquire::Held(stored.contention(now)))
        }
        _ => Err(strange()),
    }
}

fn decode_release(answer: i64) -> Release {
    match answer {
        1 => Release::Released,
        absence => Release::Absent(absent(absence)),
    }
}

fn decode_extend(answer: i64) -> Extend {
    match u64::try_from(answer) {
        Ok(expiry) if expiry > 0 => Extend::Extended { expires_at: Timestamp::from_millis(expiry) },
        _ => Extend::Absent(absent(answer)),
    }
}

/// A ttl, and how long the server keeps the record: until nobody needs to respect it any more.
fn lifetime(ttl: Ttl) -> (String, String) {
    (ttl.as_millis().to_string(), (ttl.as_millis() + TOLERANCE_MILLIS).to_string())
}

fn absent(answer: i64) -> Absence {
    if answer == -1 { Absence::Expired } else { Absence::NotFound }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("prefix", &self.names.start()).finish_non_exhaustive()
    }
}
