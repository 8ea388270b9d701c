use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value as Json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Identity;
use tonic::transport::server::{Server as Transport, ServerTlsConfig};

use crate::access::Access;
use crate::connections::Connections;
use crate::databases::Databases;
use crate::engine::Engine;
use crate::faults::Faults;
use crate::listen::Listeners;
use crate::rpc::FirestoreService;
use crate::server::Server;
use crate::state::{Mode, State};
use crate::{control, token_endpoint};

/// What a [`Double`] is to be like.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where the control socket and the journal are.
    pub directory: PathBuf,
    /// The port of 127.0.0.1 that speaks gRPC; 0 takes any.
    pub port: u16,
    /// The certificate and the key of a server that speaks TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The port of 127.0.0.1 where service accounts get tokens, without which nobody is let in; 0
    /// takes any. If there is none, nobody needs a token.
    pub token_port: Option<u16>,
    /// Whether documents survive the process.
    pub journal: bool,
    /// Whether transactions go ahead and fail, rather than wait for each other.
    pub optimistic: bool,
}

/// A running server. It ends when it is dropped.
#[derive(Debug)]
pub struct Double {
    server: Arc<Server>,
    address: SocketAddr,
    token_address: Option<SocketAddr>,
    tasks: JoinSet<()>,
}

impl Double {
    /// Starts a server. When this returns it takes connections.
    ///
    /// # Errors
    ///
    /// If a port is taken, or a file cannot be read or written.
    pub async fn start(options: Options) -> io::Result<Self> {
        let listener = bind(options.port).await?;
        let token_listener = match options.token_port {
            Some(port) => Some(bind(port).await?),
            None => None,
        };
        let journal = options.journal.then(|| options.directory.join("journal"));
        let mode = if options.optimistic { Mode::Optimistic } else { Mode::Pessimistic };
        let server = Arc::new(Server {
            engine: Engine::new(State::new(journal.as_deref(), mode)?),
            access: Access::new(token_listener.is_some()),
            databases: Databases::new(),
            faults: Faults::default(),
            connections: Arc::default(),
            listeners: Listeners::new(),
        });
        let control = control::bind(&options.directory.join("control"))?;
        let address = listener.local_addr()?;
        let token_address = token_listener.as_ref().map(TcpListener::local_addr).transpose()?;

        let mut transport = Transport::builder();
        if let Some((certificate, key)) = &options.tls {
            let identity = Identity::from_pem(std::fs::read(certificate)?, std::fs::read(key)?);
            transport = transport.tls_config(ServerTlsConfig::new().identity(identity)).map_err(io::Error::other)?;
        }
        let mut tasks = JoinSet::new();
        if let Some(listener) = token_listener {
            tasks.spawn(token_endpoint::serve(Arc::clone(&server), listener));
        }
        tasks.spawn(control::serve(Arc::clone(&server), control));
        let (sender, connections) = mpsc::channel(16);
        tasks.spawn(Connections::accept(Arc::clone(&server.connections), listener, sender));
        let service = FirestoreService::new(Arc::clone(&server));
        tasks.spawn(async move {
            if let Err(error) = transport.serve_with_incoming(service, ReceiverStream::new(connections)).await {
                eprintln!("firestore-double: {error}");
            }
        });
        Ok(Self { server, address, token_address, tasks })
    }

    /// Where it speaks gRPC.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where service accounts get tokens, if anybody needs them.
    #[must_use]
    pub fn token_address(&self) -> Option<SocketAddr> {
        self.token_address
    }

    /// Does what a line of the control socket would.
    ///
    /// # Errors
    ///
    /// If the command is unknown, or does not work.
    pub async fn control(&self, command: Json) -> Result<Json, String> {
        control::run(&self.server, &command).await
    }

    /// Waits until the server ends by itself, which only a bug makes it do.
    pub async fn ended(mut self) {
        self.tasks.join_next().await;
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.server.connections.close_some(1.0);
    }
}

async fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await
}
