use std::collections::HashSet;
use std::sync::Arc;

use tokio::net::UnixDatagram;

use super::job::Op;
use super::{Handle, bus};
use crate::remote::listener::{PushConnection, Pushed};
use crate::remote::notification::Notification;
use crate::{Error, ErrorCode, Fence, Key};

/// A letter, a fence and the longest key.
const LONGEST: usize = 1 + Fence::DIGITS + Key::MAX_BYTES;

/// A socket for wake-ups from all the processes that use the database. Its address stands in the
/// database, beside each topic that this process wants to hear of.
pub(super) struct SocketConnection {
    handle: Arc<Handle>,
    socket: UnixDatagram,
    address: String,
    topics: HashSet<String>,
}

impl PushConnection for SocketConnection {
    type Server = Arc<Handle>;

    async fn open(handle: &Arc<Handle>) -> Result<Self, Error> {
        let (socket, address) = bus::bind()?;
        let socket = UnixDatagram::from_std(socket).map_err(|source| {
            Error::new(ErrorCode::Internal, "cannot listen for wake-ups from other processes").with_source(source)
        })?;
        Ok(Self { handle: handle.clone(), socket, address, topics: HashSet::new() })
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
        Ok(())
    }

    async fn next(&mut self) -> Pushed {
        let mut buffer = [0; LONGEST];
        match self.socket.recv(&mut buffer).await {
            Ok(length) => std::str::from_utf8(&buffer[..length]).ok().and_then(Notification::decode).into(),
            Err(error) => {
                tracing::debug!(%error, "cannot read wake-ups from other processes");
                Pushed::Lost
            }
        }
    }
}

impl Drop for SocketConnection {
    fn drop(&mut self) {
        // Nobody need knock at an address at which nobody is.
        for topic in self.topics.drain() {
            self.handle.send(Op::Unlisten { topic, address: self.address.clone() });
        }
    }
}
