use std::sync::Arc;
use std::time::Duration;

use redis::{PushInfo, PushKind, RedisResult, Value};

use super::error::translate;
use super::herd::Herd;
use super::server::{Connection, Server};
use crate::Error;
use crate::backend::Event;
use crate::remote::listener::{PushConnection, Pushed};
use crate::remote::notification::{Notification, decode_taken};

/// A connection for wake-ups. Topics are channels.
pub(super) struct SubscriberConnection {
    connection: Connection,
    taken: String,
    timeout: Duration,
    herd: Herd,
}

/// Where the server is, and the channel of taken locks.
pub(super) struct Source {
    pub(super) server: Arc<Server>,
    pub(super) taken: String,
}

impl PushConnection for SubscriberConnection {
    type Server = Source;

    async fn open(source: &Source) -> Result<Self, Error> {
        // Any node of a cluster will do: they pass on what is published.
        let connection = source.server.connect(None).await.map_err(|error| translate(error, false))?;
        Ok(Self { connection, taken: source.taken.clone(), timeout: source.server.timeout, herd: Herd::default() })
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
            push = self.connection.next_push() => match push {
                Some(push) if push.kind != PushKind::Disconnection => self.decode(&push).into(),
                _ => Pushed::Lost,
            },
            topic = self.herd.next() => Pushed::Notification(Notification { topic, event: Event::Freed }),
        }
    }
}

impl SubscriberConnection {
    fn decode(&mut self, push: &PushInfo) -> Option<Notification> {
        let (PushKind::Message, [Value::BulkString(channel), Value::BulkString(text)]) = (&push.kind, &push.data[..])
        else {
            return None;
        };
        let topic = std::str::from_utf8(channel).ok()?.to_owned();
        let text = std::str::from_utf8(text).ok()?;
        if topic == self.taken {
            return Some(Notification { topic, event: decode_taken(text)? });
        }
        // How many wait for it, if the server may be asked.
        let topic = self.herd.wake(topic, text.parse().unwrap_or(1))?;
        Some(Notification { topic, event: Event::Freed })
    }
}

async fn within(timeout: Duration, run: impl Future<Output = RedisResult<()>>) -> Result<(), Error> {
    match tokio::time::timeout(timeout, run).await {
        Ok(outcome) => outcome.map_err(|error| translate(error, false)),
        Err(_) => Err(translate(std::io::Error::from(std::io::ErrorKind::TimedOut).into(), false)),
    }
}
