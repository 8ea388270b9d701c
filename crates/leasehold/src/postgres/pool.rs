use std::ops::Deref;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_postgres::{Client, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::connections::Parameter;
use super::endpoints::{Endpoints, Wire};
use crate::backend::Capabilities;
use crate::sync::lock;
use crate::{Error, ErrorCode, Operation};

/// A connection that nobody uses is closed after this time. It is less than the five seconds after
/// which a waiter looks by itself: who waits has no connection but the one that listens.
const IDLE: Duration = Duration::from_secs(2);

/// One that renewed a lock is kept for the next renewal, which comes after ten seconds by default.
const IDLE_AFTER_RENEWAL: Duration = Duration::from_secs(15);

/// The connections of one runtime, each used for one statement at a time.
pub(super) struct Pool {
    idle: Arc<Mutex<Vec<Idle>>>,
    room: Arc<Semaphore>,
    /// The connection that listens. It serves if the server has no room for another: a lock must
    /// not be lost because others wait for it.
    listening: Mutex<Weak<Client>>,
}

struct Idle {
    open: Open,
    until: Instant,
}

/// A connection of the pool.
struct Open {
    id: u64,
    client: Client,
    driver: AbortHandle,
}

impl Pool {
    pub(super) fn new(size: usize) -> Self {
        Self { idle: Arc::default(), room: Arc::new(Semaphore::new(size)), listening: Mutex::default() }
    }

    /// Lends a connection, a new one if none is idle.
    ///
    /// # Errors
    ///
    /// None became free before the deadline, or those of connecting.
    pub(super) async fn lend(
        &self,
        endpoints: &Endpoints,
        operation: Operation,
        deadline: Instant,
    ) -> Result<Lent, Error> {
        let room = match tokio::time::timeout_at(deadline, self.room.clone().acquire_owned()).await {
            Ok(Ok(room)) => room,
            _ => return Err(all_in_use().during(operation)),
        };
        let (channel, reused) = match self.take_idle() {
            Some(open) => (Channel::Own(open), true),
            None => (self.open(endpoints, operation).await?, false),
        };
        let idle = Arc::downgrade(&self.idle);
        Ok(Lent {
            channel: Some(channel),
            reused,
            busy: false,
            operation,
            idle,
            tls: endpoints.tls.clone(),
            _room: room,
        })
    }

    async fn open(&self, endpoints: &Endpoints, operation: Operation) -> Result<Channel, Error> {
        match endpoints.connect(operation).await {
            Ok((client, wire)) => {
                static NEXT: AtomicU64 = AtomicU64::new(0);
                let id = NEXT.fetch_add(1, Ordering::Relaxed);
                let driver = tokio::spawn(drive(wire, id, Arc::downgrade(&self.idle))).abort_handle();
                Ok(Channel::Own(Open { id, client, driver }))
            }
            Err(error) if error.code() == ErrorCode::RateLimited => {
                lock(&self.listening).upgrade().map(Channel::Listening).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// The one that was used last, so that the others are closed some time.
    fn take_idle(&self) -> Option<Open> {
        let mut idle = lock(&self.idle);
        while let Some(Idle { open, .. }) = idle.pop() {
            if !open.client.is_closed() {
                return Some(open);
            }
        }
        None
    }

    /// Closes what is idle: all of it leads to a server that is of no use any more.
    pub(super) fn forget_idle(&self) {
        lock(&self.idle).clear();
    }

    /// Makes the connection that listens known, for as long as somebody has it.
    pub(super) fn listens(&self, client: &Arc<Client>) {
        *lock(&self.listening) = Arc::downgrade(client);
    }
}

fn all_in_use() -> Error {
    Error::new(ErrorCode::NetworkTimeout, "no connection to the server became free in time")
        .with_hint("raise pool_size, or look for what keeps the server busy")
}

/// Moves the data of a connection until it ends, and closes it when it was idle for long enough.
async fn drive(wire: Wire, id: u64, idle: Weak<Mutex<Vec<Idle>>>) {
    let mut wire = pin!(wire);
    let mut look_at = Instant::now() + IDLE;
    loop {
        tokio::select! {
            // Whoever uses it is told of errors.
            _ = &mut wire => return,
            () = tokio::time::sleep_until(look_at) => {}
        }
        let now = Instant::now();
        look_at = now + IDLE;
        let Some(idle) = idle.upgrade() else { continue };
        let mut idle = lock(&idle);
        let Some(place) = idle.iter().position(|idle| idle.open.id == id) else { continue };
        if idle[place].until > now {
            look_at = idle[place].until;
        } else {
            // The wire says goodbye when its client is gone.
            idle.remove(place);
        }
    }
}

/// Where a statement goes.
enum Channel {
    Own(Open),
    Listening(Arc<Client>),
}

impl Deref for Channel {
    type Target = Client;

    fn deref(&self) -> &Client {
        match self {
            Self::Own(open) => &open.client,
            Self::Listening(client) => client,
        }
    }
}

/// A connection while it is used. If its statement is given up, the server is asked to stop it, and
/// the connection does not go back to the others, who would have to wait behind it.
pub(super) struct Lent {
    channel: Option<Channel>,
    /// It was idle before, and what it was good for then may have changed.
    pub(super) reused: bool,
    busy: bool,
    operation: Operation,
    idle: Weak<Mutex<Vec<Idle>>>,
    tls: MakeRustlsConnect,
    _room: OwnedSemaphorePermit,
}

impl Lent {
    pub(super) async fn query(
        &mut self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Some(channel) = &self.channel else { return Ok(Vec::new()) };
        self.busy = true;
        let rows = channel.query_typed(statement, parameters).await;
        self.busy = false;
        rows
    }

    /// Closes it.
    pub(super) fn discard(mut self) {
        self.channel = None;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(channel) = self.channel.take() else { return };
        if self.busy {
            let (cancel, tls) = (channel.cancel_token(), self.tls.clone());
            if let Channel::Own(open) = channel {
                // Closed at once: the server may never answer.
                open.driver.abort();
            }
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move {
                    let _ = tokio::time::timeout(Capabilities::DEFAULT_CALL_TIMEOUT, cancel.cancel_query(tls)).await;
                });
            }
            return;
        }
        let (Channel::Own(open), Some(idle)) = (channel, self.idle.upgrade()) else { return };
        let time = if self.operation == Operation::Extend { IDLE_AFTER_RENEWAL } else { IDLE };
        lock(&idle).push(Idle { open, until: Instant::now() + time });
    }
}
