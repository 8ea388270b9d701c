//! Locks in a Firestore database.

mod acquire;
mod acquire_all;
mod clocks;
mod connection;
mod driver;
mod entries;
mod error;
mod examine;
#[cfg(feature = "_fuzzing")]
pub(crate) mod fuzzing;
mod key_document;
mod known;
mod look;
mod many;
mod names;
mod news;
mod options;
mod owned;
mod place;
mod push;
mod query;
mod record;
mod seen;
mod tokens;
mod transaction;
#[cfg(test)]
mod two_hosts;
mod url;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::runtime::Handle;

use self::clocks::Clocks;
use self::connection::Connection;
use self::names::Names;
use self::place::Place;
use self::push::{ListenConnection, Source};
use self::seen::turn_topic;
use self::url::Target;
use crate::backend::{
    Acquire, AcquireAll, AcquireRequest, Backend, Capabilities, Extend, Inspected, ListPage, ListRequest, LookupBy,
    Record, Release, Subscription, TimeAuthority, Topic,
};
use crate::remote::listener::Listener;
use crate::remote::notification::{GRANTED_TOPIC, TAKEN_TOPIC, freed_topic};
use crate::remote::per_runtime::PerRuntime;
use crate::{Error, Fence, Key, LockId, Operation, Timestamp, Ttl};

pub(crate) use driver::Driver;
pub use options::FirestoreOptions;

/// Locks in a Firestore database of Google Cloud, in native mode.
///
/// The layout is shared with the Node.js library SyncGuard: programs of both kinds exclude each
/// other and continue the same fences. Every change is one commit, which happens only if the
/// documents are as they were read; who takes a lock reads and writes in a transaction as well.
///
/// Time is this host's, as the layout wants it, within bounds that the server's clock sets: of the
/// two the more cautious one decides, so that programs of this library exclude each other whatever
/// their clocks show. A host whose clock is off by more than [a
/// second](crate::TIME_TOLERANCE) gets no locks.
///
/// A handle has one connection for each runtime that uses it. The heartbeats of
/// [`Locks`](crate::Locks) run on a runtime of their own, which also has the one connection for
/// wake-ups. Documents that are read and written cost money: docs/firestore.md counts them.
///
/// ```no_run
/// use leasehold::firestore::Firestore;
/// use leasehold::Locks;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let locks = Locks::new(Firestore::connect("firestore://my-project").await?);
/// locks.lock("payment:42").run(|lease| async move { println!("fence {}", lease.fence()) }).await?;
/// # Ok(())
/// # }
/// ```
pub struct Firestore {
    place: Arc<Place>,
    names: Names,
    clocks: Arc<Clocks>,
    connections: PerRuntime<Connection>,
    listeners: PerRuntime<Listener>,
}

impl Firestore {
    /// Connects to the database at `url`: `firestore://PROJECT` or `firestore://PROJECT/DATABASE`.
    ///
    /// The options of [`FirestoreOptions`] go after a question mark: `locks`, `fences`, `timeout`
    /// such as `5s`, `emulator`, `endpoint`, `ca` and `credentials`. Special characters are
    /// percent-encoded. The variable `FIRESTORE_EMULATOR_HOST` leads to an emulator, unless the URL
    /// names one or an endpoint.
    ///
    /// Without `credentials`, who we are is found out as Google's own clients do: from
    /// `GOOGLE_APPLICATION_CREDENTIALS`, the files of `gcloud`, or the metadata server.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the URL is wrong or the database
    /// does not exist, [`AuthFailed`](crate::ErrorCode::AuthFailed) if there are no credentials or
    /// they do not suffice, [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable) or
    /// [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) if the server cannot be reached. No
    /// message repeats the URL.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(url, FirestoreOptions::default()).await
    }

    /// Connects to the database at `url` in the way `options` say.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// As [`connect`](Firestore::connect).
    pub async fn connect_with(url: &str, options: FirestoreOptions) -> Result<Self, Error> {
        let (place, options) = Target::read(url, options)?.place()?;
        let firestore = Self {
            names: Names::new(&place, &options)?,
            place: Arc::new(place),
            clocks: Arc::new(Clocks::new(options.clock)),
            connections: PerRuntime::new(),
            listeners: PerRuntime::new(),
        };
        firestore.greet().await?;
        Ok(firestore)
    }

    /// Finds out whether the database is there and lets us in, which costs nothing.
    async fn greet(&self) -> Result<(), Error> {
        let connection = self.connection()?;
        let session = connection.session(Operation::Lookup);
        session.retry(|| session.probe()).await
    }

    /// The connection of the runtime that runs the caller.
    fn connection(&self) -> Result<Arc<Connection>, Error> {
        self.connections.get(|| Ok(Connection::new(self.place.clone(), Handle::current())))
    }

    /// The listener of the runtime that runs the caller.
    fn listener(&self) -> Result<Arc<Listener>, Error> {
        let source = || Source::new(self.place.clone(), self.names.clone(), self.clocks.server_now());
        self.listeners.get(|| Ok(Listener::start::<ListenConnection>(Arc::new(source()))))
    }
}

#[async_trait]
impl Backend for Firestore {
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        self.acquire_lock(request).await
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        self.acquire_locks(requests).await
    }

    async fn release(&self, id: &LockId) -> Result<Release, Error> {
        self.release_lock(id).await
    }

    async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        self.extend_lock(id, ttl).await
    }

    async fn extend_many(&self, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
        self.extend_together(locks).await
    }

    async fn release_many(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        self.release_together(ids).await
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        let found = self.look_at(Operation::IsLocked, key).await?;
        Ok(found.foreign().is_some() || found.holders().next().is_some())
    }

    async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        self.look_up(by).await
    }

    async fn inspect(&self, key: &Key) -> Result<Inspected, Error> {
        self.inspect_key(key).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
        self.list_page(request).await
    }

    async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error> {
        let name = match topic {
            Topic::Freed(key) => freed_topic(&self.names.id(key)?),
            Topic::Turn(key, id) => turn_topic(id, &self.names.id(key)?),
            Topic::Taken => TAKEN_TOPIC.to_owned(),
            Topic::Granted => GRANTED_TOPIC.to_owned(),
        };
        self.listener()?.subscribe(name, topic.backlog(), self.place.timeout).await
    }

    async fn force_release(&self, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error> {
        self.end_lock(key, only).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.clocks.wall.now())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(TimeAuthority::Client)
            .with_wake_ups(true)
            .with_clock_floored_fences(true)
            .with_lines(true)
            // Each who waits would write the document every three seconds, which sustains one write
            // a second, and the holder's heartbeats are among those.
            .with_costly_lines(true)
            .with_call_timeout(self.place.timeout)
    }
}

impl fmt::Debug for Firestore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Firestore").field("project", &self.place.project).finish_non_exhaustive()
    }
}
