use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const CHUNK: usize = 64 * 1024;

/// Puts a server far away: everything takes a while in each direction, and nothing else changes.
/// Connections last as long as both sides want them, and the port as long as the process.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    address: SocketAddr,
}

impl Distance {
    /// Lets clients reach `upstream` on a free port of 127.0.0.1, with `each_way` in each
    /// direction.
    ///
    /// # Panics
    ///
    /// If the address does not resolve, or there is no free port.
    #[must_use]
    #[track_caller]
    pub fn start(upstream: impl ToSocketAddrs, each_way: Duration) -> Self {
        Self::try_start(upstream, each_way).unwrap_or_else(|error| panic!("no distance: {error}"))
    }

    fn try_start(upstream: impl ToSocketAddrs, each_way: Duration) -> io::Result<Self> {
        let upstream = upstream.to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        thread::Builder::new().name("distance".to_owned()).spawn(move || {
            for client in listener.incoming().flatten() {
                // A server that is not there is a connection that ends at once.
                if let Ok(server) = TcpStream::connect(upstream) {
                    let _ = join(&client, &server, each_way);
                }
            }
        })?;
        Ok(Self { address })
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn join(client: &TcpStream, server: &TcpStream, each_way: Duration) -> io::Result<()> {
    for stream in [client, server] {
        stream.set_nodelay(true)?;
    }
    carry(client.try_clone()?, server.try_clone()?, each_way)?;
    carry(server.try_clone()?, client.try_clone()?, each_way)
}

/// Carries bytes in one direction: one thread reads, another writes what is old enough.
fn carry(mut from: TcpStream, mut to: TcpStream, each_way: Duration) -> io::Result<()> {
    let (sender, travelling) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::Builder::new().spawn(move || {
        let mut buffer = vec![0; CHUNK];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if sender.send((Instant::now() + each_way, buffer[..length].to_vec())).is_err() {
                break;
            }
        }
    })?;
    thread::Builder::new().spawn(move || {
        for (arrives, bytes) in travelling {
            thread::sleep(arrives.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_order_and_not_before_their_time() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let each_way = Duration::from_millis(30);
        let distance = Distance::start(server.local_addr().unwrap(), each_way);
        let echo = thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut bytes = [0; 5];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        });
        let mut client = TcpStream::connect(distance.address()).unwrap();
        let started = Instant::now();
        client.write_all(b"he").unwrap();
        client.write_all(b"llo").unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"hello");
        assert!(started.elapsed() >= each_way * 2);
        echo.join().unwrap();
    }
}
