//! The addresses behind the name of a host.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use tokio::sync::oneshot;

/// There is no thread to be had for the lookup.
#[derive(Debug)]
pub(crate) struct NoThread(io::Error);

/// The addresses of `host`, which may be one itself. A name is looked up on a thread of our own:
/// tokio panics where it can have none.
///
/// Cancel-safe: the thread ends as soon as the system has answered.
///
/// # Errors
///
/// What the system says of the name; [`NoThread`] inside of an error if there is none.
pub(crate) async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (answer, answered) = oneshot::channel();
    let host = host.to_owned();
    let look_up = move || {
        let found = (host.as_str(), port).to_socket_addrs();
        let _ = answer.send(found.map(Iterator::collect));
    };
    let thread = std::thread::Builder::new().name("leasehold-names".into());
    thread.spawn(look_up).map_err(|error| io::Error::other(NoThread(error)))?;
    answered.await.unwrap_or_else(|_| Err(io::Error::other("the lookup ended without an answer")))
}

impl fmt::Display for NoThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no thread for the lookup: {}", self.0)
    }
}

impl std::error::Error for NoThread {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_are_taken_as_they_are_and_names_are_looked_up() {
        for (host, expected) in [("127.0.0.1", "127.0.0.1:7"), ("::1", "[::1]:7")] {
            assert_eq!(resolve(host, 7).await.unwrap(), [expected.parse().unwrap()]);
        }
        let found = resolve("localhost", 7).await.unwrap();
        assert!(!found.is_empty() && found.iter().all(|address| address.ip().is_loopback() && address.port() == 7));
        assert!(resolve("no.such.host.invalid", 7).await.is_err());
    }
}
