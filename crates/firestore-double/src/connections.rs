use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream as StdTcpStream};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tonic::transport::server::Connected;

/// The connection that a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(u64);

/// The connections that are open, each with a way to close it from outside.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    last: u64,
    sockets: BTreeMap<ConnectionId, StdTcpStream>,
}

impl Connections {
    pub(crate) fn count(&self) -> usize {
        self.open().sockets.len()
    }

    pub(crate) fn close(&self, id: ConnectionId) {
        if let Some(socket) = self.open().sockets.get(&id) {
            // A connection that is gone already is what was asked for.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Closes this part of them, those first that are open longest, and says how many.
    pub(crate) fn close_some(&self, fraction: f64) -> usize {
        let ids: Vec<_> = self.open().sockets.keys().copied().collect();
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let number = (ids.len() as f64 * fraction.clamp(0.0, 1.0)).ceil() as usize;
        ids.iter().take(number).for_each(|id| self.close(*id));
        number
    }

    /// Takes connections as they come.
    pub(crate) async fn accept(self: Arc<Self>, listener: TcpListener, to: mpsc::Sender<io::Result<Connection>>) {
        loop {
            // An error of one connection is not the end of the others.
            let Ok((stream, _)) = listener.accept().await else { continue };
            let Ok(connection) = Self::register(&self, stream) else { continue };
            if to.send(Ok(connection)).await.is_err() {
                return;
            }
        }
    }

    fn register(connections: &Arc<Self>, stream: TcpStream) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        let stream = stream.into_std()?;
        let mut open = connections.open();
        open.last += 1;
        let id = ConnectionId(open.last);
        open.sockets.insert(id, stream.try_clone()?);
        drop(open);
        Ok(Connection { id, stream: TcpStream::from_std(stream)?, connections: Arc::clone(connections) })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection, forgotten when it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    id: ConnectionId,
    stream: TcpStream,
    connections: Arc<Connections>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.open().sockets.remove(&self.id);
    }
}

impl Connected for Connection {
    type ConnectInfo = ConnectionId;

    fn connect_info(&self) -> ConnectionId {
        self.id
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
