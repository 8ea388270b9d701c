use std::time::Duration;

use redis::{Client, ErrorKind, RedisError, RedisResult, Value};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::push::Message;
use super::server::{Address, Connection, at, open};
use crate::inbox::Received;

/// What a sentinel publishes that has made another server the primary, and what one publishes that
/// has heard of it.
const NEWS: [&str; 2] = [PROMOTED, SWITCHED];
const PROMOTED: &str = "+promoted-slave";
const SWITCHED: &str = "+switch-master";

/// How often to make sure that a silent sentinel is still there, and how long it may take to
/// answer.
const CHECK_EVERY: Duration = Duration::from_secs(15);
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause before a sentinel that was lost is replaced by another one.
const PAUSE: Duration = Duration::from_millis(500);

/// A connection to the primary that a sentinel names. Makes sure that it is one, because sentinels
/// learn of a failover at different times, and goes on listening to them.
pub(super) async fn connect_to_primary(
    sentinels: &[Client],
    number: usize,
    name: &str,
    primary: &Client,
) -> RedisResult<Connection> {
    let (sentinel, address) = ask(&sentinels[number], name).await?;
    let mut connection = open(&at(primary, &address)?).await?;
    let role: RedisResult<Vec<Value>> = redis::cmd("ROLE").query_async(&mut connection.commands).await;
    match role.as_deref() {
        Ok([Value::BulkString(role), ..]) if role != b"master" => {
            Err(RedisError::from((ErrorKind::Server(redis::ServerErrorKind::ReadOnly), "not the primary any more")))
        }
        // A user who may not ask gets the answer with the first write.
        _ => {
            let watch = PrimaryWatch::start(sentinel, sentinels.to_vec(), name.to_owned(), address);
            connection.watch = Some(watch);
            Ok(connection)
        }
    }
}

/// Listens to a sentinel, and then asks it where the primary is, so that no change is missed.
async fn ask(sentinel: &Client, name: &str) -> RedisResult<(Connection, Address)> {
    let mut sentinel = open(sentinel).await?;
    // Whoever may not listen learns of a change from the old primary, in the end.
    let _ = sentinel.commands.subscribe(&NEWS).await;
    let mut question = redis::cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    let address: Option<Address> = question.query_async(&mut sentinel.commands).await.map_err(|error| {
        let no_sentinel = error.detail().is_some_and(|detail| detail.contains("unknown command"));
        if no_sentinel { RedisError::from((ErrorKind::InvalidClientConfig, "not a sentinel")) } else { error }
    })?;
    let address = address.ok_or_else(|| {
        RedisError::from((ErrorKind::InvalidClientConfig, "the sentinels know no primary of this name"))
    })?;
    Ok((sentinel, address))
}

/// Listens to a sentinel for as long as a connection to the primary is kept, and to another one if
/// that is lost.
pub(super) struct PrimaryWatch {
    over: CancellationToken,
    task: AbortHandle,
}

impl PrimaryWatch {
    fn start(sentinel: Connection, sentinels: Vec<Client>, name: String, primary: Address) -> Self {
        let over = CancellationToken::new();
        let told = over.clone();
        let task = tokio::spawn(async move {
            until_another_primary(sentinel, &sentinels, &name, &primary).await;
            told.cancel();
        });
        Self { over, task: task.abort_handle() }
    }

    /// Whether another server has become the primary.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Waits until another server has become the primary.
    pub(super) async fn over(&self) {
        self.over.cancelled().await;
    }
}

impl Drop for PrimaryWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn until_another_primary(mut sentinel: Connection, sentinels: &[Client], name: &str, primary: &Address) {
    let mut others = sentinels.iter().cycle();
    loop {
        if hears_of_another(&mut sentinel, name).await {
            return;
        }
        sentinel = loop {
            tokio::time::sleep(PAUSE).await;
            let Some(other) = others.next() else { return };
            match tokio::time::timeout(CHECK_TIMEOUT, ask(other, name)).await {
                Ok(Ok((_, address))) if address != *primary => return,
                Ok(Ok((other, _))) => break other,
                _ => {}
            }
        };
    }
}

/// Listens until this sentinel tells of another primary, or is lost.
async fn hears_of_another(sentinel: &mut Connection, name: &str) -> bool {
    loop {
        match tokio::time::timeout(CHECK_EVERY, sentinel.messages.recv()).await {
            Ok(Some(Received::Item(message))) if tells_of(&message, name) => return true,
            Ok(Some(Received::Item(_))) => {}
            // What was missed may have been the news: ask again.
            Ok(Some(Received::Missed) | None) => return false,
            Err(_) => {
                let ping = redis::cmd("PING");
                let answered = ping.exec_async(&mut sentinel.commands);
                if !tokio::time::timeout(CHECK_TIMEOUT, answered).await.is_ok_and(|answer| answer.is_ok()) {
                    return false;
                }
            }
        }
    }
}

/// Whether a message tells of another primary under this name:
/// `+switch-master NAME OLD PORT NEW PORT`, `+promoted-slave slave NEW ADDRESS PORT @ NAME OLD PORT`.
fn tells_of(Message { channel, text }: &Message, name: &str) -> bool {
    let mut words = text.split(' ');
    let subject = if channel == SWITCHED { words.next() } else { words.skip_while(|w| *w != "@").nth(1) };
    subject == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_of_other_primaries_are_told_apart() {
        let push = |channel: &str, text: &str| Message { channel: channel.to_owned(), text: text.to_owned() };
        let switched = push(SWITCHED, "locks 10.0.0.1 6379 10.0.0.2 6379");
        let promoted = push(PROMOTED, "slave 10.0.0.2:6379 10.0.0.2 6379 @ locks 10.0.0.1 6379");
        for news in [switched, promoted] {
            assert!(tells_of(&news, "locks"));
            assert!(!tells_of(&news, "cache") && !tells_of(&news, "10.0.0.1") && !tells_of(&news, "slave"));
        }
        assert!(!tells_of(&push(SWITCHED, ""), "locks") && !tells_of(&push(PROMOTED, "locks"), "locks"));
    }
}
