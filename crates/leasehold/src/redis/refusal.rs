//! What a server says to a connection that it does not want.

use std::time::Duration;

use redis::{Client, ConnectionAddr, RedisError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::error::{server_error, unwanted};
use crate::remote::resolve::resolve;

/// A server that answers at all has answered by then.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why the server hung up on a new connection. It says so and closes it, as a rule before it has
/// read anything. Whoever writes then hears of a broken pipe and nothing else, so it is asked
/// again, by somebody who also listens. Without TLS only: with it the server says nothing.
pub(super) async fn refusal(client: &Client) -> Option<RedisError> {
    let asked = async {
        match client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) => {
                let addresses = resolve(host, *port).await.ok()?;
                ask(TcpStream::connect(&addresses[..]).await.ok()?).await
            }
            ConnectionAddr::Unix(path) => ask(UnixStream::connect(path).await.ok()?).await,
            _ => None,
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.ok().flatten()
}

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Option<RedisError> {
    let _ = stream.write_all(b"PING\r\n").await;
    let mut answer = [0; 128];
    let length = stream.read(&mut answer).await.ok()?;
    let error = answer[..length].starts_with(b"-").then(|| server_error(&answer[..length]))?;
    unwanted(&error).then_some(error)
}
