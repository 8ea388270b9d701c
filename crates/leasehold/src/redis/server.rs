use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, PushInfo, RedisError, RedisResult};
use tokio::sync::mpsc;

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
    /// What the server sends of its own accord. Closed as soon as the connection is.
    pub(super) pushes: mpsc::UnboundedReceiver<PushInfo>,
    /// The host it leads to, unless it is a socket.
    pub(super) host: Option<String>,
    /// Which of several hosts or sentinels led here; none if a cluster did.
    endpoint: Option<usize>,
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
                    Some((name, primary)) => through(endpoint, name, primary).await,
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

    fn any(&self) -> &Client {
        match &self.place {
            Place::Hosts(hosts) => &hosts[0],
            Place::Sentinels { primary, .. } => primary,
        }
    }
}

async fn open(client: &Client) -> RedisResult<Connection> {
    let (sender, pushes) = mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new()
        // Every operation has a deadline of its own.
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(BACKLOG)
        .set_push_sender(Arc::new(sender));
    let commands = client.get_multiplexed_async_connection_with_config(&config).await?;
    let host = match client.get_connection_info().addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => Some(host.clone()),
        _ => None,
    };
    Ok(Connection { commands, pushes, host, endpoint: None })
}

/// Asks a sentinel where the primary is, and makes sure that it is one: sentinels learn of a
/// failover at different times.
async fn through(sentinel: &Client, name: &str, primary: &Client) -> RedisResult<Connection> {
    let mut asked = open(sentinel).await?;
    let mut question = redis::cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    let address: Option<Address> = question.query_async(&mut asked.commands).await.map_err(|error| {
        let no_sentinel = error.detail().is_some_and(|detail| detail.contains("unknown command"));
        if no_sentinel { RedisError::from((ErrorKind::InvalidClientConfig, "not a sentinel")) } else { error }
    })?;
    let address = address.ok_or_else(|| {
        RedisError::from((ErrorKind::InvalidClientConfig, "the sentinels know no primary of this name"))
    })?;
    let mut connection = open(&at(primary, &address)?).await?;
    let role: RedisResult<Vec<redis::Value>> = redis::cmd("ROLE").query_async(&mut connection.commands).await;
    match role.as_deref() {
        Ok([redis::Value::BulkString(role), ..]) if role != b"master" => {
            Err(RedisError::from((ErrorKind::Server(redis::ServerErrorKind::ReadOnly), "not the primary any more")))
        }
        // A user who may not ask gets the answer with the first write.
        _ => Ok(connection),
    }
}

/// The same client for another address.
fn at(client: &Client, (host, port): &Address) -> RedisResult<Client> {
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
