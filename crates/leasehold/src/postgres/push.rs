use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, SimpleQueryMessage};

use super::connections::Connections;
use super::error::translate;
use super::pool::Pool;
use super::tables::Tables;
use crate::inbox::{Inbox, Received, inbox};
use crate::remote::driver_error::not_connected_in_time;
use crate::remote::notification::{GRANTED_TOPIC, LONGEST, Notification, freed_topic, turn_topic};
use crate::remote::push_connection::{PushConnection, Pushed, UNREAD};
use crate::{Error, ErrorCode, LockId, Operation};

/// How often a share in a key's number is tried for, and the pause between two tries. Whoever
/// releases a lock has the number for as long as its transaction takes, which is short as a rule;
/// but a stranger's may take for ever.
const SHARE_TRIES: u32 = 10;
const SHARE_PAUSE: Duration = Duration::from_millis(5);

/// How long a message from one connection to another may take before we believe that none arrives.
const ECHO: Duration = Duration::from_secs(1);

/// A connection for wake-ups. Whose turn it is is told over one of 64 channels, which only those
/// listen to who wait in line; all other notifications of the tables come over one. A share in the
/// advisory lock of a key tells those who release it that somebody wants to hear.
pub(super) struct ListenConnection {
    client: Arc<Client>,
    driver: AbortHandle,
    /// Knows the client, which serves for operations too if the server has no room for more.
    _pool: Arc<Pool>,
    payloads: Inbox<String>,
    /// What the names of the channels for turns start with, and how many topics each is listened to
    /// for.
    channel: String,
    turns: HashMap<char, usize>,
    interest: String,
    shares: String,
    /// The number that whoever watches has alone; whether we want it, and have it.
    watched: String,
    watches: bool,
    has_watched: bool,
    timeout: Duration,
}

/// How to get a connection, and what to listen to.
pub(super) struct Source {
    pub(super) connections: Arc<Connections>,
    pub(super) tables: Tables,
}

impl PushConnection for ListenConnection {
    type Server = Source;

    async fn open(source: &Source) -> Result<Self, Error> {
        let Connections { endpoints, timeout, .. } = &*source.connections;
        let pool = source.connections.pool()?;
        let connecting = tokio::time::timeout(*timeout, endpoints.connect(Operation::Subscribe));
        let connected = connecting.await.map_err(|_| not_connected_in_time(Operation::Subscribe, *timeout))?;
        let (client, mut connection) = connected?;
        let open = async {
            let client = Arc::new(client);
            let (sender, payloads) = inbox(UNREAD);
            let driver = tokio::spawn(async move {
                while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                    if let AsyncMessage::Notification(notification) = message
                        && notification.payload().len() <= LONGEST
                    {
                        sender.send(notification.payload().to_owned());
                    }
                }
            });
            let channel = source.tables.channel();
            client.batch_execute(&format!("LISTEN \"{channel}\"")).await?;
            let [interest, shares, watched] =
                ["{{interest}}", "{{shares}}", "{{watched}}"].map(|name| source.tables.fill(name));
            pool.listens(&client);
            let driver = driver.abort_handle();
            let timeout = *timeout;
            let (watches, has_watched) = (false, false);
            let turns = HashMap::new();
            Ok(Self {
                client,
                driver,
                _pool: pool,
                payloads,
                channel,
                turns,
                interest,
                shares,
                watched,
                watches,
                has_watched,
                timeout,
            })
        };
        within(*timeout, open).await
    }

    async fn change(&mut self, wanted: &[String], unwanted: &[String]) -> Result<Vec<String>, Error> {
        let granted = |topics: &[String]| topics.iter().any(|topic| topic == GRANTED_TOPIC);
        self.watches = (self.watches || granted(wanted)) && !granted(unwanted);
        self.watch().await?;
        let (listens, unlistens) = self.change_turns(wanted, unwanted);
        let number = |key: &str| format!("hashtext({}) & {}", literal(key), self.shares);
        let keys = |topics: &[String]| -> Vec<String> {
            let prefix = freed_topic("");
            topics.iter().filter_map(|topic| topic.strip_prefix(&prefix)).map(str::to_owned).collect()
        };
        let change = async {
            let unlock =
                |key: &String| format!("SELECT pg_advisory_unlock_shared({}, {});", self.interest, number(key));
            let statements = unlistens + &keys(unwanted).iter().map(unlock).collect::<String>();
            if !statements.is_empty() {
                self.client.batch_execute(&statements).await?;
            }
            let mut left = keys(wanted);
            let mut first = listens;
            if left.is_empty() && !first.is_empty() {
                self.client.batch_execute(&first).await?;
            }
            for attempt in 0..SHARE_TRIES {
                if left.is_empty() {
                    break;
                }
                if attempt > 0 {
                    tokio::time::sleep(SHARE_PAUSE).await;
                }
                let values: Vec<String> = left.iter().map(|key| format!("({})", number(key))).collect();
                let shares = format!(
                    "{}SELECT pg_try_advisory_lock_shared({}, number) FROM (VALUES {}) AS wanted (number)",
                    std::mem::take(&mut first),
                    self.interest,
                    values.join(", ")
                );
                let had = self.client.simple_query(&shares).await?;
                let had = had.iter().filter_map(|message| match message {
                    SimpleQueryMessage::Row(row) => Some(row.get(0) == Some("t")),
                    _ => None,
                });
                left = left.iter().zip(had).filter(|(_, had)| !had).map(|(key, _)| key.clone()).collect();
            }
            Ok(left.iter().map(|key| freed_topic(key)).collect())
        };
        within(self.timeout, change).await
    }

    async fn check(&mut self) -> Result<(), Error> {
        // Whoever watched before us may have gone.
        self.watch().await?;
        within(self.timeout, self.client.batch_execute("")).await
    }

    async fn next(&mut self) -> Pushed {
        Pushed::of(self.payloads.recv().await, |text| Notification::decode(&text))
    }
}

impl ListenConnection {
    /// Statements that listen to the channels of new turns, and that listen no more to those of
    /// which none is wanted.
    fn change_turns(&mut self, wanted: &[String], unwanted: &[String]) -> (String, String) {
        let channel = |letter: char| format!("\"{}:{letter}\";", self.channel);
        let (mut listens, mut unlistens) = (String::new(), String::new());
        for letter in wanted.iter().filter_map(|topic| turn_letter(topic)) {
            let topics = self.turns.entry(letter).or_default();
            *topics += 1;
            if *topics == 1 {
                listens += &format!("LISTEN {}", channel(letter));
            }
        }
        for letter in unwanted.iter().filter_map(|topic| turn_letter(topic)) {
            if let Entry::Occupied(mut topics) = self.turns.entry(letter) {
                *topics.get_mut() -= 1;
                if *topics.get() == 0 {
                    topics.remove();
                    unlistens += &format!("UNLISTEN {}", channel(letter));
                }
            }
        }
        (listens, unlistens)
    }

    /// Gets hold of the number of those who watch, or lets go of it. If somebody else has it, all
    /// are told of grants anyway. Those who acquire have a share in it for a moment, behind whom we
    /// queue.
    async fn watch(&mut self) -> Result<(), Error> {
        if self.watches == self.has_watched {
            return Ok(());
        }
        let (interest, watched) = (&self.interest, &self.watched);
        if !self.watches {
            let unlock = format!("SELECT pg_advisory_unlock({interest}, {watched})");
            within(self.timeout, self.client.batch_execute(&unlock)).await?;
        } else {
            let lock = format!("SET lock_timeout = '200ms'; SELECT pg_advisory_lock({interest}, {watched})");
            let locked = self.client.batch_execute(&lock);
            let locked = tokio::time::timeout(self.timeout, locked).await;
            within(self.timeout, self.client.batch_execute("RESET lock_timeout")).await?;
            if !matches!(locked, Ok(Ok(()))) {
                return Ok(());
            }
        }
        self.has_watched = self.watches;
        Ok(())
    }
}

impl Source {
    /// Whether what one connection says arrives on another: not so through a pooler that lends
    /// connections for a transaction.
    pub(super) async fn delivers(&self) -> Result<bool, Error> {
        let mut listening = ListenConnection::open(self).await?;
        let word = format!("E{}", LockId::random()?.hash_id());
        let parameters = [(&self.tables.channel() as _, Type::TEXT), (&word as _, Type::TEXT)];
        self.connections.query(Operation::Subscribe, "SELECT pg_notify($1, $2)", &parameters).await?;
        let echo = async {
            while let Some(received) = listening.payloads.recv().await {
                if received == Received::Item(word.clone()) {
                    return true;
                }
            }
            false
        };
        Ok(tokio::time::timeout(ECHO, echo).await.unwrap_or(false))
    }
}

impl Drop for ListenConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The first letter of whose turn it is, if that is the topic: the last part of its channel's name.
fn turn_letter(topic: &str) -> Option<char> {
    topic.strip_prefix(&turn_topic(""))?.chars().next()
}

/// The text as SQL has it, with no other meaning than itself, whatever the settings.
fn literal(text: &str) -> String {
    let text = text.replace('\'', "''");
    if text.contains('\\') { format!("E'{}'", text.replace('\\', "\\\\")) } else { format!("'{text}'") }
}

async fn within<T>(timeout: Duration, run: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Error> {
    match tokio::time::timeout(timeout, run).await {
        Ok(outcome) => outcome.map_err(|error| translate(error, false)),
        Err(_) => Err(Error::new(ErrorCode::NetworkTimeout, format!("the server did not answer within {timeout:?}"))),
    }
}
