//! Hears what a server tells of its own accord, for stores whose server does.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::backend::{Event, Publisher};
use crate::{Error, ErrorCode, LockId, Loss};

/// The first pause before a lost line is made again, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(2));

/// How often to make sure that the server is still there.
const CHECK: Duration = Duration::from_secs(15);

/// How many orders are carried out in one go.
const BATCH: usize = 256;

/// A connection that news come over.
pub(crate) trait Line: Sized + 'static {
    /// What it takes to make one.
    type Server: Send + Sync + 'static;

    /// Makes a connection, within a deadline.
    async fn open(server: &Self::Server) -> Result<Self, Error>;

    /// Has the server tell of `wanted` topics from now on, and no more of `unwanted` ones, within a deadline.
    async fn change(&mut self, wanted: &[String], unwanted: &[String]) -> Result<(), Error>;

    /// Makes sure that the server is still there, within a deadline.
    async fn check(&mut self) -> Result<(), Error>;

    /// What the server tells next; none if the connection is lost. Cancel-safe.
    async fn next(&mut self) -> Option<News>;
}

/// A topic and what happened, unless it is of no interest.
pub(crate) type News = Option<(String, Event)>;

/// Hears news and hands them to the subscriptions of this process: one connection for all of them, on a thread of its own, so
/// that news arrive however busy the user's runtime is.
#[derive(Debug)]
pub(crate) struct Ear {
    orders: mpsc::UnboundedSender<Order>,
}

enum Order {
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

impl Ear {
    /// Starts the thread. It ends with the last clone of the sender.
    pub(crate) fn open<L: Line>(server: Arc<L::Server>) -> Result<Self, Error> {
        let failed = |source: std::io::Error| {
            Error::new(ErrorCode::Internal, "cannot start the thread that listens to the server")
                .with_hint("the limit on threads or open files of this process may be too low")
                .with_source(source)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (orders, received) = mpsc::unbounded_channel();
        let listen = move || {
            let listener = Listener::<L> {
                server,
                readers: HashMap::new(),
                line: None,
                told: HashSet::new(),
                made: Instant::now(),
                missed: false,
            };
            runtime.block_on(listener.listen(received));
        };
        thread::Builder::new().name("leasehold-ear".into()).spawn(listen).map_err(failed)?;
        Ok(Self { orders })
    }

    /// Has `reader` told of `topic`, from the moment this returns.
    pub(crate) async fn subscribe(&self, topic: String, reader: Publisher) -> Result<(), Error> {
        let (done, outcome) = oneshot::channel();
        let _ = self.orders.send(Order::Subscribe { topic, reader, done });
        outcome.await.unwrap_or_else(|_| Err(Error::new(ErrorCode::Internal, "the thread that listens has stopped")))
    }

    /// What to call when a reader of `topic` is gone.
    pub(crate) fn leave(&self, topic: String) -> impl FnOnce() + Send + 'static {
        let orders = self.orders.clone();
        move || {
            let _ = orders.send(Order::Leave { topic });
        }
    }
}

struct Listener<L: Line> {
    server: Arc<L::Server>,
    readers: HashMap<String, Vec<Publisher>>,
    line: Option<L>,
    /// What the server tells us of.
    told: HashSet<String>,
    /// When the line was made.
    made: Instant,
    /// The last line was lost while somebody listened.
    missed: bool,
}

/// What woke the listener.
enum Woken {
    Orders,
    Lost,
    News(News),
    Time,
}

impl<L: Line> Listener<L> {
    async fn listen(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut batch = Vec::new();
        let mut pause = AGAIN.0;
        let (mut check_at, mut again_at) = (Instant::now() + CHECK, Instant::now());
        loop {
            let had_line = self.line.is_some();
            let due = if had_line || self.readers.is_empty() { check_at } else { again_at };
            let woken = tokio::select! {
                count = orders.recv_many(&mut batch, BATCH) => match count {
                    0 => return,
                    _ => Woken::Orders,
                },
                news = next(self.line.as_mut()) => news.map_or(Woken::Lost, Woken::News),
                () = tokio::time::sleep_until(due) => Woken::Time,
            };
            match woken {
                Woken::Orders => self.obey(batch.drain(..)).await,
                Woken::News(news) => {
                    check_at = Instant::now() + CHECK;
                    self.deliver(news);
                }
                Woken::Lost => {
                    tracing::debug!("the connection for wake-ups was lost; waiting polls until there is a new one");
                    self.lose();
                }
                Woken::Time if had_line || self.readers.is_empty() => {
                    self.check().await;
                    check_at = Instant::now() + CHECK;
                }
                Woken::Time => match self.connect().await {
                    Ok(()) => check_at = Instant::now() + CHECK,
                    Err(_) => {
                        pause = (pause * 2).min(AGAIN.1);
                        again_at = Instant::now() + pause;
                    }
                },
            }
            if had_line && self.line.is_none() {
                // A line that did not last is made again more and more slowly.
                let lasted = self.made.elapsed() > AGAIN.1 * 2;
                pause = if lasted { AGAIN.0 } else { (pause * 2).min(AGAIN.1) };
                again_at = Instant::now() + pause;
            }
        }
    }

    /// Carries out what was ordered, all new topics and all that nobody wants any more at once.
    async fn obey(&mut self, orders: impl Iterator<Item = Order>) {
        let (mut waiting, mut touched) = (Vec::new(), BTreeSet::new());
        for order in orders {
            match order {
                Order::Subscribe { topic, reader, done } => {
                    self.readers.entry(topic.clone()).or_default().push(reader);
                    touched.insert(topic);
                    waiting.push(done);
                }
                Order::Leave { topic } => {
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
            .filter(|topic| self.readers.contains_key(topic) != self.told.contains(topic))
            .partition(|topic| self.readers.contains_key(topic));
        let outcome = match &mut self.line {
            None if waiting.is_empty() => Ok(()),
            // A new line is for all topics there are.
            None => self.connect().await,
            Some(line) => {
                let changed = line.change(&wanted, &unwanted).await;
                match changed {
                    Ok(()) => {
                        unwanted.iter().for_each(|topic| {
                            self.told.remove(topic);
                        });
                        self.told.extend(wanted);
                    }
                    Err(_) => self.lose(),
                }
                changed
            }
        };
        for done in waiting {
            // A reader whose subscriber is told of an error leaves by itself.
            let _ = done.send(outcome.as_ref().copied().map_err(Error::duplicate));
        }
    }

    /// Makes a line for everything. Whoever listened before may have missed something in between.
    async fn connect(&mut self) -> Result<(), Error> {
        let mut line = L::open(&self.server).await?;
        let topics: Vec<String> = self.readers.keys().cloned().collect();
        if !topics.is_empty() {
            line.change(&topics, &[]).await?;
        }
        self.line = Some(line);
        self.made = Instant::now();
        self.told = topics.into_iter().collect();
        if std::mem::take(&mut self.missed) {
            self.readers.values().flatten().for_each(|reader| reader.publish(Event::Missed));
        }
        Ok(())
    }

    async fn check(&mut self) {
        if let Some(line) = &mut self.line
            && line.check().await.is_err()
        {
            self.lose();
        }
    }

    fn lose(&mut self) {
        self.line = None;
        self.told.clear();
        self.missed = !self.readers.is_empty();
    }

    fn deliver(&self, news: News) {
        if let Some((topic, event)) = news {
            self.readers.get(&topic).into_iter().flatten().for_each(|reader| reader.publish(event));
        }
    }
}

async fn next<L: Line>(line: Option<&mut L>) -> Option<News> {
    match line {
        Some(line) => line.next().await,
        None => std::future::pending().await,
    }
}

/// What a message about a lock that was taken from its holder says: `S` or `R`, and the lock id.
pub(crate) fn taken(text: &str) -> Option<Event> {
    let (letter, id) = text.split_at_checked(1)?;
    let how = match letter {
        "S" => Loss::Stolen,
        "R" => Loss::ForceReleased,
        _ => return None,
    };
    Some(Event::Taken { lock_id: id.parse::<LockId>().ok()?, how })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::Subscription;
    use crate::sync::lock;

    /// A server that remembers what it was told to tell.
    #[derive(Default)]
    struct Scribe(Mutex<Vec<(Vec<String>, Vec<String>)>>);

    struct ScribesLine(Arc<Scribe>);

    impl Line for ScribesLine {
        type Server = Arc<Scribe>;

        async fn open(server: &Arc<Scribe>) -> Result<Self, Error> {
            Ok(Self(server.clone()))
        }

        async fn change(&mut self, wanted: &[String], unwanted: &[String]) -> Result<(), Error> {
            lock(&self.0.0).push((wanted.to_vec(), unwanted.to_vec()));
            Ok(())
        }

        async fn check(&mut self) -> Result<(), Error> {
            Ok(())
        }

        async fn next(&mut self) -> Option<News> {
            std::future::pending().await
        }
    }

    /// The orders of a reader that comes, and of one that comes and goes at once.
    fn comes(topic: &str, orders: &mut Vec<Order>) -> Subscription {
        let (reader, subscription) = Subscription::channel(1, || {});
        orders.push(Order::Subscribe { topic: topic.into(), reader, done: oneshot::channel().0 });
        subscription
    }

    fn comes_and_goes(topic: &str, orders: &mut Vec<Order>) {
        drop(comes(topic, orders));
        orders.push(Order::Leave { topic: topic.into() });
    }

    #[tokio::test]
    async fn the_server_tells_of_what_has_readers_however_they_come_and_go() {
        let server = Arc::new(Scribe::default());
        let mut listener = Listener::<ScribesLine> {
            server: Arc::new(server.clone()),
            readers: HashMap::new(),
            line: Some(ScribesLine(server.clone())),
            told: HashSet::new(),
            made: Instant::now(),
            missed: false,
        };
        let mut orders = Vec::new();
        comes_and_goes("a", &mut orders);
        let a = comes("a", &mut orders);
        comes_and_goes("b", &mut orders);
        listener.obey(orders.drain(..)).await;
        assert_eq!(listener.told, HashSet::from(["a".to_owned()]));
        drop(a);
        orders.push(Order::Leave { topic: "a".into() });
        let again = comes("a", &mut orders);
        listener.obey(orders.drain(..)).await;
        assert_eq!(listener.told, HashSet::from(["a".to_owned()]));
        comes_and_goes("a", &mut orders);
        listener.obey(orders.drain(..)).await;
        drop(again);
        listener.obey([Order::Leave { topic: "a".into() }].into_iter()).await;
        let said: Vec<_> =
            lock(&server.0).iter().filter(|(wanted, unwanted)| wanted.len() + unwanted.len() > 0).cloned().collect();
        assert_eq!(said, [(vec!["a".to_owned()], vec![]), (vec![], vec!["a".to_owned()])]);
    }

    #[test]
    fn news_of_taken_locks_are_understood_and_noise_is_not() {
        let lock_id = LockId::random().unwrap();
        let id = lock_id.expose();
        assert_eq!(taken(&format!("S{id}")), Some(Event::Taken { lock_id, how: Loss::Stolen }));
        assert_eq!(taken(&format!("R{id}")), Some(Event::Taken { lock_id, how: Loss::ForceReleased }));
        for noise in ["", "S", "Sshort", id, "\u{e9}"] {
            assert_eq!(taken(noise), None);
        }
    }

    /// A line that notes what happens to it, and is lost at once if `flaky`.
    #[derive(Default)]
    struct Log {
        opened: std::sync::atomic::AtomicUsize,
        checked: std::sync::atomic::AtomicUsize,
        flaky: bool,
    }

    struct Logged(Arc<Log>);

    impl Line for Logged {
        type Server = Arc<Log>;

        async fn open(server: &Arc<Log>) -> Result<Self, Error> {
            server.opened.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(Self(server.clone()))
        }

        async fn change(&mut self, _: &[String], _: &[String]) -> Result<(), Error> {
            Ok(())
        }

        async fn check(&mut self) -> Result<(), Error> {
            self.0.checked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        }

        async fn next(&mut self) -> Option<News> {
            if self.0.flaky { None } else { std::future::pending().await }
        }
    }

    fn start(log: &Arc<Log>) -> Ear {
        let (orders, received) = mpsc::unbounded_channel();
        let listener = Listener::<Logged> {
            server: Arc::new(log.clone()),
            readers: HashMap::new(),
            line: None,
            told: HashSet::new(),
            made: Instant::now(),
            missed: false,
        };
        tokio::task::spawn_local(listener.listen(received));
        Ear { orders }
    }

    async fn come(ear: &Ear, topic: &str) -> Subscription {
        let (reader, subscription) = Subscription::channel(1, ear.leave(topic.to_owned()));
        ear.subscribe(topic.to_owned(), reader).await.unwrap();
        subscription
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_is_checked_however_many_come_and_go() {
        let log = Arc::new(Log::default());
        tokio::task::LocalSet::new()
            .run_until(async {
                let ear = start(&log);
                let _stays = come(&ear, "a").await;
                for _ in 0..60 {
                    tokio::time::sleep(Duration::from_secs(10)).await;
                    drop(come(&ear, "a").await);
                }
            })
            .await;
        let checked = log.checked.load(std::sync::atomic::Ordering::Relaxed);
        assert!(checked >= 30, "{checked} checks in ten minutes");
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_that_breaks_as_soon_as_it_is_made_is_made_less_and_less_often() {
        let log = Arc::new(Log { flaky: true, ..Log::default() });
        tokio::task::LocalSet::new()
            .run_until(async {
                let ear = start(&log);
                let _stays = come(&ear, "a").await;
                tokio::time::sleep(Duration::from_secs(60)).await;
            })
            .await;
        let opened = log.opened.load(std::sync::atomic::Ordering::Relaxed);
        assert!(opened <= 60, "{opened} connections in a minute");
    }
}
