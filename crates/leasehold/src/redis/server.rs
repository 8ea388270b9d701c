use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::AsyncDNSResolver;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, PushInfo, RedisError, RedisFuture, RedisResult};

use super::error::{without_replicas, wrong_server};
use super::push::Message;
use super::refusal::refusal;
use super::sentinel::{PrimaryWatch, connect_to_primary};
use crate::inbox::{Inbox, Received, inbox};
use crate::remote::push_connection::UNREAD;
use crate::remote::resolve::resolve;

/// How many requests may wait to be written to one connection before callers have to wait.
const BACKLOG: usize = 1024;

/// Where the server is, and how to get a connection to it.
pub(super) struct Server {
    pub(super) place: Place,
    /// The longest that getting a connection may take.
    pub(super) timeout: Duration,
    /// Which of several hosts to try first.
    pub(super) first: AtomicUsize,
}

pub(super) enum Place<Endpoint = Client> {
    /// Any of these hosts: one server, or nodes of a cluster that know which of them has our locks.
    Hosts(Vec<Endpoint>),
    /// Whichever server these sentinels name.
    Sentinels {
        sentinels: Vec<Endpoint>,
        /// The name of the primary among the sentinels.
        name: String,
        /// Everything about the primary but its address.
        primary: Box<Endpoint>,
    },
}

/// A host and a port that a server named.
pub(super) type Address = (String, u16);

/// An open connection.
pub(super) struct Connection {
    pub(super) commands: MultiplexedConnection,
    /// What was published on channels we subscribed to. Closed as soon as the connection is.
    pub(super) messages: Inbox<Message>,
    /// The host it leads to, unless it is a socket.
    pub(super) host: Option<String>,
    /// Which of several hosts or sentinels led here; none if a cluster did.
    endpoint: Option<usize>,
    /// Behind Sentinel: whether it still leads to the primary.
    pub(super) watch: Option<PrimaryWatch>,
}

impl Connection {
    /// Whether another server has become the primary.
    pub(super) fn is_outdated(&self) -> bool {
        self.watch.as_ref().is_some_and(PrimaryWatch::is_over)
    }

    /// What is published next; none if the connection is lost, or if another server has become the
    /// primary. Cancel-safe.
    pub(super) async fn next_message(&mut self) -> Option<Received<Message>> {
        let over = async {
            match &self.watch {
                Some(watch) => watch.over().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            message = self.messages.recv() => message,
            () = over => None,
        }
    }
}

impl Server {
    /// A connection to the server that has the locks, as far as that is known: `moved_to` is where
    /// a node of a cluster sent us last.
    pub(super) async fn connect(&self, moved_to: Option<&Address>) -> RedisResult<Connection> {
        match tokio::time::timeout(self.timeout, self.find(moved_to)).await {
            Ok(connection) => connection,
            Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    async fn find(&self, moved_to: Option<&Address>) -> RedisResult<Connection> {
        if let Some(address) = moved_to {
            return open(&at(self.any(), address)?).await;
        }
        let (endpoints, sentinels) = match &self.place {
            Place::Hosts(hosts) => (hosts, None),
            Place::Sentinels { sentinels, name, primary } => (sentinels, Some((name, primary))),
        };
        // A host that does not answer leaves time for the others.
        let share = self.timeout / u32::try_from(endpoints.len()).unwrap_or(u32::MAX).max(1);
        let mut last = None;
        let first = self.first.load(Ordering::Relaxed);
        for number in (0..endpoints.len()).map(|turn| (first + turn) % endpoints.len()) {
            let endpoint = &endpoints[number];
            let attempt = async {
                match sentinels {
                    None => open(endpoint).await,
                    Some((name, primary)) => connect_to_primary(endpoints, number, name, primary).await,
                }
            };
            match tokio::time::timeout(share, attempt).await {
                Ok(Ok(connection)) => return Ok(Connection { endpoint: Some(number), ..connection }),
                Ok(Err(error)) => last = Some(error),
                Err(_) => last = Some(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
            }
        }
        Err(last.unwrap_or_else(|| RedisError::from((ErrorKind::InvalidClientConfig, "no host"))))
    }

    /// A connection to this node of the same cluster.
    pub(super) async fn connect_to(&self, address: &Address) -> RedisResult<Connection> {
        self.connect(Some(address)).await
    }

    /// Has the next connection go to another of several hosts: the one that led to `connection` is
    /// no good. However many requests find that out at once, it is left only once.
    pub(super) fn skip_endpoint(&self, connection: &Connection) {
        let first = self.first.load(Ordering::Relaxed);
        let left = connection.endpoint.unwrap_or(first);
        let _ = self.first.compare_exchange(left, (left + 1) % self.endpoints(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// How many hosts or sentinels there are to try.
    pub(super) fn endpoints(&self) -> usize {
        match &self.place {
            Place::Hosts(hosts) => hosts.len(),
            Place::Sentinels { sentinels, .. } => sentinels.len(),
        }
    }

    /// Whether `error` means that another server should be looked for. Behind Sentinel, a primary
    /// without replicas may have lost them to a new one. It is not told before some ten seconds
    /// have passed, but the sentinels know.
    pub(super) fn is_wrong(&self, error: &RedisError) -> bool {
        wrong_server(error) || matches!(self.place, Place::Sentinels { .. }) && without_replicas(error)
    }

    /// The number of the database that has the locks.
    pub(super) fn database(&self) -> i64 {
        self.any().get_connection_info().redis_settings().db()
    }

    fn any(&self) -> &Client {
        match &self.place {
            Place::Hosts(hosts) => &hosts[0],
            Place::Sentinels { primary, .. } => primary,
        }
    }
}

pub(super) async fn open(client: &Client) -> RedisResult<Connection> {
    let (sender, messages) = inbox(UNREAD);
    let keep = move |push: PushInfo| {
        if let Some(message) = Message::of(push) {
            sender.send(message);
        }
        Ok::<(), Infallible>(())
    };
    let config = AsyncConnectionConfig::new()
        // Every operation has a deadline of its own.
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(BACKLOG)
        .set_dns_resolver(Resolver)
        .set_push_sender(keep);
    let commands = match client.get_multiplexed_async_connection_with_config(&config).await {
        Err(error) if error.is_connection_dropped() => return Err(refusal(client).await.unwrap_or(error)),
        connected => connected?,
    };
    let host = match client.get_connection_info().addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => Some(host.clone()),
        _ => None,
    };
    Ok(Connection { commands, messages, host, endpoint: None, watch: None })
}

/// Looks up the names of hosts. The driver's own way may panic.
struct Resolver;

impl AsyncDNSResolver for Resolver {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move { Ok(Box::new(resolve(host, port).await?.into_iter()) as Box<_>) })
    }
}

/// The same client for another address.
pub(super) fn at(client: &Client, (host, port): &Address) -> RedisResult<Client> {
    let info = client.get_connection_info();
    let address = match info.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host.clone(), *port),
    };
    Client::open(info.clone().set_addr(address))
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}
