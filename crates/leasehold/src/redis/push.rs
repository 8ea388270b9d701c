use std::sync::Arc;
use std::time::Duration;

use redis::{PushInfo, PushKind, RedisResult, Value};

use super::error::translate;
use super::herd::Herd;
use super::server::{Connection, Server};
use crate::Error;
use crate::backend::Event;
use crate::remote::notification::{LONGEST, Notification, decode_granted, decode_taken};
use crate::remote::push_connection::{PushConnection, Pushed};

/// A connection for wake-ups. Topics are channels.
pub(super) struct SubscriberConnection {
    connection: Connection,
    taken: String,
    granted: String,
    timeout: Duration,
    herd: Herd,
}

/// Where the server is, and the channels that are no key's.
pub(super) struct Source {
    pub(super) server: Arc<Server>,
    pub(super) taken: String,
    pub(super) granted: String,
}

/// What was published on a channel.
pub(super) struct Message {
    pub(super) channel: String,
    pub(super) text: String,
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
        let (taken, granted) = (source.taken.clone(), source.granted.clone());
        Ok(Self { connection, taken, granted, timeout: source.server.timeout, herd: Herd::default() })
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
        tokio::select! {
            received = self.connection.next_message() => Pushed::of(received, |message| self.decode(message)),
            topic = self.herd.next() => Pushed::Notification(Notification { topic, event: Event::Freed }),
        }
    }
}

impl SubscriberConnection {
    fn decode(&mut self, Message { channel, text }: Message) -> Option<Notification> {
        if channel == self.taken {
            return Some(Notification { topic: channel, event: decode_taken(&text)? });
        }
        if channel == self.granted {
            return Some(Notification { topic: channel, event: decode_granted(&text)? });
        }
        // How many wait for it, if the server may be asked.
        let topic = self.herd.wake(channel, text.parse().unwrap_or(1))?;
        Some(Notification { topic, event: Event::Freed })
    }
}

async fn within(timeout: Duration, run: impl Future<Output = RedisResult<()>>) -> Result<(), Error> {
    match tokio::time::timeout(timeout, run).await {
        Ok(outcome) => outcome.map_err(|error| translate(error, false)),
        Err(_) => Err(translate(std::io::Error::from(std::io::ErrorKind::TimedOut).into(), false)),
    }
}
