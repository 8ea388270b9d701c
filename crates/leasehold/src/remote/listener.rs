//! Subscriptions to what a server says of its own accord, for stores whose server does.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::backend::{Event, Publisher, Subscription};
use crate::remote::driver_error::not_connected_in_time;
use crate::remote::notification::Notification;
use crate::remote::push_connection::{PushConnection, Pushed};
use crate::{Error, ErrorCode, Operation};

/// The first pause before a lost connection is made again, and the longest.
const RECONNECT_DELAY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(2));

/// How often to make sure that the server is still there.
const CHECK_EVERY: Duration = Duration::from_secs(15);

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
        topic: String,
        reader: Publisher,
        done: oneshot::Sender<Result<(), Error>>,
    },
    /// A reader of this topic may be gone.
    Leave {
        topic: String,
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
        let (listener, left) = (self.clone(), topic.clone());
        let (reader, subscription) = Subscription::channel(backlog, move || {
            let _ = listener.commands.send(Command::Leave { topic: left });
        });
        let (done, outcome) = oneshot::channel();
        let _ = self.commands.send(Command::Subscribe { topic, reader, done });
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
}

/// What woke the task.
enum Woken {
    Commands,
    Pushed(Pushed),
    Time,
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
                Command::Subscribe { topic, reader, done } => {
                    self.readers.entry(topic.clone()).or_default().push(reader);
                    touched.insert(topic.clone());
                    waiting.push((topic, done));
                }
                Command::Leave { topic } => {
                    let Some(readers) = self.readers.get_mut(&topic) else { continue };
                    readers.retain(|reader| !reader.is_closed());
                    if readers.is_empty() {
                        self.readers.remove(&topic);
                        touched.insert(topic);
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
        for (topic, done) in waiting {
            // A reader whose subscriber is told of an error leaves by itself.
            let _ = done.send(match &outcome {
                Ok(refused) if refused.contains(&topic) => Err(in_the_way()),
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
        let mut connection = C::open(&self.server).await?;
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

    fn tell_missed(&self) {
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
    }

    fn deliver(&self, pushed: Pushed) {
        match pushed {
            Pushed::Notification(Notification { topic, event }) => {
                self.readers.get(&topic).into_iter().flatten().for_each(|reader| reader.publish(event.clone()));
            }
            Pushed::Missed => self.tell_missed(),
            Pushed::Noise | Pushed::Lost => {}
        }
    }
}

async fn next<C: PushConnection>(connection: Option<&mut C>) -> Pushed {
    match connection {
        Some(connection) => connection.next().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::sync::lock;

    /// A server that notes what is done to its connections, and loses them at once if `flaky`.
    #[derive(Default)]
    struct Server {
        opened: AtomicUsize,
        checked: AtomicUsize,
        changes: Mutex<Vec<(Vec<String>, Vec<String>)>>,
        flaky: bool,
    }

    struct Connection(Arc<Server>);

    impl PushConnection for Connection {
        type Server = Arc<Server>;

        async fn open(server: &Arc<Server>) -> Result<Self, Error> {
            server.opened.fetch_add(1, Ordering::Relaxed);
            Ok(Self(server.clone()))
        }

        async fn change(&mut self, wanted: &[String], unwanted: &[String]) -> Result<Vec<String>, Error> {
            lock(&self.0.changes).push((wanted.to_vec(), unwanted.to_vec()));
            Ok(wanted.iter().filter(|topic| topic.starts_with("refused")).cloned().collect())
        }

        async fn check(&mut self) -> Result<(), Error> {
            self.0.checked.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        async fn next(&mut self) -> Pushed {
            if self.0.flaky { Pushed::Lost } else { std::future::pending().await }
        }
    }

    /// The commands of a reader that comes, and of one that comes and goes at once.
    fn comes(topic: &str, commands: &mut Vec<Command>) -> Subscription {
        let (reader, subscription) = Subscription::channel(1, || {});
        commands.push(Command::Subscribe { topic: topic.into(), reader, done: oneshot::channel().0 });
        subscription
    }

    fn comes_and_goes(topic: &str, commands: &mut Vec<Command>) {
        drop(comes(topic, commands));
        commands.push(Command::Leave { topic: topic.into() });
    }

    #[tokio::test]
    async fn the_server_tells_of_what_has_readers_however_they_come_and_go() {
        let server = Arc::new(Server::default());
        let mut task = Task::<Connection>::new(Arc::new(server.clone()));
        task.connection = Some(Connection(server.clone()));
        let mut commands = Vec::new();
        comes_and_goes("a", &mut commands);
        let a = comes("a", &mut commands);
        comes_and_goes("b", &mut commands);
        task.apply(commands.drain(..)).await;
        assert_eq!(task.subscribed, HashSet::from(["a".to_owned()]));
        drop(a);
        commands.push(Command::Leave { topic: "a".into() });
        let again = comes("a", &mut commands);
        task.apply(commands.drain(..)).await;
        assert_eq!(task.subscribed, HashSet::from(["a".to_owned()]));
        comes_and_goes("a", &mut commands);
        task.apply(commands.drain(..)).await;
        drop(again);
        task.apply([Command::Leave { topic: "a".into() }].into_iter()).await;
        let said: Vec<_> = lock(&server.changes)
            .iter()
            .filter(|(wanted, unwanted)| wanted.len() + unwanted.len() > 0)
            .cloned()
            .collect();
        assert_eq!(said, [(vec!["a".to_owned()], vec![]), (vec![], vec!["a".to_owned()])]);
    }

    fn start(server: &Arc<Server>) -> Arc<Listener> {
        Arc::new(Listener::start::<Connection>(Arc::new(server.clone())))
    }

    async fn subscribe(listener: &Arc<Listener>) -> Subscription {
        listener.subscribe("a".to_owned(), 1, Duration::from_secs(1)).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_checked_however_many_come_and_go() {
        let server = Arc::new(Server::default());
        let listener = start(&server);
        let _stays = subscribe(&listener).await;
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            drop(subscribe(&listener).await);
        }
        let checked = server.checked.load(Ordering::Relaxed);
        assert!(checked >= 30, "{checked} checks in ten minutes");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_breaks_as_soon_as_it_is_made_is_made_less_and_less_often() {
        let server = Arc::new(Server { flaky: true, ..Server::default() });
        let listener = start(&server);
        let _stays = subscribe(&listener).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let opened = server.opened.load(Ordering::Relaxed);
        assert!(opened <= 60, "{opened} connections in a minute");
    }

    #[tokio::test(start_paused = true)]
    async fn all_readers_are_told_of_what_a_connection_missed() {
        let mut task = Task::<Connection>::new(Arc::new(Arc::new(Server::default())));
        let mut commands = Vec::new();
        let mut readers = ["a", "b"].map(|topic| comes(topic, &mut commands));
        task.apply(commands.drain(..)).await;
        task.deliver(Pushed::Missed);
        for reader in &mut readers {
            let told = tokio::time::timeout(Duration::from_secs(1), reader.next()).await;
            assert_eq!(told, Ok(Some(Event::Missed)));
        }
    }

    #[tokio::test]
    async fn a_topic_that_cannot_be_had_disturbs_no_other() {
        let server = Arc::new(Server::default());
        let listener = start(&server);
        let _stays = subscribe(&listener).await;
        let refused = listener.subscribe("refused".to_owned(), 1, Duration::from_secs(1)).await;
        assert_eq!(refused.unwrap_err().code(), ErrorCode::ServiceUnavailable);
        let _more = subscribe(&listener).await;
        assert_eq!(server.opened.load(Ordering::Relaxed), 1, "the connection is kept");
    }

    #[tokio::test]
    async fn a_listener_ends_with_its_last_handle_and_a_subscription_is_one() {
        let server = Arc::new(Server::default());
        let listener = start(&server);
        let subscription = subscribe(&listener).await;
        drop(listener);
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&server), 3, "the test, the task and its connection");
        drop(subscription);
        while Arc::strong_count(&server) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
