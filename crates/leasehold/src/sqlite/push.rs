use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use tokio::net::UnixDatagram;

use super::Handle;
use super::bus::{self, Listening, MISSED, TURN, turn_topic};
use super::directory::SocketDirectory;
use super::job::Op;
use crate::remote::notification::{Notification, freed_topic};
use crate::remote::push_connection::{PushConnection, Pushed};
use crate::{Error, ErrorCode, Fence, Holder, Key, LockId};

/// A letter, a fence, the longest name of a holder, a line break and the longest key.
const LONGEST: usize = 1 + Fence::DIGITS + Holder::MAX_BYTES + 1 + Key::MAX_BYTES;

/// A socket for wake-ups from all the processes that use the database. Its address stands in the
/// database, beside each topic that this process wants to hear of.
pub(super) struct SocketConnection {
    handle: Arc<Handle>,
    directory: SocketDirectory,
    socket: UnixDatagram,
    address: String,
    /// The topics in the database, each with the subscriptions for which it stands there.
    topics: HashMap<String, BTreeSet<String>>,
    /// What is yet to be told of the last message.
    unread: VecDeque<Notification>,
}

/// The name of a subscription to a turn in line. It hears that the key is free, too: a program that
/// knows no lines tells no more.
pub(super) fn turn_of(key: &Key, id: &LockId) -> String {
    format!("{} {}", turn_topic(id), freed_topic(key.as_str()))
}

/// The topics in the database that a subscription is about. No lock id has a space in it, but keys
/// may.
fn topics_of(subscription: &str) -> Vec<&str> {
    match subscription.split_once(' ') {
        Some((turn, freed)) if turn.starts_with(TURN) => vec![turn, freed],
        _ => vec![subscription],
    }
}

impl SocketConnection {
    /// The topics in the database that only this subscription was about.
    fn unsubscribe(&mut self, subscription: &str) -> Vec<String> {
        let mut unwanted = Vec::new();
        for topic in topics_of(subscription) {
            let Some(subscriptions) = self.topics.get_mut(topic) else { continue };
            subscriptions.remove(subscription);
            if subscriptions.is_empty() {
                self.topics.remove(topic);
                unwanted.push(topic.to_owned());
            }
        }
        unwanted
    }

    /// Adds a subscription, and tells which topics nobody has heard of here yet.
    fn subscribe(&mut self, subscription: &str) -> Vec<String> {
        let mut wanted = Vec::new();
        for topic in topics_of(subscription) {
            let subscriptions = self.topics.entry(topic.to_owned()).or_default();
            if subscriptions.is_empty() {
                wanted.push(topic.to_owned());
            }
            subscriptions.insert(subscription.to_owned());
        }
        wanted
    }

    /// Tells all subscriptions that a message is for.
    fn read(&mut self, message: Option<Notification>) -> Pushed {
        if let Some(Notification { topic, event }) = message {
            let subscriptions = self.topics.get(&topic).into_iter().flatten();
            let told = subscriptions.map(|topic| Notification { topic: topic.clone(), event: event.clone() });
            self.unread.extend(told);
        }
        self.unread.pop_front().into()
    }
}

impl PushConnection for SocketConnection {
    type Server = Arc<Handle>;

    async fn open(handle: &Arc<Handle>) -> Result<Self, Error> {
        let Listening { directory, socket, address } = bus::bind(&handle.path)?;
        let socket = UnixDatagram::from_std(socket).map_err(|source| {
            Error::new(ErrorCode::Internal, "cannot listen for wake-ups from other processes").with_source(source)
        })?;
        Ok(Self { handle: handle.clone(), directory, socket, address, topics: HashMap::new(), unread: VecDeque::new() })
    }

    async fn change(&mut self, wanted: &[String], unwanted: &[String]) -> Result<Vec<String>, Error> {
        let topics: Vec<_> = unwanted.iter().flat_map(|subscription| self.unsubscribe(subscription)).collect();
        if !topics.is_empty() {
            self.handle.send(Op::Unlisten { topics, address: self.address.clone() });
        }
        let topics: Vec<_> = wanted.iter().flat_map(|subscription| self.subscribe(subscription)).collect();
        if !topics.is_empty() {
            self.handle.call(Op::Listen { topics, address: self.address.clone() }).await?;
        }
        Ok(Vec::new())
    }

    async fn check(&mut self) -> Result<(), Error> {
        // Somebody may have tidied up.
        if self.directory.has(&self.address) {
            return Ok(());
        }
        Err(Error::new(ErrorCode::ServiceUnavailable, "the socket for wake-ups was deleted"))
    }

    async fn next(&mut self) -> Pushed {
        if let Some(unread) = self.unread.pop_front() {
            return Pushed::Notification(unread);
        }
        let mut buffer = [0; LONGEST];
        match self.socket.recv(&mut buffer).await {
            Ok(length) => match std::str::from_utf8(&buffer[..length]) {
                Ok(MISSED) => Pushed::Missed,
                Ok(text) => self.read(bus::decode(text)),
                Err(_) => Pushed::Noise,
            },
            Err(error) => {
                tracing::debug!(%error, "cannot read wake-ups from other processes");
                Pushed::Lost
            }
        }
    }
}

impl Drop for SocketConnection {
    fn drop(&mut self) {
        self.directory.remove(&self.address);
        // Nobody need knock at an address at which nobody is.
        let topics: Vec<_> = self.topics.drain().map(|(topic, _)| topic).collect();
        self.handle.send(Op::Unlisten { topics, address: self.address.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::Sqlite;

    #[tokio::test]
    async fn a_socket_that_somebody_deletes_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let store = Sqlite::open(directory.path().join("locks.db")).await.unwrap();
        let mut connection = SocketConnection::open(&store.handle).await.unwrap();
        connection.check().await.unwrap();
        std::fs::remove_dir_all(directory.path().join("locks.db-listeners")).unwrap();
        let error = connection.check().await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        let mut again = SocketConnection::open(&store.handle).await.unwrap();
        again.check().await.unwrap();
    }
}
