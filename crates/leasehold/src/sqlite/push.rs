use std::collections::HashSet;
use std::sync::Arc;

use tokio::net::UnixDatagram;

use super::Handle;
use super::bus::{self, Listening, MISSED};
use super::directory::SocketDirectory;
use super::job::Op;
use crate::remote::notification::Notification;
use crate::remote::push_connection::{PushConnection, Pushed};
use crate::{Error, ErrorCode, Fence, Holder, Key};

/// A letter, a fence, the longest name of a holder, a line break and the longest key.
const LONGEST: usize = 1 + Fence::DIGITS + Holder::MAX_BYTES + 1 + Key::MAX_BYTES;

/// A socket for wake-ups from all the processes that use the database. Its address stands in the
/// database, beside each topic that this process wants to hear of.
pub(super) struct SocketConnection {
    handle: Arc<Handle>,
    directory: SocketDirectory,
    socket: UnixDatagram,
    address: String,
    topics: HashSet<String>,
}

impl PushConnection for SocketConnection {
    type Server = Arc<Handle>;

    async fn open(handle: &Arc<Handle>) -> Result<Self, Error> {
        let Listening { directory, socket, address } = bus::bind(&handle.path)?;
        let socket = UnixDatagram::from_std(socket).map_err(|source| {
            Error::new(ErrorCode::Internal, "cannot listen for wake-ups from other processes").with_source(source)
        })?;
        Ok(Self { handle: handle.clone(), directory, socket, address, topics: HashSet::new() })
    }

    async fn change(&mut self, wanted: &[String], unwanted: &[String]) -> Result<Vec<String>, Error> {
        for topic in unwanted {
            self.topics.remove(topic);
            self.handle.send(Op::Unlisten { topic: topic.clone(), address: self.address.clone() });
        }
        for topic in wanted {
            self.topics.insert(topic.clone());
            self.handle.call(Op::Listen { topic: topic.clone(), address: self.address.clone() }).await?;
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
        let mut buffer = [0; LONGEST];
        match self.socket.recv(&mut buffer).await {
            Ok(length) => match std::str::from_utf8(&buffer[..length]) {
                Ok(MISSED) => Pushed::Missed,
                Ok(text) => Notification::decode(text).into(),
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
        for topic in self.topics.drain() {
            self.handle.send(Op::Unlisten { topic, address: self.address.clone() });
        }
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
