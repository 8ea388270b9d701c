use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio::sync::{mpsc, oneshot};

use super::error::translate;
use super::server::{Connection, Server};
use crate::backend::{Event, Publisher};
use crate::{Error, ErrorCode, Loss};

/// The first pause before a lost connection is made again, and the longest.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(2));

/// How often to make sure that the server is still there.
const PING: Duration = Duration::from_secs(15);

/// How many orders are carried out in one go.
const BATCH: usize = 256;

/// Hears what the server publishes, and hands it to the subscriptions of this process: one connection for all of them, on a
/// thread of its own, so that news arrive however busy the user's runtime is.
#[derive(Debug)]
pub(super) struct Ear {
    orders: mpsc::UnboundedSender<Order>,
}

enum Order {
    Subscribe {
        channel: String,
        reader: Publisher,
        done: oneshot::Sender<Result<(), Error>>,
    },
    /// A reader of this channel may be gone.
    Leave {
        channel: String,
    },
}

impl Ear {
    /// Starts the thread. It ends with the last clone of the sender.
    pub(super) fn open(server: Arc<Server>, taken: String) -> Result<Self, Error> {
        let failed = |source: std::io::Error| {
            Error::new(ErrorCode::Internal, "cannot start the thread that listens to the server")
                .with_hint("the limit on threads or open files of this process may be too low")
                .with_source(source)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (orders, received) = mpsc::unbounded_channel();
        let listener = Listener { server, taken, readers: HashMap::new(), connection: None, missed: false };
        thread::Builder::new()
            .name("leasehold-ear".into())
            .spawn(move || runtime.block_on(listener.listen(received)))
            .map_err(failed)?;
        Ok(Self { orders })
    }

    /// Has `reader` told of what is published on `channel`, from the moment this returns.
    pub(super) async fn subscribe(&self, channel: String, reader: Publisher) -> Result<(), Error> {
        let (done, outcome) = oneshot::channel();
        let _ = self.orders.send(Order::Subscribe { channel, reader, done });
        outcome.await.unwrap_or_else(|_| Err(Error::new(ErrorCode::Internal, "the thread that listens has stopped")))
    }

    /// What to call when a reader of `channel` is gone.
    pub(super) fn leave(&self, channel: String) -> impl FnOnce() + Send + 'static {
        let orders = self.orders.clone();
        move || {
            let _ = orders.send(Order::Leave { channel });
        }
    }
}

struct Listener {
    server: Arc<Server>,
    taken: String,
    readers: HashMap<String, Vec<Publisher>>,
    connection: Option<Connection>,
    /// The last connection was lost while somebody listened.
    missed: bool,
}

/// What woke the listener.
enum Woken {
    Orders,
    News(Option<PushInfo>),
    Time,
}

impl Listener {
    async fn listen(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut batch = Vec::new();
        let mut pause = RECONNECT.0;
        loop {
            let due = if self.connection.is_some() || self.readers.is_empty() { PING } else { pause };
            let woken = tokio::select! {
                count = orders.recv_many(&mut batch, BATCH) => match count {
                    0 => return,
                    _ => Woken::Orders,
                },
                news = next(self.connection.as_mut()) => Woken::News(news),
                () = tokio::time::sleep(due) => Woken::Time,
            };
            match woken {
                Woken::Orders => self.obey(batch.drain(..)).await,
                Woken::News(Some(news)) if news.kind != PushKind::Disconnection => self.deliver(&news),
                Woken::News(_) => {
                    tracing::debug!("the connection for wake-ups was lost; waiting polls until there is a new one");
                    self.lose();
                    pause = RECONNECT.0;
                }
                Woken::Time if self.connection.is_some() => self.ping().await,
                Woken::Time if self.readers.is_empty() => {}
                Woken::Time => match self.connect().await {
                    Ok(()) => pause = RECONNECT.0,
                    Err(_) => pause = (pause * 2).min(RECONNECT.1),
                },
            }
        }
    }

    /// Carries out what was ordered, with one command for all new channels and one for those that nobody wants any more.
    async fn obey(&mut self, orders: impl Iterator<Item = Order>) {
        let (mut waiting, mut wanted, mut unwanted) = (Vec::new(), Vec::new(), Vec::new());
        for order in orders {
            match order {
                Order::Subscribe { channel, reader, done } => {
                    let readers = self.readers.entry(channel.clone()).or_default();
                    if readers.is_empty() {
                        wanted.push(channel.clone());
                    }
                    readers.push(reader);
                    waiting.push(done);
                }
                Order::Leave { channel } => {
                    let Some(readers) = self.readers.get_mut(&channel) else { continue };
                    readers.retain(|reader| !reader.is_closed());
                    if readers.is_empty() {
                        self.readers.remove(&channel);
                        wanted.retain(|wanted| *wanted != channel);
                        unwanted.push(channel);
                    }
                }
            }
        }
        // Somebody else may have come for a channel that was left in the same batch.
        unwanted.retain(|channel| !self.readers.contains_key(channel));
        let outcome = match &self.connection {
            None if waiting.is_empty() => Ok(()),
            // A new connection subscribes to all there is.
            None => self.connect().await,
            Some(_) => self.change(&wanted, &unwanted).await,
        };
        for done in waiting {
            // A reader whose subscriber is told of an error leaves by itself.
            let _ = done.send(outcome.as_ref().copied().map_err(Error::duplicate));
        }
    }

    async fn change(&mut self, wanted: &[String], unwanted: &[String]) -> Result<(), Error> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let commands = &mut connection.commands;
        let change = async {
            if !wanted.is_empty() {
                commands.subscribe(wanted).await?;
            }
            if !unwanted.is_empty() {
                commands.unsubscribe(unwanted).await?;
            }
            Ok(())
        };
        let outcome = within(self.server.timeout, change).await;
        if outcome.is_err() {
            self.lose();
        }
        outcome
    }

    /// Makes a connection and subscribes to everything. Whoever listened before may have missed something in between.
    async fn connect(&mut self) -> Result<(), Error> {
        let mut connection = self.server.connect(None).await.map_err(|error| translate(error, false))?;
        let channels: Vec<&String> = self.readers.keys().collect();
        if !channels.is_empty() {
            within(self.server.timeout, connection.commands.subscribe(channels)).await?;
        }
        self.connection = Some(connection);
        if std::mem::take(&mut self.missed) {
            self.readers.values().flatten().for_each(|reader| reader.publish(Event::Missed));
        }
        Ok(())
    }

    async fn ping(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        let ping = redis::cmd("PING");
        if within(self.server.timeout, ping.exec_async(&mut connection.commands)).await.is_err() {
            self.lose();
        }
    }

    fn lose(&mut self) {
        self.connection = None;
        self.missed = !self.readers.is_empty();
    }

    fn deliver(&self, news: &PushInfo) {
        let (PushKind::Message, [Value::BulkString(channel), Value::BulkString(text)]) = (&news.kind, &news.data[..])
        else {
            return;
        };
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        let event = if channel == self.taken { understand(text) } else { Some(Event::Freed) };
        if let Some(event) = event {
            self.readers.get(channel).into_iter().flatten().for_each(|reader| reader.publish(event));
        }
    }
}

async fn next(connection: Option<&mut Connection>) -> Option<PushInfo> {
    match connection {
        Some(connection) => connection.news.recv().await,
        None => std::future::pending().await,
    }
}

async fn within(timeout: Duration, run: impl Future<Output = RedisResult<()>>) -> Result<(), Error> {
    match tokio::time::timeout(timeout, run).await {
        Ok(outcome) => outcome.map_err(|error| translate(error, false)),
        Err(_) => Err(translate(std::io::Error::from(std::io::ErrorKind::TimedOut).into(), false)),
    }
}

/// The first letter says how the lock was taken, the rest is its lock id.
fn understand(text: &[u8]) -> Option<Event> {
    let (letter, id) = std::str::from_utf8(text).ok()?.split_at_checked(1)?;
    let how = match letter {
        "S" => Loss::Stolen,
        "R" => Loss::ForceReleased,
        _ => return None,
    };
    Some(Event::Taken { lock_id: id.parse().ok()?, how })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockId;

    #[test]
    fn news_of_taken_locks_are_understood_and_noise_is_not() {
        let lock_id = LockId::random().unwrap();
        let id = lock_id.expose();
        assert_eq!(understand(format!("S{id}").as_bytes()), Some(Event::Taken { lock_id, how: Loss::Stolen }));
        assert_eq!(understand(format!("R{id}").as_bytes()), Some(Event::Taken { lock_id, how: Loss::ForceReleased }));
        for noise in [&b""[..], b"S", b"Sshort", b"\xff\xff", id.as_bytes(), "\u{e9}".as_bytes()] {
            assert_eq!(understand(noise), None);
        }
    }
}
