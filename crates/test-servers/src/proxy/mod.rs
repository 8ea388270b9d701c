//! A proxy between a client and any server, which breaks connections on demand.

mod connection;
mod connections;
mod rule;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

pub use connections::Counts;
pub use rule::Rule;

use connection::{Cut, ProxiedConnection};
use connections::Connections;
use rule::Action;

/// Passes bytes between clients of its port and a server, until told to do worse.
///
/// # Rules
///
/// [`cut_before`](Self::cut_before), [`cut_after`](Self::cut_after), [`garble`](Self::garble) and
/// [`stall`](Self::stall) each wait for a request that contains some bytes, and act on the first
/// one only. Every chunk that is read from a client is taken for one request: clients send a small
/// one in one piece, and one that is split between two chunks in the middle of the bytes is not
/// recognised. At most one rule acts on a chunk, the oldest that matches.
///
/// What the server sends next on the same connection is taken for the reply. On a connection with
/// several requests under way, the replies to the earlier ones may share its fate.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    connections: Arc<Connections>,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of `upstream`, on a free port of 127.0.0.1.
    ///
    /// # Panics
    ///
    /// If the address does not resolve, or there is no free port.
    #[must_use]
    #[track_caller]
    pub fn start(upstream: impl ToSocketAddrs) -> Self {
        Self::try_start(upstream).unwrap_or_else(|error| panic!("no proxy: {error}"))
    }

    fn try_start(upstream: impl ToSocketAddrs) -> io::Result<Self> {
        let upstream = upstream.to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let connections = Arc::new(Connections::default());
        let acceptor = thread::Builder::new().name("proxy".to_owned()).spawn({
            let connections = Arc::clone(&connections);
            move || accept(&listener, upstream, &connections)
        })?;
        Ok(Self { address, connections, acceptor: Some(acceptor) })
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port that clients connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Resets every open connection, as a crash or a firewall does: clients get `ECONNRESET`. When
    /// this returns it has happened.
    pub fn cut_all(&self) {
        self.connections.cut_all(Cut::Reset);
    }

    /// Closes every open connection, as a server that shuts down does: clients read the end of the
    /// stream. When this returns it has happened.
    pub fn close_all(&self) {
        self.connections.cut_all(Cut::Close);
    }

    /// From now on resets every new connection as soon as it is made. The open ones stay.
    pub fn refuse(&self) {
        self.connections.set_refusing(true);
    }

    /// Takes new connections again.
    pub fn accept(&self) {
        self.connections.set_refusing(false);
    }

    /// Holds back every byte in either direction until [`flow`](Self::flow), on connections old and
    /// new. Bytes that are on their way when this is called have arrived when it returns.
    pub fn stall_all(&self) {
        self.connections.stall();
    }

    /// Lets bytes pass again, those held back first.
    pub fn flow(&self) {
        self.connections.flow();
    }

    /// Resets the connection instead of forwarding the next request that contains `bytes`. The
    /// server never sees it.
    pub fn cut_before(&self, bytes: impl AsRef<[u8]>) -> Rule {
        self.rule(bytes, Action::CutBefore)
    }

    /// Forwards the next request that contains `bytes`, waits for the reply, and resets the
    /// connection instead of delivering it. The server has done what it was asked.
    ///
    /// The connection is reset when the server has been silent for 50 milliseconds after the
    /// beginning of its reply, so that replies to earlier requests are not taken for it.
    pub fn cut_after(&self, bytes: impl AsRef<[u8]>) -> Rule {
        self.rule(bytes, Action::CutAfter)
    }

    /// Answers the next request that contains `bytes` with `reply`. The server never sees it. The
    /// connection stays.
    pub fn garble(&self, bytes: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) -> Rule {
        self.rule(bytes, Action::Garble(reply.as_ref().to_vec()))
    }

    /// Forwards the next request that contains `bytes`, and never again delivers anything that the
    /// server sends on that connection, which stays open even if the server closes it.
    pub fn stall(&self, bytes: impl AsRef<[u8]>) -> Rule {
        self.rule(bytes, Action::Stall)
    }

    /// What has passed so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.connections.counts()
    }

    /// How many connections are open now.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.connections.open_connections()
    }

    fn rule(&self, bytes: impl AsRef<[u8]>, action: Action) -> Rule {
        let rule = Rule::default();
        self.connections.add_rule(bytes.as_ref().to_vec(), action, rule.clone());
        rule
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.connections.close();
        // Wakes the acceptor, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.connections.cut_all(Cut::Reset);
    }
}

fn accept(listener: &TcpListener, upstream: SocketAddr, connections: &Arc<Connections>) {
    while let Ok((client, _)) = listener.accept() {
        if connections.is_closed() {
            return;
        }
        if connections.is_refusing() {
            connection::reset(client);
            continue;
        }
        let connections = Arc::clone(connections);
        // The server may be slow to take the connection; others need not wait for that.
        thread::spawn(move || match TcpStream::connect(upstream) {
            Ok(server) => ProxiedConnection::run(client, server, &connections),
            Err(_) => connection::reset(client),
        });
    }
}
