//! Subscriptions to what a server says of its own accord, for stores whose server does.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::backend::{Event, Line, Publisher, Subscription};
use crate::remote::driver_error::not_connected_in_time;
use crate::remote::notification::Notification;
use crate::remote::push_connection::{PushConnection, Pushed};
use crate::{Error, ErrorCode, Operation};

/// The first pause before a lost connection is made again, and the longest.
const RECONNECT_DELAY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(2));

/// How often to make sure that the server is still there.
const CHECK_EVERY: Duration = Duration::from_secs(15);

/// How often readers are told to look for themselves while there is no connection: whoever is
/// called meanwhile has to come before its place is given to the next.
const LOOK_EVERY: Duration = Line::CALL_LEASE.checked_div(2).unwrap();

/// How many commands are carried out in one go.
const BATCH: usize = 256;

/// Hands notifications to the subscriptions made through it: one connection for all of them, driven
/// by the runtime on which the listener was started. It ends when the last of its handles is gone.
#[derive(Debug)]
pub(crate) struct Listener {
    commands: mpsc::UnboundedSender<Command>,
}

#[derive(Debug)]
enum Command {
    Subscribe {
        topics: Vec<String>,
        reader: Publisher,
        done: oneshot::Sender<Result<(), Error>>,
    },
    /// A reader of these topics may be gone.
    Leave {
        topics: Vec<String>,
    },
}

impl Listener {
    /// Starts to listen, on the runtime that runs the caller. It connects with the first
    /// subscription.
    pub(crate) fn start<C: PushConnection>(server: Arc<C::Server>) -> Self {
        let (commands, received) = mpsc::unbounded_channel();
        tokio::spawn(Task::<C>::new(server).run(received));
        Self { commands }
    }

    /// Events of `topic` from the moment this returns, of which up to `backlog` may be unread.
    pub(crate) async fn subscribe(
        self: &Arc<Self>,
        topic: String,
        backlog: usize,
        timeout: Duration,
    ) -> Result<Subscription, Error> {
        self.subscribe_to_all(vec![topic], backlog, timeout).await
    }

    /// Events of any of `topics`, as one subscription.
    pub(crate) async fn subscribe_to_all(
        self: &Arc<Self>,
        topics: Vec<String>,
        backlog: usize,
        timeout: Duration,
    ) -> Result<Subscription, Error> {
        let (listener, left) = (self.clone(), topics.clone());
        let (reader, subscription) = Subscription::channel(backlog, move || {
            let _ = listener.commands.send(Command::Leave { topics: left });
        });
        let (done, outcome) = oneshot::channel();
        let _ = self.commands.send(Command::Subscribe { topics, reader, done });
        match tokio::time::timeout(timeout, outcome).await {
            Ok(Ok(outcome)) => outcome.map_err(|error| error.during(Operation::Subscribe))?,
            Ok(Err(_)) => return Err(stopped()),
            Err(_) => return Err(not_connected_in_time(Operation::Subscribe, timeout)),
        }
        Ok(subscription)
    }
}

/// Somebody else is in the way of a topic.
fn in_the_way() -> Error {
    Error::new(ErrorCode::ServiceUnavailable, "the server cannot tell of this key at present")
}

/// The runtime of the listener is gone, or going.
fn stopped() -> Error {
    Error::new(ErrorCode::ServiceUnavailable, "the connection for wake-ups was closed").during(Operation::Subscribe)
}

struct Task<C: PushConnection> {
    server: Arc<C::Server>,
    readers: HashMap<String, Vec<Publisher>>,
    connection: Option<C>,
    /// The topics that the server tells us of.
    subscribed: HashSet<String>,
    connected_at: Instant,
    /// The last connection was lost while somebody listened.
    missed: bool,
    /// When readers were told last that they may have missed something.
    told_at: Instant,
}

/// What woke the task.
enum Woken {
    Commands,
    Pushed(Pushed),
    Time,
    /// Nothing was heard of for so long that readers have to look.
    ToLook,
}

impl<C: PushConnection> Task<C> {
    fn new(server: Arc<C::Server>) -> Self {
        Self {
            server,
            readers: HashMap::new(),
            connection: None,
            subscribed: HashSet::new(),
            connected_at: Instant::now(),
            missed: false,
            told_at: Instant::now(),
        }
    }

    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut batch = Vec::new();
        let mut delay = RECONNECT_DELAY.0;
        let (mut check_at, mut reconnect_at) = (Instant::now() + CHECK_EVERY, Instant::now());
        loop {
            let was_connected = self.connection.is_some();
            let checks = was_connected || self.readers.is_empty();
            let woken = tokio::select! {
                count = commands.recv_many(&mut batch, BATCH) => match count {
                    0 => return,
                    _ => Woken::Commands,
                },
                pushed = next(self.connection.as_mut()) => Woken::Pushed(pushed),
                () = tokio::time::sleep_until(if checks { check_at } else { reconnect_at }) => Woken::Time,
                () = until_a_look(self.missed, self.told_at) => Woken::ToLook,
            };
            match woken {
                Woken::Commands => self.apply(batch.drain(..)).await,
                Woken::Pushed(Pushed::Lost) => {
                    tracing::debug!("the connection for wake-ups was lost; waiting polls until there is a new one");
                    self.disconnect();
                }
                Woken::Pushed(pushed) => {
                    check_at = Instant::now() + CHECK_EVERY;
                    self.deliver(pushed);
                }
                Woken::ToLook => self.tell_missed(),
                Woken::Time if checks => {
                    self.check().await;
                    check_at = Instant::now() + CHECK_EVERY;
                }
                Woken::Time => match self.connect().await {
                    Ok(_) => check_at = Instant::now() + CHECK_EVERY,
                    Err(_) => {
                        delay = (delay * 2).min(RECONNECT_DELAY.1);
                        reconnect_at = Instant::now() + delay;
                    }
                },
            }
            if was_connected && self.connection.is_none() {
                // A connection that did not last is made again more and more slowly.
                let lasted = self.connected_at.elapsed() > RECONNECT_DELAY.1 * 2;
                delay = if lasted { RECONNECT_DELAY.0 } else { (delay * 2).min(RECONNECT_DELAY.1) };
                reconnect_at = Instant::now() + delay;
            }
        }
    }

    /// Carries out commands: all new topics, and all that nobody wants any more, at once.
    async fn apply(&mut self, commands: impl Iterator<Item = Command> + Send) {
        let (mut waiting, mut touched) = (Vec::new(), BTreeSet::new());
        for command in commands {
            match command {
                Command::Subscribe { topics, reader, done } => {
                    for topic in &topics {
                        self.readers.entry(topic.clone()).or_default().push(reader.clone());
                        touched.insert(topic.clone());
                    }
                    waiting.push((topics, done));
                }
                Command::Leave { topics } => {
                    for topic in topics {
                        let Some(readers) = self.readers.get_mut(&topic) else { continue };
                        readers.retain(|reader| !reader.is_closed());
                        if readers.is_empty() {
                            self.readers.remove(&topic);
                            touched.insert(topic);
                        }
                    }
                }
            }
        }
        let (wanted, unwanted): (Vec<_>, Vec<_>) = touched
            .into_iter()
            .filter(|topic| self.readers.contains_key(topic) != self.subscribed.contains(topic))
            .partition(|topic| self.readers.contains_key(topic));
        let outcome = match &mut self.connection {
            None if waiting.is_empty() => Ok(Vec::new()),
            // A new connection is for all topics there are.
            None => self.connect().await,
            Some(connection) => {
                let changed = connection.change(&wanted, &unwanted).await;
                match &changed {
                    Ok(refused) => {
                        unwanted.iter().for_each(|topic| {
                            self.subscribed.remove(topic);
                        });
                        self.subscribed.extend(wanted);
                        self.refuse(refused);
                    }
                    Err(_) => self.disconnect(),
                }
                changed
            }
        };
        for (topics, done) in waiting {
            // A reader whose subscriber is told of an error leaves by itself.
            let _ = done.send(match &outcome {
                Ok(refused) if topics.iter().any(|topic| refused.contains(topic)) => Err(in_the_way()),
                Ok(_) => Ok(()),
                Err(error) => Err(error.clone()),
            });
        }
    }

    /// Gives up topics of which the server cannot tell at present. The subscriptions end, and
    /// whoever waits polls until it has a new one.
    fn refuse(&mut self, topics: &[String]) {
        for topic in topics {
            self.subscribed.remove(topic);
            self.readers.remove(topic);
        }
    }

    /// Connects for all topics, and returns those that could not be had. Whoever listened before
    /// may have missed something in between.
    async fn connect(&mut self) -> Result<Vec<String>, Error> {
        let mut connection = self.open().await?;
        let topics: Vec<String> = self.readers.keys().cloned().collect();
        let refused = if topics.is_empty() { Vec::new() } else { connection.change(&topics, &[]).await? };
        self.connection = Some(connection);
        self.connected_at = Instant::now();
        self.subscribed = topics.into_iter().collect();
        self.refuse(&refused);
        if std::mem::take(&mut self.missed) {
            self.tell_missed();
        }
        Ok(refused)
    }

    /// Makes a connection. Those who listened before look for themselves in the meantime.
    async fn open(&mut self) -> Result<C, Error> {
        let server = self.server.clone();
        let mut opening = pin!(C::open(&server));
        loop {
            tokio::select! {
                opened = &mut opening => return opened,
                () = until_a_look(self.missed, self.told_at) => self.tell_missed(),
            }
        }
    }

    fn tell_missed(&mut self) {
        self.told_at = Instant::now();
        self.readers.values().flatten().for_each(|reader| reader.publish(Event::Missed));
    }

    async fn check(&mut self) {
        if let Some(connection) = &mut self.connection
            && connection.check().await.is_err()
        {
            self.disconnect();
        }
    }

    fn disconnect(&mut self) {
        self.connection = None;
        self.subscribed.clear();
        self.missed = !self.readers.is_empty();
        self.told_at = Instant::now();
    }

    fn deliver(&mut self, pushed: Pushed) {
        match pushed {
            Pushed::Notification(Notification { topic, event }) => {
                self.readers.get(&topic).into_iter().flatten().for_each(|reader| reader.publish(event.clone()));
            }
            Pushed::Missed => self.tell_missed(),
            Pushed::Noise | Pushed::Lost => {}
        }
    }
}

/// The next time that readers have to look, if they miss what happens.
async fn until_a_look(missed: bool, told_at: Instant) {
    if missed { tokio::time::sleep_until(told_at + LOOK_EVERY).await } else { std::future::pending().await }
}

async fn next<C: PushConnection>(connection: Option<&mut C>) -> Pushed {
    match connection {
        Some(connection) => connection.next().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
