use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::*;
use crate::sync::lock;

/// A server that notes what is done to its connections, and loses them at once if `flaky`.
#[derive(Default)]
struct Server {
    opened: AtomicUsize,
    checked: AtomicUsize,
    changes: Mutex<Vec<(Vec<String>, Vec<String>)>>,
    flaky: bool,
    away: Mutex<Option<Away>>,
    lost: Notify,
}

/// What becomes of those who want to connect.
#[derive(Clone, Copy, Debug)]
enum Away {
    Refuses,
    Hangs,
}

struct Connection(Arc<Server>);

impl PushConnection for Connection {
    type Server = Arc<Server>;

    async fn open(server: &Arc<Server>) -> Result<Self, Error> {
        let away = *lock(&server.away);
        if let Some(away) = away {
            if let Away::Hangs = away {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            return Err(stopped());
        }
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
        if !self.0.flaky {
            self.0.lost.notified().await;
        }
        Pushed::Lost
    }
}

/// The commands of a reader that comes, and of one that comes and goes at once.
fn comes(topic: &str, commands: &mut Vec<Command>) -> Subscription {
    let (reader, subscription) = Subscription::channel(1, || {});
    commands.push(Command::Subscribe { topics: vec![topic.into()], reader, done: oneshot::channel().0 });
    subscription
}

fn comes_and_goes(topic: &str, commands: &mut Vec<Command>) {
    drop(comes(topic, commands));
    commands.push(Command::Leave { topics: vec![topic.into()] });
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
    commands.push(Command::Leave { topics: vec!["a".into()] });
    let again = comes("a", &mut commands);
    task.apply(commands.drain(..)).await;
    assert_eq!(task.subscribed, HashSet::from(["a".to_owned()]));
    comes_and_goes("a", &mut commands);
    task.apply(commands.drain(..)).await;
    drop(again);
    task.apply([Command::Leave { topics: vec!["a".into()] }].into_iter()).await;
    let said: Vec<_> =
        lock(&server.changes).iter().filter(|(wanted, unwanted)| wanted.len() + unwanted.len() > 0).cloned().collect();
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

#[tokio::test(start_paused = true)]
async fn readers_look_often_enough_to_keep_a_place_while_there_is_no_connection() {
    for away in [Away::Refuses, Away::Hangs] {
        let server = Arc::new(Server::default());
        let listener = start(&server);
        let mut reader = subscribe(&listener).await;
        *lock(&server.away) = Some(away);
        server.lost.notify_one();
        for _ in 0..30 {
            let told = tokio::time::timeout(Line::CALL_LEASE, reader.next()).await;
            assert_eq!(told, Ok(Some(Event::Missed)), "{away:?}");
        }
        *lock(&server.away) = None;
        while server.opened.load(Ordering::Relaxed) == 1 {
            reader.next().await;
        }
        // That it was connected again may yet be told.
        let _ = tokio::time::timeout(LOOK_EVERY, reader.next()).await;
        let more = tokio::time::timeout(Line::CALL_LEASE * 10, reader.next()).await;
        assert!(more.is_err(), "{away:?}: {more:?} of a connection that lasts");
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
