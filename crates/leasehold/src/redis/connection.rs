use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::{Cmd, RedisError, Value};
use tokio::sync::Mutex as AsyncMutex;

use super::error::translate;
use super::script::Script;
use super::server::{Address, Connection, Server};
use crate::remote::driver_error::not_connected_in_time;
use crate::sync::lock;
use crate::{Error, Operation};

/// How often one request follows the directions of a cluster before it gives up.
const MOST_HOPS: usize = 3;

/// The last argument of a script that runs on a node which may have only half of our locks yet.
const ASKING: &str = "asking";

/// A connection on which requests were given up, and nothing was heard for this long, is taken for
/// dead.
const SILENCE: Duration = Duration::from_secs(1);

/// A request that was given up sooner than this says nothing about the connection.
const LEAST_WAIT: Duration = Duration::from_millis(100);

/// A connection that is made when it is first needed, and again when it was lost. All tasks of a
/// runtime share it.
#[derive(Debug)]
pub(super) struct ReconnectingConnection {
    server: Arc<Server>,
    current: Mutex<Option<Arc<Open>>>,
    /// Where a node of a cluster sent us last.
    moved_to: Mutex<Option<Address>>,
    /// Held by the task that makes the connection.
    connecting: AsyncMutex<()>,
}

/// The connection at present.
pub(super) struct Open {
    connection: Connection,
    /// When the first of the requests that were given up since the last answer was sent.
    unanswered: Mutex<Option<Instant>>,
}

/// Why there is no answer.
enum Failure {
    Redis(RedisError, Sent),
    /// The deadline came first.
    Late(Sent),
}

/// Whether the request had left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    No,
    Yes,
}

impl ReconnectingConnection {
    pub(super) fn new(server: Arc<Server>) -> Self {
        Self { server, current: Mutex::default(), moved_to: Mutex::default(), connecting: AsyncMutex::default() }
    }

    /// Makes sure that there is a connection.
    pub(super) async fn ready(&self) -> Result<(), Error> {
        self.open().await.map(drop).map_err(|error| translate(error, false))
    }

    /// Runs a script within the deadline.
    pub(super) async fn run(
        &self,
        operation: Operation,
        script: &Script,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<Value, Error> {
        let deadline = tokio::time::Instant::now() + self.server.timeout;
        let mut command = script.by_hash(keys, arguments);
        let mut hops = 0;
        let failure = loop {
            match self.send(&command, deadline).await {
                Ok(value) => return Ok(value),
                Err(Failure::Redis(error, _)) if error.code() == Some("NOSCRIPT") && hops < MOST_HOPS => {
                    command = script.by_source(keys, arguments);
                }
                Err(Failure::Redis(error, _)) if error.code() == Some("MOVED") && hops < MOST_HOPS => {}
                // A listing would show what is there already, and not what is still here.
                Err(Failure::Redis(error, _))
                    if error.code() == Some("ASK") && hops < MOST_HOPS && operation != Operation::List =>
                {
                    match self.ask(&error, script, keys, arguments, deadline).await {
                        Ok(value) => return Ok(value),
                        Err(failure) => break failure,
                    }
                }
                Err(failure) => break failure,
            }
            hops += 1;
        };
        Err(match failure {
            Failure::Redis(error, sent) => translate(error, sent == Sent::Yes).during(operation),
            Failure::Late(Sent::Yes) => Error::timed_out(operation, self.server.timeout),
            Failure::Late(Sent::No) => not_connected_in_time(operation, self.server.timeout),
        })
    }

    /// Sends a command within the server's timeout: for what is not an operation of the store.
    pub(super) async fn query(&self, command: &Cmd) -> Result<Value, Error> {
        let deadline = tokio::time::Instant::now() + self.server.timeout;
        self.send(command, deadline).await.map_err(|failure| match failure {
            Failure::Redis(error, sent) => translate(error, sent == Sent::Yes),
            Failure::Late(_) => translate(std::io::Error::from(std::io::ErrorKind::TimedOut).into(), false),
        })
    }

    /// One request on the present connection.
    async fn send(&self, command: &Cmd, deadline: tokio::time::Instant) -> Result<Value, Failure> {
        let open = match tokio::time::timeout_at(deadline, self.open()).await {
            Ok(Ok(open)) => open,
            Ok(Err(error)) => return Err(Failure::Redis(error, Sent::No)),
            Err(_) => return Err(Failure::Late(Sent::No)),
        };
        let waiting = Waiting::new(&open);
        let mut commands = open.connection.commands.clone();
        let answer = tokio::time::timeout_at(deadline, commands.send_packed_command(command)).await;
        let Ok(answer) = answer else {
            self.discard(&open);
            return Err(Failure::Late(Sent::Yes));
        };
        waiting.answered();
        answer.and_then(Value::extract_error).map_err(|error| {
            if error.code() == Some("MOVED") {
                *lock(&self.moved_to) = address(&error, &open.connection);
                self.discard(&open);
            } else if self.server.is_wrong(&error) {
                self.leave(&open);
            } else if error.is_unrecoverable_error() {
                self.discard(&open);
            }
            Failure::Redis(error, Sent::Yes)
        })
    }

    /// The connection that the next request uses, if there is one.
    pub(super) fn current(&self) -> Option<Arc<Open>> {
        lock(&self.current).clone()
    }

    /// Has the next request try another host, if there is one.
    pub(super) fn try_other_host(&self) {
        self.try_other_host_than(None);
    }

    /// The same, if the next request would use the connection that was `asked`, or if it is not
    /// known which one that was.
    pub(super) fn try_other_host_than(&self, asked: Option<&Arc<Open>>) {
        let current = self.current();
        if let Some(open) = current.filter(|open| asked.is_none_or(|asked| Arc::ptr_eq(open, asked))) {
            self.leave(&open);
        }
    }

    /// The server at the other end is not, or no longer, the one that has the locks.
    fn leave(&self, open: &Arc<Open>) {
        if self.discard(open) {
            *lock(&self.moved_to) = None;
        }
        self.server.skip_endpoint(&open.connection);
    }

    /// Runs a script on the node to which the cluster is moving our locks.
    async fn ask(
        &self,
        redirection: &RedisError,
        script: &Script,
        keys: &[&str],
        arguments: &[&str],
        deadline: tokio::time::Instant,
    ) -> Result<Value, Failure> {
        let here = self.usable();
        let Some(address) = here.and_then(|here| address(redirection, &here.connection)) else {
            return Err(Failure::Redis(redirection.clone(), Sent::No));
        };
        let mut node = match tokio::time::timeout_at(deadline, self.server.connect_to(&address)).await {
            Ok(Ok(node)) => node,
            Ok(Err(error)) => return Err(Failure::Redis(error, Sent::No)),
            Err(_) => return Err(Failure::Late(Sent::No)),
        };
        let arguments = [arguments, &[ASKING]].concat();
        let asked = async {
            // One by one, as the driver wraps the errors of a pipeline in one that says nothing.
            redis::cmd("ASKING").exec_async(&mut node.commands).await?;
            node.commands.send_packed_command(&script.by_source(keys, &arguments)).await?.extract_error()
        };
        match tokio::time::timeout_at(deadline, asked).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Failure::Redis(error, Sent::Yes)),
            Err(_) => Err(Failure::Late(Sent::Yes)),
        }
    }

    /// The present connection, or a new one.
    async fn open(&self) -> Result<Arc<Open>, RedisError> {
        if let Some(open) = self.usable() {
            return Ok(open);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(open) = self.usable() {
            return Ok(open);
        }
        let moved_to = lock(&self.moved_to).clone();
        let mut connection = self.server.connect(moved_to.as_ref()).await;
        if connection.is_err() && moved_to.is_some() {
            *lock(&self.moved_to) = None;
            connection = self.server.connect(None).await;
        }
        let open = Arc::new(Open { connection: connection?, unanswered: Mutex::default() });
        *lock(&self.current) = Some(open.clone());
        Ok(open)
    }

    fn usable(&self) -> Option<Arc<Open>> {
        lock(&self.current).clone().filter(|open| open.is_usable())
    }

    /// The next request gets a new connection.
    fn discard(&self, open: &Arc<Open>) -> bool {
        let mut current = lock(&self.current);
        current.take_if(|current| Arc::ptr_eq(current, open)).is_some()
    }
}

impl Open {
    fn is_usable(&self) -> bool {
        let silent = lock(&self.unanswered).is_some_and(|since| since.elapsed() > SILENCE);
        !silent && !self.connection.is_outdated() && !self.connection.messages.is_closed()
    }
}

/// Notes a request that its caller gives up before the answer.
struct Waiting<'a> {
    open: &'a Open,
    since: Instant,
    answered: bool,
}

impl<'a> Waiting<'a> {
    fn new(open: &'a Open) -> Self {
        Self { open, since: Instant::now(), answered: false }
    }

    fn answered(mut self) {
        self.answered = true;
        *lock(&self.open.unanswered) = None;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.answered && self.since.elapsed() >= LEAST_WAIT {
            lock(&self.open.unanswered).get_or_insert(self.since);
        }
    }
}

/// The address in a redirection. Without a host it is the host that sent it.
fn address(error: &RedisError, from: &Connection) -> Option<Address> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = match host.trim_matches(['[', ']']) {
        "" => from.host.clone()?,
        host => host.to_owned(),
    };
    Some((host, port.parse().ok()?))
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Open")
    }
}
