use std::sync::Arc;
use std::time::Duration;

use redis::{PushInfo, PushKind, RedisResult, Value};

use super::error::translate;
use super::server::{Connection, Server};
use crate::Error;
use crate::backend::Event;
use crate::remote::listener::{PushConnection, Pushed};
use crate::remote::notification::{LONGEST, Notification, decode_taken};

/// A connection for wake-ups. Topics are channels.
pub(super) struct SubscriberConnection {
    connection: Connection,
    taken: String,
    timeout: Duration,
}

/// Where the server is, and the channel of taken locks.
pub(super) struct Source {
    pub(super) server: Arc<Server>,
    pub(super) taken: String,
}

/// What was published on a channel.
pub(super) struct Message {
    channel: String,
    text: String,
}

impl Message {
    /// The message in what the server sent, unless it can be none of ours.
    pub(super) fn of(mut push: PushInfo) -> Option<Self> {
        let (PushKind::Message, [Value::BulkString(channel), Value::BulkString(text)]) =
            (push.kind, &mut push.data[..])
        else {
            return None;
        };
        let text = (text.len() <= LONGEST).then_some(text)?;
        let [channel, text] = [channel, text].map(|bytes| String::from_utf8(std::mem::take(bytes)).ok());
        Some(Self { channel: channel?, text: text? })
    }
}

impl PushConnection for SubscriberConnection {
    type Server = Source;

    async fn open(source: &Source) -> Result<Self, Error> {
        // Any node of a cluster will do: they pass on what is published.
        let connection = source.server.connect(None).await.map_err(|error| translate(error, false))?;
        Ok(Self { connection, taken: source.taken.clone(), timeout: source.server.timeout })
    }

    async fn change(&mut self, wanted: &[String], unwanted: &[String]) -> Result<Vec<String>, Error> {
        let commands = &mut self.connection.commands;
        let change = async {
            if !wanted.is_empty() {
                commands.subscribe(wanted).await?;
            }
            if !unwanted.is_empty() {
                commands.unsubscribe(unwanted).await?;
            }
            Ok(())
        };
        within(self.timeout, change).await?;
        Ok(Vec::new())
    }

    async fn check(&mut self) -> Result<(), Error> {
        let ping = redis::cmd("PING");
        within(self.timeout, ping.exec_async(&mut self.connection.commands)).await
    }

    async fn next(&mut self) -> Pushed {
        let received = self.connection.messages.recv().await;
        Pushed::of(received, |message| self.decode(message))
    }
}

impl SubscriberConnection {
    fn decode(&self, Message { channel, text }: Message) -> Option<Notification> {
        let event = if channel == self.taken { decode_taken(&text)? } else { Event::Freed };
        Some(Notification { topic: channel, event })
    }
}

async fn within(timeout: Duration, run: impl Future<Output = RedisResult<()>>) -> Result<(), Error> {
    match tokio::time::timeout(timeout, run).await {
        Ok(outcome) => outcome.map_err(|error| translate(error, false)),
        Err(_) => Err(translate(std::io::Error::from(std::io::ErrorKind::TimedOut).into(), false)),
    }
}
