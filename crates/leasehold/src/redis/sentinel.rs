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
        if hears_of_another(&mut sentinel, name, primary).await {
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
async fn hears_of_another(sentinel: &mut Connection, name: &str, primary: &Address) -> bool {
    loop {
        match tokio::time::timeout(CHECK_EVERY, sentinel.messages.recv()).await {
            Ok(Some(Received::Item(message))) if tells_of_another(&message, name, primary) => return true,
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

/// Whether a message tells of a primary under this name at another address:
/// `+switch-master NAME OLD PORT NEW PORT`, or
/// `+promoted-slave slave NEW:PORT NEW PORT @ NAME OLD PORT`. Both come of one failover, one after
/// the other.
fn tells_of_another(Message { channel, text }: &Message, name: &str, (host, port): &Address) -> bool {
    let words: Vec<_> = text.split(' ').collect();
    let (subject, new) = match (channel.as_str(), &words[..]) {
        (SWITCHED, [subject, _, _, new @ ..]) => (subject, new),
        (PROMOTED, [_, _, host, port, "@", subject, ..]) => (subject, &[*host, *port][..]),
        _ => return false,
    };
    *subject == name && new != [host.as_str(), &port.to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_of_other_primaries_are_told_apart() {
        let push = |channel: &str, text: &str| Message { channel: channel.to_owned(), text: text.to_owned() };
        let (old, new) = (("10.0.0.1".to_owned(), 6379), ("10.0.0.2".to_owned(), 6379));
        let switched = push(SWITCHED, "locks 10.0.0.1 6379 10.0.0.2 6379");
        let promoted = push(PROMOTED, "slave 10.0.0.2:6379 10.0.0.2 6379 @ locks 10.0.0.1 6379");
        for news in [switched, promoted] {
            assert!(tells_of_another(&news, "locks", &old));
            assert!(!tells_of_another(&news, "locks", &new), "it is known already");
            for other in ["cache", "10.0.0.1", "slave", ""] {
                assert!(!tells_of_another(&news, other, &old), "{other}");
            }
        }
        for noise in [push("+switch-master", ""), push("+promoted-slave", "locks"), push("+odown", "locks 1 2 3 4")] {
            assert!(!tells_of_another(&noise, "locks", &old));
        }
    }
}
