use std::sync::Arc;
use std::time::Duration;

use redis::{PushInfo, PushKind, RedisResult, Value};

use super::error::translate;
use super::server::{Connection, Server};
use crate::Error;
use crate::backend::Event;
use crate::ear::{self, News};

/// A connection for wake-ups. Topics are channels.
pub(super) struct Line {
    connection: Connection,
    taken: String,
    timeout: Duration,
}

/// Where the server is, and the channel of taken locks.
pub(super) struct Source {
    pub(super) server: Arc<Server>,
    pub(super) taken: String,
}

impl ear::Line for Line {
    type Server = Source;

    async fn open(source: &Source) -> Result<Self, Error> {
        // Any node of a cluster will do: they pass on what is published.
        let connection = source.server.connect(None).await.map_err(|error| translate(error, false))?;
        Ok(Self { connection, taken: source.taken.clone(), timeout: source.server.timeout })
    }

    async fn change(&mut self, wanted: &[String], unwanted: &[String]) -> Result<(), Error> {
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
        within(self.timeout, change).await
    }

    async fn check(&mut self) -> Result<(), Error> {
        let ping = redis::cmd("PING");
        within(self.timeout, ping.exec_async(&mut self.connection.commands)).await
    }

    async fn next(&mut self) -> Option<News> {
        let news = self.connection.news.recv().await?;
        (news.kind != PushKind::Disconnection).then(|| self.understand(&news))
    }
}

impl Line {
    fn understand(&self, news: &PushInfo) -> News {
        let (PushKind::Message, [Value::BulkString(channel), Value::BulkString(text)]) = (&news.kind, &news.data[..])
        else {
            return None;
        };
        let channel = std::str::from_utf8(channel).ok()?;
        let event = if channel == self.taken { ear::taken(std::str::from_utf8(text).ok()?)? } else { Event::Freed };
        Some((channel.to_owned(), event))
    }
}

async fn within(timeout: Duration, run: impl Future<Output = RedisResult<()>>) -> Result<(), Error> {
    match tokio::time::timeout(timeout, run).await {
        Ok(outcome) => outcome.map_err(|error| translate(error, false)),
        Err(_) => Err(translate(std::io::Error::from(std::io::ErrorKind::TimedOut).into(), false)),
    }
}
