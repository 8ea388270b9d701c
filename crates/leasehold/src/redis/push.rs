use std::sync::Arc;
use std::time::Duration;

use redis::{PushInfo, PushKind, RedisResult, Value};

use super::error::translate;
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
        match self.connection.pushes.recv().await {
            Some(push) if push.kind != PushKind::Disconnection => self.decode(&push).into(),
            _ => Pushed::Lost,
        }
    }
}

impl SubscriberConnection {
    fn decode(&self, push: &PushInfo) -> Option<Notification> {
        let (PushKind::Message, [Value::BulkString(channel), Value::BulkString(text)]) = (&push.kind, &push.data[..])
        else {
            return None;
        };
        let topic = std::str::from_utf8(channel).ok()?.to_owned();
        let event = if topic == self.taken { decode_taken(std::str::from_utf8(text).ok()?)? } else { Event::Freed };
        Some(Notification { topic, event })
    }
}

async fn within(timeout: Duration, run: impl Future<Output = RedisResult<()>>) -> Result<(), Error> {
    match tokio::time::timeout(timeout, run).await {
        Ok(outcome) => outcome.map_err(|error| translate(error, false)),
        Err(_) => Err(translate(std::io::Error::from(std::io::ErrorKind::TimedOut).into(), false)),
    }
}
