use std::process::Command;
use std::sync::Arc;
use std::{fmt, io};

use async_trait::async_trait;
use leasehold::backend::{
    Acquire, AcquireAll, AcquireRequest, Backend, Capabilities, Extend, Inspected, ListPage, LookupBy, Record, Release,
    Subscription, Topic,
};
use leasehold::{Error, ErrorCode, Fence, Key, ListRequest, LockId, Operation, Ttl};

use super::connection::Connection;
use super::pending::Gone;
use super::wire::{About, Answer, Call, Wanted};

/// A reader that falls this far behind is told that it missed some events.
const BACKLOG: usize = 1024;

/// A store in another process that [serves](super::serve()) it.
///
/// Clones share the process; any number of calls may be under way at once. The process is killed
/// when the last of them is dropped, which subscriptions do not prevent, and ends by itself if this
/// process dies first.
///
/// Once the other process is gone, every call fails with
/// [`ServiceUnavailable`](ErrorCode::ServiceUnavailable), its outcome unknown, and every
/// subscription ends.
#[derive(Clone)]
pub struct Peer {
    connection: Arc<Connection>,
    capabilities: Capabilities,
}

impl Peer {
    /// Starts a process with pipes for its standard input and output, and waits until it serves.
    /// What it writes to standard error goes where `command` says.
    ///
    /// Cancel-safe: the process is killed when the future is dropped. A process that neither serves
    /// nor ends is waited for without end.
    ///
    /// # Errors
    ///
    /// If the process cannot be started, or does something other than serve.
    pub async fn spawn(command: Command) -> io::Result<Self> {
        let connection = Arc::new(Connection::start(command)?);
        match connection.call(connection.id(), Call::Capabilities).await {
            Ok(Ok(Answer::Capabilities(capabilities))) => Ok(Self { connection, capabilities }),
            Ok(Ok(_)) => Err(io::Error::other(CONFUSED)),
            Ok(Err(error)) => Err(io::Error::other(error)),
            Err(Gone(why)) => Err(io::Error::other(why)),
        }
    }

    /// The id of the other process.
    pub fn process_id(&self) -> u32 {
        self.connection.process_id()
    }

    /// Kills the other process in the middle of whatever it is doing, as a crash would.
    pub fn kill(&self) {
        self.connection.kill();
    }

    async fn ask(&self, operation: Operation, call: Call) -> Result<Answer, Error> {
        self.ask_as(self.connection.id(), operation, call).await
    }

    async fn ask_as(&self, id: u64, operation: Operation, call: Call) -> Result<Answer, Error> {
        self.connection.call(id, call).await.unwrap_or_else(|Gone(why)| {
            Err(Error::new(ErrorCode::ServiceUnavailable, why).during(operation).with_outcome_unknown())
        })
    }
}

const CONFUSED: &str = "the process of the store answered something else";

fn confused(operation: Operation) -> Error {
    Error::new(ErrorCode::Internal, CONFUSED).during(operation).with_outcome_unknown()
}

#[async_trait]
impl Backend for Peer {
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        match self.ask(Operation::Acquire, Call::Acquire(request.clone())).await? {
            Answer::Acquire(answer) => Ok(answer),
            _ => Err(confused(Operation::Acquire)),
        }
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        let wanted = requests.iter().cloned().map(Wanted).collect();
        match self.ask(Operation::Acquire, Call::AcquireAll(wanted)).await? {
            Answer::AcquireAll(answer) => Ok(answer),
            _ => Err(confused(Operation::Acquire)),
        }
    }

    async fn release(&self, id: &LockId) -> Result<Release, Error> {
        match self.ask(Operation::Release, Call::Release(*id)).await? {
            Answer::Release(answer) => Ok(answer),
            _ => Err(confused(Operation::Release)),
        }
    }

    async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        match self.ask(Operation::Extend, Call::Extend(*id, ttl)).await? {
            Answer::Extend(answer) => Ok(answer),
            _ => Err(confused(Operation::Extend)),
        }
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        match self.ask(Operation::IsLocked, Call::IsLocked(key.clone())).await? {
            Answer::IsLocked(answer) => Ok(answer),
            _ => Err(confused(Operation::IsLocked)),
        }
    }

    async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        let call = match by {
            LookupBy::Key(key) => Call::LookupKey(key.clone()),
            LookupBy::Id(id) => Call::LookupId(*id),
            _ => return Err(confused(Operation::Lookup)),
        };
        match self.ask(Operation::Lookup, call).await? {
            Answer::Lookup(found) => Ok(found.map(|found| found.0)),
            _ => Err(confused(Operation::Lookup)),
        }
    }

    async fn inspect(&self, key: &Key) -> Result<Inspected, Error> {
        match self.ask(Operation::Lookup, Call::Inspect(key.clone())).await? {
            Answer::Inspect(holders, waiters) => {
                let holders = holders.into_iter().map(|holder| holder.0).collect();
                Ok(Inspected::new(holders, waiters.into_iter().map(|waiter| waiter.0).collect()))
            }
            _ => Err(confused(Operation::Lookup)),
        }
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
        match self.ask(Operation::List, Call::List(request.clone())).await? {
            Answer::List { records, waiting, next } => {
                let page = ListPage::new(records.into_iter().map(|listed| listed.0).collect(), next);
                Ok(page.with_waiting(waiting.into_iter().collect()))
            }
            _ => Err(confused(Operation::List)),
        }
    }

    async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error> {
        let Some(about) = About::of(topic) else { return Err(confused(Operation::Subscribe)) };
        let id = self.connection.id();
        let connection = Arc::downgrade(&self.connection);
        // Made before the answer comes, so that a caller who does not wait for it unsubscribes too.
        let (publisher, subscription) = Subscription::channel(BACKLOG, move || {
            if let Some(connection) = connection.upgrade() {
                connection.unsubscribe(id);
            }
        });
        self.connection.listen(id, publisher);
        match self.ask_as(id, Operation::Subscribe, Call::Subscribe(about)).await? {
            Answer::Subscribed => Ok(subscription),
            _ => Err(confused(Operation::Subscribe)),
        }
    }

    async fn force_release(&self, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error> {
        match self.ask(Operation::ForceRelease, Call::ForceRelease(key.clone(), only)).await? {
            Answer::ForceRelease(ended) => Ok(ended.into_iter().map(|ended| ended.0).collect()),
            _ => Err(confused(Operation::ForceRelease)),
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("process_id", &self.process_id()).finish_non_exhaustive()
    }
}
