//! Locks in a Redis server.

mod acquire;
mod client;
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
mod turn;
mod url;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use redis::{FromRedisValue, Value};

use self::client::Client;
use self::names::Names;
use self::push::{Source, SubscriberConnection};
use self::record::{Form, Found};
use self::script::Script;
use self::server::Server;
use crate::backend::{
    Absence, Acquire, AcquireAll, AcquireRequest, Backend, Capabilities, Extend, Inspected, ListPage, ListRequest,
    LookupBy, Record, Release, Subscription, TimeAuthority, Topic, all,
};
use crate::remote::listener::Listener;
use crate::remote::per_runtime::PerRuntime;
use crate::timestamp::TOLERANCE_MILLIS;
use crate::{Error, Fence, Key, LockId, Operation, Timestamp, Ttl};

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
    names: Arc<Names>,
    server: Arc<Server>,
    clients: PerRuntime<Client>,
    /// Whether requests that come together are sent together.
    batching: bool,
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
    /// `batching` (`on` or `off`), `ca`, `cert`, `key`, `sentinel_user` and `sentinel_password`.
    /// Special characters are percent-encoded.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the URL is wrong,
    /// [`AuthFailed`](crate::ErrorCode::AuthFailed) if the server does not let us in,
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable) or
    /// [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) if it cannot be reached. No message
    /// repeats the URL.
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
            names: Arc::new(Names::new(&options.prefix)?),
            server: Arc::new(server),
            clients: PerRuntime::new(),
            batching: options.batching,
            listeners: PerRuntime::new(),
        };
        redis.client()?.connection.ready().await?;
        Ok(redis)
    }

    async fn run<T: FromRedisValue>(
        &self,
        operation: Operation,
        script: &Script,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<T, Error> {
        self.client()?.run(operation, script, keys, arguments).await
    }

    /// Removes what keys have left that only an examination or a try used: their fences. One by
    /// one, because in a cluster they may be in different places.
    async fn forget(&self, keys: &[Key]) -> Result<(), Error> {
        let forgotten = all(keys.iter().map(|key| Box::pin(self.forget_one(key)) as _).collect()).await;
        forgotten.into_iter().collect()
    }

    async fn forget_one(&self, key: &Key) -> Result<(), Error> {
        let counter = self.names.fence(&self.names.lock(key)?)?;
        let mut command = redis::cmd("DEL");
        command.arg(counter);
        self.client()?.connection.query(&command).await.map(drop)
    }

    /// The client of the runtime that runs the caller.
    fn client(&self) -> Result<Arc<Client>, Error> {
        self.clients.get(|| Ok(Client::new(self.names.clone(), self.server.clone(), self.batching)))
    }

    /// The listener of the runtime that runs the caller.
    fn listener(&self) -> Result<Arc<Listener>, Error> {
        let source =
            || Source { server: self.server.clone(), taken: self.names.taken(), granted: self.names.granted() };
        self.listeners.get(|| Ok(Listener::start::<SubscriberConnection>(Arc::new(source()))))
    }

    /// The live lock of a key or an id.
    async fn find(&self, operation: Operation, by: LookupBy<'_>) -> Result<Option<Found>, Error> {
        let (script, name, argument) = match by {
            LookupBy::Key(key) => (&*script::BY_KEY, self.names.lock(key)?, self.names.indexes()),
            LookupBy::Id(id) => (&*script::BY_ID, self.names.index(id), id.expose().to_owned()),
        };
        let (now, form, raw): (u64, Vec<u8>, Option<Vec<u8>>) =
            self.run(operation, script, &[&name], &[&argument]).await?;
        let Some(raw) = raw else { return Ok(None) };
        let form = Form::of(&form).unwrap_or(Form::Record);
        let found = Found::parse(form, &raw).map_err(|error| error.during(operation))?;
        let wanted = match by {
            LookupBy::Key(_) => true,
            // The index may have outlived its lock.
            LookupBy::Id(id) => found.stored.has_id(id),
        };
        Ok(Some(found).filter(|found| wanted && found.stored.is_live(Timestamp::from_millis(now))))
    }
}

#[async_trait]
impl Backend for Redis {
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        self.client()?.acquire(request).await
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        self.client()?.acquire_several(requests).await
    }

    async fn release(&self, id: &LockId) -> Result<Release, Error> {
        self.client()?.release(id).await
    }

    async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        self.client()?.extend_one(id, ttl).await
    }

    async fn extend_many(&self, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
        match self.client() {
            Ok(client) => client.extend_together(locks).await,
            Err(error) => vec![Err(error); locks.len()],
        }
    }

    async fn release_many(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        match self.client() {
            Ok(client) => client.release_together(ids).await,
            Err(error) => vec![Err(error); ids.len()],
        }
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        Ok(self.find(Operation::IsLocked, LookupBy::Key(key)).await?.is_some())
    }

    async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        let found = self.find(Operation::Lookup, by).await?;
        found.map(Found::into_record).transpose().map_err(|error| error.during(Operation::Lookup))
    }

    async fn inspect(&self, key: &Key) -> Result<Inspected, Error> {
        let lock = self.names.lock(key)?;
        let (now, form, holders, waiters): (u64, Vec<u8>, Vec<Vec<u8>>, Vec<Vec<u8>>) =
            self.run(Operation::Lookup, &script::INSPECT, &[&lock], &[&self.names.indexes()]).await?;
        let now = Timestamp::from_millis(now);
        let form = Form::of(&form).unwrap_or(Form::Record);
        let holders = holders.iter().map(|raw| Found::parse(form, raw));
        let holders = holders.filter(|found| found.as_ref().map_or(true, |found| found.stored.is_live(now)));
        let holders: Result<_, _> = holders.map(|found| found.and_then(Found::into_record)).collect();
        let holders = holders.map_err(|error: Error| error.during(Operation::Lookup))?;
        let waiters = waiters.iter().filter_map(|raw| record::parse_place(raw).ok());
        Ok(Inspected::new(holders, waiters.filter(|waiter| waiter.is_live(now)).collect()))
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
        self.list_page(request).await
    }

    async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error> {
        let channel = match topic {
            Topic::Freed(key) => Names::freed(&self.names.lock(key)?),
            Topic::Turn(key, id) => return self.subscribe_to_turn(key, id).await,
            Topic::Taken => self.names.taken(),
            Topic::Granted => self.names.granted(),
        };
        self.listener()?.subscribe(channel, topic.backlog(), self.server.timeout).await
    }

    async fn force_release(&self, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error> {
        let name = self.names.lock(key)?;
        let only = only.map(String::from).unwrap_or_default();
        let arguments = [&*self.names.indexes(), &self.names.taken(), &only];
        let ended: Vec<Vec<u8>> =
            self.run(Operation::ForceRelease, &script::FORCE_RELEASE, &[&name], &arguments).await?;
        let records = ended.chunks_exact(2).map(|pair| {
            let form = Form::of(&pair[0]).unwrap_or(Form::Record);
            Found::parse(form, &pair[1])?.into_record()
        });
        records.collect::<Result<_, _>>().map_err(|error: Error| error.during(Operation::ForceRelease))
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        // Under a name with our prefix, as a user may have rights on those alone.
        let probe = format!("{}now", self.names.start());
        let (now, _, _): (u64, Value, Value) = self.run(Operation::Lookup, &script::BY_KEY, &[&probe], &[""]).await?;
        Ok(Timestamp::from_millis(now))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(TimeAuthority::Store)
            .with_wake_ups(true)
            .with_clock_floored_fences(true)
            .with_lines(true)
            .with_call_timeout(self.server.timeout)
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
