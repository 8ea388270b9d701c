//! Messages between the processes that use one database: datagrams in the kernel's own name space.

use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use super::operations::Message;
use crate::remote::notification::{FREED, TAKEN_TOPIC, freed_topic, letter_of};
use crate::{Error, ErrorCode, LockId};

/// A message to a listener, in this process or another one.
pub(super) struct Datagram {
    pub(super) address: String,
    pub(super) text: Vec<u8>,
}

impl Datagram {
    /// An empty message, to find out whether anybody is there.
    pub(super) fn probe(address: String) -> Self {
        Self { address, text: Vec::new() }
    }
}

impl Message {
    pub(super) fn topic(&self) -> String {
        match self {
            Message::Freed(key) => freed_topic(key.as_str()),
            Message::Taken(..) => TAKEN_TOPIC.to_owned(),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Message::Freed(key) => format!("{FREED}{}", key.as_str()),
            Message::Taken(lock, how) => format!("{}{}{}", letter_of(*how), lock.fence, lock.key.as_str()),
        }
        .into_bytes()
    }
}

/// Sends messages. It never waits: they are hints, and whoever misses one looks by itself after a
/// while.
pub(super) struct DatagramSender {
    socket: Option<UnixDatagram>,
    /// What the addresses that can be reached from here start with.
    near: String,
}

impl DatagramSender {
    pub(super) fn new() -> Self {
        let socket = UnixDatagram::unbound().and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        Self { socket: socket.ok(), near: near() }
    }

    /// Whether an address can be reached from here. Nothing is known of the others.
    pub(super) fn reaches(&self, address: &str) -> bool {
        address.starts_with(&self.near)
    }

    /// Sends all messages, and returns the addresses at which nobody is.
    pub(super) fn send(&self, datagrams: &[Datagram]) -> Vec<String> {
        let Some(socket) = &self.socket else { return Vec::new() };
        let nobody_there = |datagram: &&Datagram| {
            let sent =
                socket_address(&datagram.address).and_then(|address| socket.send_to_addr(&datagram.text, &address));
            matches!(sent, Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound))
        };
        datagrams
            .iter()
            .filter(|datagram| self.reaches(&datagram.address))
            .filter(nobody_there)
            .map(|datagram| datagram.address.clone())
            .collect()
    }
}

/// A socket for messages to this process, under a name that nobody can guess.
pub(super) fn bind() -> Result<(UnixDatagram, String), Error> {
    let failed = |source: io::Error| {
        Error::new(ErrorCode::Internal, "cannot listen for wake-ups from other processes").with_source(source)
    };
    let address = format!("{}{}", near(), LockId::random()?.expose());
    let socket = socket_address(&address).and_then(|address| UnixDatagram::bind_addr(&address)).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    Ok((socket, address))
}

/// Names of sockets are known only within a network namespace, such as a container's, so addresses
/// start with its number.
#[cfg(target_os = "linux")]
fn near() -> String {
    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let number: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    format!("leasehold-{number}-")
}

#[cfg(not(target_os = "linux"))]
fn near() -> String {
    String::from("leasehold-")
}

/// A name in the kernel's own space: it takes no file, goes away with its process, and has no
/// directory whose path could be too long.
#[cfg(target_os = "linux")]
fn socket_address(name: &str) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn socket_address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_pathname(std::env::temp_dir().join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Event;
    use crate::remote::notification::Notification;
    use crate::sqlite::operations::TakenLock;
    use crate::{Fence, Key, Loss};

    #[test]
    fn what_is_sent_is_what_listeners_decode() {
        let (key, fence) = (Key::new("caf\u{e9}").unwrap(), Fence::new(7).unwrap());
        let taken = |how| {
            let lock = TakenLock { key: key.clone(), fence };
            (Message::Taken(lock, how), Event::Taken { key: key.clone(), fence, how })
        };
        let freed = (Message::Freed(key.clone()), Event::Freed);
        for (message, event) in [freed, taken(Loss::Stolen), taken(Loss::ForceReleased)] {
            let text = String::from_utf8(message.encode()).unwrap();
            assert_eq!(Notification::decode(&text), Some(Notification { topic: message.topic(), event }));
        }
    }

    #[test]
    fn an_address_at_which_nobody_is_is_reported() {
        let (_socket, address) = bind().unwrap();
        let sender = DatagramSender::new();
        assert!(sender.send(&[Datagram::probe(address)]).is_empty());
        let nobody = format!("{}nobody", near());
        assert_eq!(sender.send(&[Datagram::probe(nobody.clone())]), [nobody]);
        let elsewhere = Datagram::probe("leasehold-1-in-another-namespace".into());
        assert!(sender.send(&[elsewhere]).is_empty(), "nothing is known of it");
    }
}
