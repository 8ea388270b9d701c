use std::collections::HashMap;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::operations::News;
use crate::backend::{Event, Publisher};
use crate::sync::lock;
use crate::{Error, ErrorCode, Key, LockId, Loss};

/// The topic of locks that are taken from their holders. No key has this name, because topics of keys have a prefix.
pub(super) const TAKEN: &str = "taken";

/// The topic of a key that is freed.
pub(super) fn freed_topic(key: &Key) -> String {
    format!("freed:{}", key.as_str())
}

/// A message to a listener, in this process or another one.
pub(super) struct Mail {
    pub(super) address: String,
    pub(super) text: Vec<u8>,
}

impl Mail {
    /// An empty message, to find out whether anybody is there.
    pub(super) fn knock(address: String) -> Self {
        Self { address, text: Vec::new() }
    }
}

impl News {
    pub(super) fn topic(&self) -> String {
        match self {
            News::Freed(key) => freed_topic(key),
            News::Taken(..) => TAKEN.to_owned(),
        }
    }

    /// The first letter says what, the rest which.
    pub(super) fn text(&self) -> Vec<u8> {
        let (letter, rest) = match self {
            News::Freed(key) => ('F', key.as_str()),
            News::Taken(id, Loss::ForceReleased) => ('R', id.expose()),
            News::Taken(id, _) => ('S', id.expose()),
        };
        format!("{letter}{rest}").into_bytes()
    }
}

/// What a message says: its topic, and the event.
fn understand(text: &[u8]) -> Option<(String, Event)> {
    let text = std::str::from_utf8(text).ok()?;
    let (letter, rest) = text.split_at_checked(1)?;
    let taken = |how| Some((TAKEN.to_owned(), Event::Taken { lock_id: rest.parse::<LockId>().ok()?, how }));
    match letter {
        "F" => Some((freed_topic(&Key::new(rest).ok()?), Event::Freed)),
        "R" => taken(Loss::ForceReleased),
        "S" => taken(Loss::Stolen),
        _ => None,
    }
}

/// Sends messages. It never waits: news are hints, and whoever misses one looks by itself after a while.
pub(super) struct Postman {
    socket: Option<UnixDatagram>,
    /// What the addresses that can be reached from here start with.
    near: String,
}

impl Postman {
    pub(super) fn new() -> Self {
        let socket = UnixDatagram::unbound().and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        Self { socket: socket.ok(), near: near() }
    }

    /// Whether an address can be reached from here. Nothing is known of the others.
    pub(super) fn reaches(&self, address: &str) -> bool {
        address.starts_with(&self.near)
    }

    /// Sends all messages, and returns the addresses at which nobody is.
    pub(super) fn deliver(&self, mail: &[Mail]) -> Vec<String> {
        let Some(socket) = &self.socket else { return Vec::new() };
        let nobody_there = |mail: &&Mail| {
            let sent = socket_address(&mail.address).and_then(|address| socket.send_to_addr(&mail.text, &address));
            matches!(sent, Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound))
        };
        mail.iter()
            .filter(|mail| self.reaches(&mail.address))
            .filter(nobody_there)
            .map(|mail| mail.address.clone())
            .collect()
    }
}

/// Hears the messages for this process and hands them to its subscriptions.
pub(super) struct Ear {
    pub(super) address: String,
    pub(super) subscribers: Arc<Mutex<Subscribers>>,
    closed: Arc<AtomicBool>,
}

pub(super) type Subscribers = HashMap<String, Vec<Publisher>>;

impl Ear {
    pub(super) fn open() -> Result<Self, Error> {
        let failed = |source: io::Error| {
            Error::new(ErrorCode::Internal, "cannot listen for wake-ups from other processes").with_source(source)
        };
        let address = format!("{}{}", near(), LockId::random()?.expose());
        let socket = socket_address(&address).and_then(|address| UnixDatagram::bind_addr(&address)).map_err(failed)?;
        let subscribers = Arc::new(Mutex::new(Subscribers::new()));
        let closed = Arc::new(AtomicBool::new(false));
        let (heard, over) = (subscribers.clone(), closed.clone());
        thread::Builder::new()
            .name("leasehold-ear".into())
            .spawn(move || hear(&socket, &heard, &over))
            .map_err(failed)?;
        Ok(Self { address, subscribers, closed })
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        // The thread sleeps until a message comes, so here is one. Only we can end it: anybody on this host can send.
        self.closed.store(true, Ordering::Release);
        Postman::new().deliver(&[Mail::knock(self.address.clone())]);
    }
}

fn hear(socket: &UnixDatagram, subscribers: &Mutex<Subscribers>, closed: &AtomicBool) {
    // A letter and the longest key.
    let mut buffer = [0; 1 + Key::MAX_BYTES];
    loop {
        match socket.recv(&mut buffer) {
            Ok(_) if closed.load(Ordering::Acquire) => return,
            Ok(length) => {
                if let Some((topic, event)) = understand(&buffer[..length]) {
                    lock(subscribers).get(&topic).into_iter().flatten().for_each(|reader| reader.publish(event));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::debug!(%error, "wake-ups from other processes stopped; waiting polls from now on");
                return;
            }
        }
    }
}

/// Names of sockets are known only within a network namespace, such as a container's, so addresses start with its number.
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

/// A name in the kernel's own space: it takes no file, goes away with its process, and has no directory whose path could
/// be too long.
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

    #[test]
    fn every_kind_of_news_is_understood_and_noise_is_not() {
        let id = LockId::random().unwrap();
        let key = Key::new("caf\u{e9}").unwrap();
        for (news, event) in [
            (News::Freed(key), Event::Freed),
            (News::Taken(id, Loss::Stolen), Event::Taken { lock_id: id, how: Loss::Stolen }),
            (News::Taken(id, Loss::ForceReleased), Event::Taken { lock_id: id, how: Loss::ForceReleased }),
        ] {
            assert_eq!(understand(&news.text()), Some((news.topic(), event)));
        }
        for noise in [&b""[..], b"F", b"Sshort", b"\xff\xff", b"Xkey", "é".as_bytes()] {
            assert_eq!(understand(noise), None, "{noise:?}");
        }
    }

    #[test]
    fn an_address_at_which_nobody_is_is_reported() {
        let ear = Ear::open().unwrap();
        let postman = Postman::new();
        assert!(postman.deliver(&[Mail::knock(ear.address.clone())]).is_empty());
        let nobody = format!("{}nobody", near());
        assert_eq!(postman.deliver(&[Mail::knock(nobody.clone())]), [nobody]);
        let elsewhere = Mail::knock("leasehold-1-in-another-namespace".into());
        assert!(postman.deliver(&[elsewhere]).is_empty(), "nothing is known of it");
    }
}
