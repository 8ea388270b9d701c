//! Locks in a PostgreSQL database.

mod acquire;
mod acquire_many;
mod answers;
mod batches;
mod class;
mod compare;
mod connections;
mod driver;
mod endpoints;
mod error;
mod examine;
mod extend;
mod functions;
#[cfg(feature = "_fuzzing")]
pub(crate) mod fuzzing;
mod look;
mod many;
mod migration_warnings;
mod obstacle;
mod operations;
mod options;
mod password_file;
mod places;
mod pool;
mod public_url;
mod push;
mod record;
mod rules;
mod search_path;
mod statements;
mod sweep;
mod tables;
mod tls;
mod url;
mod words;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::OnceCell;
use tokio::sync::Semaphore;
use tokio_postgres::types::Type;

use self::batches::Batches;
use self::compare::Functions;
use self::connections::{Connections, Parameter};
use self::endpoints::Endpoints;
use self::obstacle::Wanted;
use self::operations::Operations;
use self::push::{ListenConnection, Source};
use self::record::unreadable;
use self::statements::Statements;
use self::sweep::Sweep;
use self::tables::Tables;
use crate::backend::{
    Acquire, AcquireAll, AcquireRequest, Backend, Capabilities, Extend, Inspected, ListPage, ListRequest, LookupBy,
    Record, Release, StorageKeys, Subscription, TimeAuthority, Topic,
};
use crate::remote::listener::Listener;
use crate::remote::notification::{GRANTED_TOPIC, TAKEN_TOPIC, freed_topic, turn_topic};
use crate::remote::per_runtime::PerRuntime;
use crate::remote::placeholder::hash;
use crate::stores::Migrated;
use crate::{Error, Fence, Key, LockId, Operation, Timestamp, Ttl};

pub(crate) use driver::Driver;
pub use options::PostgresOptions;

/// Locks in a PostgreSQL database.
///
/// The layout is shared with the Node.js library SyncGuard: programs of both kinds exclude each
/// other and continue the same fences. Time is the server's. Every operation is one statement, one
/// transaction and one round trip, and is on disk before it is answered. It works through PgBouncer
/// too; wake-ups then degrade to polling.
///
/// The tables and functions are made by `leasehold migrate` or [`migrate`](Postgres::migrate).
///
/// No connection belongs to a lock: a handle has a small pool for each runtime that uses it, and
/// closes what nobody used for two seconds, or fifteen after a heartbeat. The heartbeats of
/// [`Locks`](crate::Locks) run on a runtime of their own, which also has the one connection for
/// wake-ups. So a handle that waits has one connection as a rule, and one that holds has two.
///
/// ```no_run
/// use leasehold::postgres::Postgres;
/// use leasehold::Locks;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let url = "postgres://app:secret@db.example/app?sslmode=verify-full";
/// let store = Postgres::connect(url).await?;
/// store.migrate().await?;
/// let locks = Locks::new(store);
/// locks.lock("payment:42").run(|lease| async move { println!("fence {}", lease.fence()) }).await?;
/// # Ok(())
/// # }
/// ```
pub struct Postgres {
    operations: Arc<Operations>,
    /// What is sent together, on each runtime; none if nothing is.
    batches: Option<PerRuntime<Batches>>,
    /// Whether the server tells of released locks, as far as that is known.
    wake_ups: OnceCell<bool>,
    schema_is_chosen: bool,
    listeners: PerRuntime<Listener>,
}

impl Postgres {
    /// Connects to the server at `url`: `postgres://user:password@host:5432/database`. What it
    /// leaves open is taken from the variables `PGHOST`, `PGPORT`, `PGUSER`, `PGPASSWORD`,
    /// `PGPASSFILE`, `PGDATABASE`, `PGSSLMODE`, `PGSSLROOTCERT`, `PGSSLCERT`, `PGSSLKEY`,
    /// `PGAPPNAME`, `PGOPTIONS` and `PGCONNECT_TIMEOUT`, and the password file.
    ///
    /// Of several hosts, as in `postgres://user@one,two:5433/database`, the one that accepts writes
    /// is used. Each gets the password that the password file has for it.
    ///
    /// After a question mark: `sslmode` (`disable`, `prefer`, `require`, `verify-ca`,
    /// `verify-full`), `sslrootcert`, which means `verify-full` unless `sslmode` says otherwise,
    /// `sslcert`, `sslkey`, most of what else the server's own clients know, and the options of
    /// [`PostgresOptions`]: `schema`, `locks_table`, `fences_table`, `timeout` such as `5s`,
    /// `pool_size`, `wake_ups` (`on` or `off`), `sweep_every` such as `60s` and `batching` (`on`
    /// or `off`).
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the URL is wrong, the database
    /// does not exist, or nobody chose a schema and the search path leads to tables for locks in
    /// another than `public`, [`AuthFailed`](crate::ErrorCode::AuthFailed) if the server does not
    /// let us in or cannot be trusted, [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable)
    /// or [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) if it cannot be reached. No message
    /// repeats the URL. Missing tables and functions are an error of each operation, and functions
    /// that somebody changed are one of each acquire, until `leasehold migrate` was run.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(url, PostgresOptions::default()).await
    }

    /// Connects to the server at `url` in the way `options` say.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// As [`connect`](Postgres::connect).
    pub async fn connect_with(url: &str, options: PostgresOptions) -> Result<Self, Error> {
        let target = url::parse(url, options)?;
        let options = target.options;
        let tables = Tables::new(options.schema_or_usual(), &options.locks_table, &options.fences_table)?;
        let tls = target.tls.connector()?;
        let endpoints = Endpoints::new(target.endpoints, tls, options.timeout);
        let connections = Connections::new(endpoints, options.pool_size, options.timeout);
        let functions = Functions::new(&tables);
        if let Some(schema) = functions.check(&connections).await?
            && options.schema.is_none()
        {
            return Err(search_path::two_places(&schema));
        }
        let operations = Operations {
            connections: Arc::new(connections),
            names: StorageKeys::new("", rules::LONGEST_NAME, 0)?,
            statements: Statements::new(&tables),
            tables,
            functions,
            sweep: Sweep::every(options.sweep_every),
            lone_calls: Semaphore::new((options.pool_size / 2).max(1)),
        };
        let store = Self {
            operations: Arc::new(operations),
            batches: options.batching.then(PerRuntime::new),
            wake_ups: OnceCell::new_with((!options.wake_ups).then_some(false)),
            schema_is_chosen: options.schema.is_some(),
            listeners: PerRuntime::new(),
        };
        if let Err(error) = store.is_told_of_releases().await {
            tracing::warn!(%error, "cannot listen to the server yet: waiting for locks polls until that is possible");
        }
        Ok(store)
    }

    /// Makes the tables, indexes and functions, or brings them up to date. It may be run at any
    /// time and by many at once, and tells whether there was anything to do. Tables that the
    /// Node.js library made get a column, for which
    /// [`migration_warnings`](Postgres::migration_warnings) has a word of caution.
    ///
    /// Cancel-safe: all of it is done, or nothing.
    ///
    /// # Errors
    ///
    /// [`AuthFailed`](crate::ErrorCode::AuthFailed) if the user may not do that; otherwise as for
    /// any operation.
    pub async fn migrate(&self) -> Result<Migrated, Error> {
        let found = self.operations.functions.compare(&self.operations.connections).await?;
        self.operations.connections.run_all(&self.operations.tables.migration()).await?;
        self.operations.functions.check(&self.operations.connections).await?;
        Ok(if found.is_none() { Migrated::UpToDate } else { Migrated::Changed })
    }

    /// What [`migrate`](Postgres::migrate) runs, for somebody else to run.
    pub fn migration(&self) -> String {
        self.operations.tables.migration()
    }

    /// What [`migrate`](Postgres::migrate) would run for a URL and its options, without connecting
    /// to anything.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the URL is wrong.
    pub fn migration_for(url: &str) -> Result<String, Error> {
        let options = url::parse(url, PostgresOptions::default())?.options;
        Ok(Tables::new(options.schema_or_usual(), &options.locks_table, &options.fences_table)?.migration())
    }

    fn source(&self) -> Source {
        Source { connections: self.operations.connections.clone(), tables: self.operations.tables.clone() }
    }

    /// Whether the server tells of released locks. That is found out once; if it does not, it is
    /// worth one warning.
    ///
    /// # Errors
    ///
    /// It cannot be found out at present.
    async fn is_told_of_releases(&self) -> Result<bool, Error> {
        let find_out = async || {
            let delivers = self.source().delivers().await?;
            if !delivers {
                tracing::warn!(
                    "the server does not deliver notifications, as behind a pooler: waiting for locks polls"
                );
            }
            Ok(delivers)
        };
        self.wake_ups.get_or_try_init(find_out).await.copied()
    }

    /// What is sent together on the runtime of the caller, if anything is.
    fn batches(&self) -> Result<Option<Arc<Batches>>, Error> {
        self.batches.as_ref().map(|batches| batches.get(|| Ok(Batches::new(&self.operations)))).transpose()
    }

    /// Removes what keys have left that only an examination or a try used: their fences.
    async fn forget(&self, keys: &[Key]) -> Result<(), Error> {
        let Operations { names, tables, .. } = &*self.operations;
        let counter = |key| names.fence(&names.lock(key)?);
        let counters = keys.iter().map(counter).collect::<Result<Vec<_>, _>>()?;
        let statement = tables.fill("DELETE FROM {{fences}} WHERE fence_key = ANY($1)");
        self.operations.query(Operation::Lookup, &statement, &[(&counters, Type::TEXT_ARRAY)]).await.map(drop)
    }
}

#[async_trait]
impl Backend for Postgres {
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        match self.batches()?.filter(|_| self.operations.goes_with_others(request)) {
            Some(batches) => batches.acquire(request).await,
            None => self.operations.acquire_one(request).await,
        }
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        self.operations.acquire_all_or_none(requests).await
    }

    async fn release(&self, id: &LockId) -> Result<Release, Error> {
        match self.batches()? {
            Some(batches) => batches.release(id).await,
            None => self.operations.release_one(id).await,
        }
    }

    async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        self.operations.extend_one(id, ttl).await
    }

    async fn extend_many(&self, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
        self.operations.extend_together(locks).await
    }

    async fn release_many(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        self.operations.release_together(ids).await
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        Ok(self.operations.find(Operation::IsLocked, LookupBy::Key(key)).await?.is_some())
    }

    async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        let found = self.operations.find(Operation::Lookup, by).await?;
        found.map(record::Held::into_record).transpose().map_err(|error| error.during(Operation::Lookup))
    }

    async fn inspect(&self, key: &Key) -> Result<Inspected, Error> {
        self.operations.inspect_key(key).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
        self.operations.list_page(request).await
    }

    async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error> {
        let topics = match topic {
            Topic::Freed(key) => vec![freed_topic(&self.operations.names.lock(key)?)],
            Topic::Turn(key, id) => {
                vec![freed_topic(&self.operations.names.lock(key)?), turn_topic(&hash(id.expose()))]
            }
            Topic::Taken => vec![TAKEN_TOPIC.to_owned()],
            Topic::Granted => vec![GRANTED_TOPIC.to_owned()],
        };
        if !self.is_told_of_releases().await? {
            return Ok(Subscription::silent());
        }
        let server = || Arc::new(self.source());
        let listener = self.listeners.get(|| Ok(Listener::start::<ListenConnection>(server())))?;
        listener.subscribe_to_all(topics, topic.backlog(), self.operations.connections.timeout).await
    }

    async fn force_release(&self, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error> {
        let (name, only) = (self.operations.names.lock(key)?, only.map(String::from));
        let parameters: [Parameter<'_>; 2] = [(&name, Type::TEXT), (&only, Type::TEXT)];
        let rows =
            self.operations.query(Operation::ForceRelease, &self.operations.statements.force_release, &parameters);
        let rows = self.operations.explained(Wanted::Key(&name), rows).await?;
        let records = rows.iter().map(|row| record::read(row).and_then(record::Held::into_record));
        records.collect::<Result<_, _>>().map_err(|error: Error| error.during(Operation::ForceRelease))
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        let row = self.operations.query_one(Operation::Lookup, &self.operations.statements.now, &[]).await?;
        let micros: i64 = row.try_get(0).map_err(unreadable)?;
        Ok(Timestamp::from_micros(u64::try_from(micros).unwrap_or(0)))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(TimeAuthority::Store)
            .with_wake_ups(self.wake_ups.get().copied().unwrap_or(true))
            .with_clock_floored_fences(true)
            .with_lines(true)
            .with_call_timeout(self.operations.connections.timeout)
    }
}

/// What the server counted. Its integers are signed.
fn number_of(counted: i32) -> u32 {
    u32::try_from(counted).unwrap_or(0)
}

/// The server's integers are signed. Ours stay far below the limit.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("tables", &self.operations.tables).finish_non_exhaustive()
    }
}
