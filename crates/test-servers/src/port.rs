use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// A port of 127.0.0.1 that no other user of this crate takes, in any process, until it is dropped.
///
/// A port found by binding port 0 belongs to nobody until the server has bound it, nor while the
/// server is down between a kill and a restart, and the kernel hands the same ports to every
/// outgoing connection. So ports are drawn from below the range that the kernel uses by itself, and
/// each is reserved by an abstract socket, which exists as long as this process and in the same
/// network namespace as the port.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _reservation: UnixListener,
}

impl Port {
    pub(crate) fn reserve() -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for _ in 0..1000 {
            let number = fastrand::u16(20_000..32_000);
            match Self::try_reserve(number) {
                Ok(port) => return Ok(port),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    fn try_reserve(number: u16) -> io::Result<Self> {
        let name = SocketAddr::from_abstract_name(format!("test-servers-port-{number}"))?;
        let reservation = UnixListener::bind_addr(&name)?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number))?;
        Ok(Self { number, _reservation: reservation })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_not_handed_out_again_until_it_is_dropped() {
        let port = Port::reserve().unwrap();
        let number = port.number();
        assert_eq!(Port::try_reserve(number).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(port);
        Port::try_reserve(number).unwrap();
    }

    #[test]
    fn a_port_in_use_by_a_stranger_is_not_handed_out() {
        let stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let number = stranger.local_addr().unwrap().port();
        assert_eq!(Port::try_reserve(number).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
