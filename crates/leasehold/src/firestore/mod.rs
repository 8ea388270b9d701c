//! Locks in a Firestore database.

mod acquire;
mod clocks;
mod connection;
mod driver;
mod error;
mod examine;
#[cfg(feature = "_fuzzing")]
pub(crate) mod fuzzing;
mod many;
mod names;
mod options;
mod owned;
mod place;
mod push;
mod query;
mod record;
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
use self::connection::{Connection, Failure, Session};
use self::names::Names;
use self::owned::only_live;
use self::place::Place;
use self::push::{ListenConnection, Source};
use self::transaction::Consistency;
use self::url::Target;
use crate::backend::{
    Acquire, AcquireRequest, Backend, Capabilities, Extend, ForceRelease, ListPage, ListRequest, LookupBy, Record,
    Release, Subscription, TimeAuthority, Topic,
};
use crate::remote::listener::Listener;
use crate::remote::notification::{GRANTED_TOPIC, TAKEN_TOPIC, freed_topic};
use crate::remote::per_runtime::PerRuntime;
use crate::remote::stored::Stored;
use crate::{Error, Key, LockId, Operation, Timestamp, Ttl};

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

    /// The live record under a key or an id.
    async fn find(&self, operation: Operation, by: LookupBy<'_>) -> Result<Option<Stored>, Error> {
        let connection = self.connection()?;
        let session = connection.session(operation);
        session.retry(|| self.try_find(session, by)).await
    }

    async fn try_find(&self, session: Session<'_>, by: LookupBy<'_>) -> Result<Option<Stored>, Failure> {
        match by {
            LookupBy::Key(key) => {
                let name = self.names.lock(&self.names.id(key).map_err(Failure::Refused)?);
                let read = session.get(&self.clocks, &[&name], Consistency::Latest).await?;
                let Some(document) = read.find(&name) else { return Ok(None) };
                let stored = record::stored(document).map_err(Failure::Refused)?;
                Ok(Some(stored).filter(|stored| stored.is_live(read.moment.early)))
            }
            LookupBy::Id(id) => {
                let query = query::by_id(&self.names, id);
                let read = session.query(&self.clocks, &self.names.root, query, Consistency::Latest).await?;
                let found = only_live(&read.documents, id, read.moment.early).map_err(Failure::Refused)?;
                Ok(found.ok().map(|(_, stored)| stored))
            }
        }
    }

    async fn try_list(&self, session: Session<'_>, request: &ListRequest) -> Result<ListPage, Failure> {
        let (cursor, limit) = (request.cursor(), request.page_size());
        let after = match cursor {
            None => None,
            Some(cursor) => Some(read_cursor(cursor).ok_or_else(|| Failure::Refused(bad_cursor()))?),
        };
        let after = after.map(|(key, id)| (key, self.names.lock(id)));
        let after = after.as_ref().map(|(key, name)| (*key, name.as_str()));
        // One more than fits tells whether there is a next page.
        let query = query::by_prefix(&self.names, request.prefix(), after, limit + 1);
        let read = session.query(&self.clocks, &self.names.root, query, Consistency::Latest).await?;
        let mut page = ListPage::default();
        let shown = &read.documents[..read.documents.len().min(limit)];
        for document in shown {
            // Documents of other programs that are no locks are passed over.
            let Ok(stored) = record::stored(document) else { continue };
            if stored.is_live(read.moment.early) {
                page.records.extend(record::into_record(stored).ok());
            }
        }
        if read.documents.len() > limit
            && let Some(last) = shown.last()
        {
            let key = record::string(&last.fields, record::lock::KEY).unwrap_or_default();
            page.next = self.names.id_of(&last.name).map(|id| format!("{}:{key}{id}", key.len()));
        }
        Ok(page)
    }
}

#[async_trait]
impl Backend for Firestore {
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        self.acquire_lock(request).await
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
        Ok(self.find(Operation::IsLocked, LookupBy::Key(key)).await?.is_some())
    }

    async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        let found = self.find(Operation::Lookup, by).await?;
        found.map(record::into_record).transpose().map_err(|error| error.during(Operation::Lookup))
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
        let connection = self.connection()?;
        let session = connection.session(Operation::List);
        session.retry(|| self.try_list(session, request)).await
    }

    async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error> {
        let name = match topic {
            Topic::Freed(key) => freed_topic(&self.names.id(key)?),
            Topic::Taken => TAKEN_TOPIC.to_owned(),
            Topic::Granted => GRANTED_TOPIC.to_owned(),
        };
        self.listener()?.subscribe(name, topic.backlog(), self.place.timeout).await
    }

    async fn force_release(&self, key: &Key) -> Result<ForceRelease, Error> {
        self.end_lock(key).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.clocks.wall.now())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(TimeAuthority::Client)
            .with_wake_ups(true)
            .with_clock_floored_fences(true)
            .with_call_timeout(self.place.timeout)
    }
}

/// The key and the id of the last lock of a page: the length of the key, a colon, and both of them.
fn read_cursor(cursor: &str) -> Option<(&str, &str)> {
    let (length, rest) = cursor.split_once(':')?;
    rest.split_at_checked(length.parse().ok()?)
}

fn bad_cursor() -> Error {
    Error::invalid("the cursor is not one of this store").with_hint("start without one")
}

impl fmt::Debug for Firestore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Firestore").field("project", &self.place.project).finish_non_exhaustive()
    }
}
