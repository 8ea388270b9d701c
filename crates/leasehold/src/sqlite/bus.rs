//! Messages between the processes that use one database: datagrams to sockets beside the file.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::directory::{self, SocketDirectory};
use super::operations::Message;
use crate::backend::Event;
use crate::remote::notification::{
    FREED, GRANTED, GRANTED_TOPIC, Notification, TAKEN_TOPIC, freed_topic, granted_to, letter_of,
};
use crate::{Error, ErrorCode, LockId};

/// Tells a listener that it had too many unread messages to take another one.
pub(super) const MISSED: &str = "M";

/// It is the turn of a lock id: `T` and the id. Only its owner listens, and whoever sends it has
/// read the id in the database.
const CALLED: &str = "T";

/// The pause between two tries to tell a listener that it missed something.
const CATCH_UP_EVERY: Duration = Duration::from_millis(20);

/// How many sockets are looked at for one sweep.
const MOST_STRAYS: usize = 200;

/// A message to a listener, in this process or another one.
pub(super) struct Datagram {
    pub(super) address: String,
    pub(super) text: Vec<u8>,
}

impl Message {
    pub(super) fn topic(&self) -> String {
        match self {
            Message::Freed(key) => freed_topic(key.as_str()),
            Message::Called(id) => turn_topic(id),
            Message::Taken(..) => TAKEN_TOPIC.to_owned(),
            Message::Granted(_) => GRANTED_TOPIC.to_owned(),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Message::Freed(key) => format!("{FREED}{}", key.as_str()),
            Message::Called(id) => format!("{CALLED}{}", id.expose()),
            Message::Taken(lock, how) => format!("{}{}{}", letter_of(*how), lock.fence, lock.key.as_str()),
            Message::Granted(lock) => format!("{GRANTED}{}{}", lock.fence, granted_to(lock.holder.as_ref(), &lock.key)),
        }
        .into_bytes()
    }
}

/// What the topic of a lock id whose turn it is starts with.
pub(super) const TURN: &str = "turn:";

/// The topic of a lock id whose turn it is.
pub(super) fn turn_topic(id: &LockId) -> String {
    format!("{TURN}{}", id.expose())
}

/// What a message says; none if it is none of ours.
pub(super) fn decode(text: &str) -> Option<Notification> {
    match text.strip_prefix(CALLED) {
        Some(id) => Some(Notification { topic: turn_topic(&id.parse().ok()?), event: Event::Freed }),
        None => Notification::decode(text),
    }
}

/// Sends messages. It never waits: they are hints, and whoever misses one looks by itself after a
/// while.
pub(super) struct DatagramSender {
    database: PathBuf,
    socket: Option<UnixDatagram>,
    directory: Option<SocketDirectory>,
    /// Listeners who could not take a message because they had too many, and are to be told.
    behind: BTreeSet<String>,
    told: Instant,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Delivered,
    /// The listener has too many unread ones.
    Full,
    /// There is no such socket.
    Missing,
    /// There is a socket, and nobody at it.
    Dead,
    /// Nothing is known of the listener, such as one whose socket is not for us.
    Unknown,
}

impl Sent {
    fn of(outcome: &io::Result<impl Sized>) -> Self {
        match outcome.as_ref().map_err(io::Error::kind) {
            Ok(_) => Sent::Delivered,
            Err(ErrorKind::WouldBlock) => Sent::Full,
            Err(ErrorKind::NotFound) => Sent::Missing,
            Err(ErrorKind::ConnectionRefused) => Sent::Dead,
            Err(_) => Sent::Unknown,
        }
    }
}

impl DatagramSender {
    pub(super) fn new(database: &Path) -> Self {
        let socket = UnixDatagram::unbound().and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        Self {
            database: database.to_owned(),
            socket: socket.ok(),
            directory: None,
            behind: BTreeSet::new(),
            told: Instant::now(),
        }
    }

    /// Sends all messages, and returns the addresses at which nobody is.
    pub(super) fn send(&mut self, datagrams: &[Datagram]) -> Vec<String> {
        let mut dead = Vec::new();
        for datagram in datagrams {
            match self.try_send(&datagram.address, &datagram.text) {
                Sent::Missing | Sent::Dead => dead.push(datagram.address.clone()),
                Sent::Full => {
                    self.behind.insert(datagram.address.clone());
                }
                Sent::Delivered | Sent::Unknown => {}
            }
        }
        dead
    }

    /// Tells those who could not take a message that they missed something.
    pub(super) fn catch_up(&mut self) {
        if self.behind.is_empty() || self.told.elapsed() < CATCH_UP_EVERY {
            return;
        }
        self.told = Instant::now();
        let behind = std::mem::take(&mut self.behind);
        self.behind =
            behind.into_iter().filter(|address| self.try_send(address, MISSED.as_bytes()) == Sent::Full).collect();
    }

    /// How soon there is somebody to tell that they missed something.
    pub(super) fn catches_up_in(&self) -> Option<Duration> {
        (!self.behind.is_empty()).then(|| CATCH_UP_EVERY.saturating_sub(self.told.elapsed()))
    }

    /// Those of the addresses at which nobody is. Nobody is woken by it.
    pub(super) fn dead(&mut self, addresses: Vec<String>) -> Vec<String> {
        addresses.into_iter().filter(|address| matches!(self.knock(address), Sent::Missing | Sent::Dead)).collect()
    }

    /// Whether there is a socket of this name and nobody at it: whoever listened there is gone. A
    /// socket that is missing may have been deleted while its owner is well.
    pub(super) fn refuses(&mut self, address: &str) -> bool {
        self.knock(address) == Sent::Dead
    }

    /// Whether whoever listens at this address can be woken, as far as we can tell.
    pub(super) fn reaches(&mut self, address: &str) -> bool {
        self.knock(address) != Sent::Unknown
    }

    /// Removes the sockets of listeners who are gone.
    pub(super) fn remove(&mut self, addresses: &[String]) {
        if let Some(directory) = &self.directory {
            addresses.iter().for_each(|address| directory.remove(address));
        }
    }

    /// The sockets that were left behind by processes that are gone, some of them.
    pub(super) fn strays(&mut self) -> Vec<String> {
        let Ok(directory) = SocketDirectory::open(&self.database) else { return Vec::new() };
        let mut names = directory.old_names().unwrap_or_default();
        fastrand::shuffle(&mut names);
        names.truncate(MOST_STRAYS);
        self.directory = Some(directory);
        self.dead(names)
    }

    fn knock(&mut self, address: &str) -> Sent {
        self.reach(address, |_, address| UnixDatagram::unbound()?.connect_addr(address))
    }

    fn try_send(&mut self, address: &str, text: &[u8]) -> Sent {
        self.reach(address, |socket, address| socket.send_to_addr(text, address))
    }

    fn reach<T>(&mut self, address: &str, act: impl Fn(&UnixDatagram, &SocketAddr) -> io::Result<T>) -> Sent {
        let Some(socket) = &self.socket else { return Sent::Unknown };
        let reach = |directory: &SocketDirectory| {
            Sent::of(&directory.address(address).and_then(|address| act(socket, &address)))
        };
        let sent = self.directory.as_ref().map_or(Sent::Missing, reach);
        if sent != Sent::Missing {
            return sent;
        }
        // The directory may have gone and come again.
        match SocketDirectory::open(&self.database) {
            Ok(directory) => reach(self.directory.insert(directory)),
            Err(error) => Sent::of(&Err::<(), _>(error)),
        }
    }
}

/// A socket for messages to this process, under a name that nobody can guess.
pub(super) fn bind(database: &Path) -> Result<Listening, Error> {
    let address = LockId::random()?.expose().to_owned();
    let (directory, socket) = directory::bind(database, &address).map_err(|source| {
        Error::new(ErrorCode::Internal, "cannot listen for wake-ups from other processes")
            .with_hint("whoever waits looks by itself after a while; `leasehold doctor` tells more")
            .with_source(source)
    })?;
    Ok(Listening { directory, socket, address })
}

/// A socket at which this process listens.
pub(super) struct Listening {
    pub(super) directory: SocketDirectory,
    pub(super) socket: UnixDatagram,
    /// Its name in the directory.
    pub(super) address: String,
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let called = (Message::Called(LockId::random().unwrap()), Event::Freed);
        for (message, event) in [freed, called, taken(Loss::Stolen), taken(Loss::ForceReleased)] {
            let text = String::from_utf8(message.encode()).unwrap();
            assert_eq!(decode(&text), Some(Notification { topic: message.topic(), event }));
        }
        assert_eq!(decode("Tno-lock-id"), None);
    }

    #[test]
    fn an_address_at_which_nobody_is_is_reported_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("locks.db");
        std::fs::write(&database, "").unwrap();
        let mut sender = DatagramSender::new(&database);
        let to = |address: &str| [Datagram { address: address.into(), text: b"Fk".to_vec() }];
        assert_eq!(sender.send(&to("nobody")), ["nobody"], "before there is a directory");
        let (alive, dead) = (bind(&database).unwrap(), bind(&database).unwrap());
        drop(dead.socket);
        assert!(sender.send(&to(&alive.address)).is_empty());
        for nobody in [dead.address.as_str(), "nobody", "../locks.db", ""] {
            assert_eq!(sender.send(&to(nobody)), [nobody]);
            sender.remove(&[nobody.to_owned()]);
        }
        assert_eq!(sender.dead(vec![alive.address.clone(), dead.address.clone()]), [dead.address]);
        let file = alive.directory.address(&alive.address).unwrap();
        assert!(file.as_pathname().unwrap().exists() && database.exists());
        alive.directory.remove(&alive.address);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "only the database is left");
    }

    #[test]
    fn a_listener_with_too_many_messages_is_told_that_it_missed_some() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("locks.db");
        std::fs::write(&database, "").unwrap();
        let mut sender = DatagramSender::new(&database);
        let listening = bind(&database).unwrap();
        let flood = || Datagram { address: listening.address.clone(), text: b"Fk".to_vec() };
        let mut sent = 0;
        while sender.catches_up_in().is_none() {
            assert!(sender.send(&[flood()]).is_empty());
            sent += 1;
            assert!(sent < 100_000, "the queue of a socket has no limit");
        }
        let mut buffer = [0; 8];
        let mut read = || listening.socket.recv(&mut buffer).map(|length| buffer[..length].to_vec());
        for _ in 1..sent {
            assert_eq!(read().unwrap(), b"Fk");
        }
        assert!(read().is_err(), "one did not fit");
        while sender.catches_up_in().is_some() {
            sender.catch_up();
        }
        assert_eq!(read().unwrap(), MISSED.as_bytes());
    }

    #[test]
    fn sockets_that_crashed_processes_left_behind_are_found_and_others_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("locks.db");
        std::fs::write(&database, "").unwrap();
        let (alive, dead, new) = (bind(&database).unwrap(), bind(&database).unwrap(), bind(&database).unwrap());
        for old in [&alive, &dead] {
            let file = directory.path().join("locks.db-listeners").join(&old.address);
            let aged = std::process::Command::new("touch").args(["-d", "5 minutes ago"]).arg(file).status();
            assert!(aged.unwrap().success());
        }
        drop((dead.socket, new.socket));
        assert_eq!(DatagramSender::new(&database).strays(), [dead.address]);
    }
}
