//! Requests to the server, each with who we are and within a deadline.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::error;
use super::place::Place;
use super::tokens::{Generation, Tokens};
use crate::sync::lock;
use crate::url_writer;
use crate::{Error, Operation};

/// The server is told to give up this much later than we do, so that our own word for it is heard.
const LEEWAY: Duration = Duration::from_millis(250);

/// How long the server remembers a transaction that nobody uses.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The first pause before a rollback without an answer is sent again, and the longest.
const ROLL_BACK_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// What speaks to the server.
pub(super) type Client = api::firestore_client::FirestoreClient<Channel>;

/// One of several requests that go on together.
pub(super) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The connection of one runtime: all requests of its tasks share it.
#[derive(Debug)]
pub(super) struct Connection {
    place: Arc<Place>,
    tokens: Arc<Tokens>,
    channel: Mutex<Option<Channel>>,
    /// The runtime that drives the channel. Whoever is dropped elsewhere is cleaned up after here.
    runtime: Handle,
}

/// What went wrong with one request.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server, or the way there, failed.
    Status { status: Status, request: Kind, token: Generation },
    /// No answer came in time.
    Late { request: Kind },
    /// There was no time left to ask, or we could not say who we are.
    NotSent(Error),
    /// It was for us to say no.
    Refused(Error),
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Commit,
}

impl Connection {
    /// The connection of this runtime.
    pub(super) fn new(place: Arc<Place>, runtime: Handle) -> Self {
        let tokens = Arc::new(Tokens::new(place.server.access.clone()));
        Self { place, tokens, channel: Mutex::default(), runtime }
    }

    /// The requests of one operation, which share its deadline.
    pub(super) fn session(&self, operation: Operation) -> Session<'_> {
        let deadline = Instant::now() + self.place.timeout;
        Session { connection: self, operation, deadline }
    }

    fn client(&self) -> Client {
        Client::new(lock(&self.channel).get_or_insert_with(|| self.place.server.channel()).clone())
    }

    /// A request that had no answer says that the connection may be dead: the next one gets
    /// another.
    fn discard(&self) {
        *lock(&self.channel) = None;
    }
}

/// The requests of one operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session<'a> {
    connection: &'a Connection,
    operation: Operation,
    pub(super) deadline: Instant,
}

impl Session<'_> {
    pub(super) fn database(&self) -> &str {
        &self.connection.place.database
    }

    /// Sends `message` by `call`, and hands on the answer.
    pub(super) async fn send<M, T>(
        &self,
        request: Kind,
        message: M,
        call: impl AsyncFnOnce(Client, Request<M>) -> Result<T, Status>,
    ) -> Result<T, Failure> {
        let prepared = timeout_at(self.deadline, prepare(&self.connection.place, &self.connection.tokens, message));
        let (mut message, token) = match prepared.await {
            Ok(prepared) => prepared.map_err(Failure::NotSent)?,
            Err(_) => return Err(Failure::NotSent(self.connection.tokens.late(self.operation, self.timeout()))),
        };
        message.set_timeout(self.deadline.saturating_duration_since(Instant::now()) + LEEWAY);
        match timeout_at(self.deadline, call(self.connection.client(), message)).await {
            Ok(Ok(answer)) => Ok(answer),
            // What the request says of its deadline is heeded by others as well, who may be first.
            Ok(Err(status)) if !error::is_timeout(&status) => Err(Failure::Status { status, request, token }),
            Ok(Err(_)) | Err(_) => {
                self.connection.discard();
                Err(Failure::Late { request })
            }
        }
    }

    fn timeout(&self) -> Duration {
        self.connection.place.timeout
    }

    /// The failure as the operation's error.
    pub(super) fn explain(&self, failure: Failure) -> Error {
        let error = match failure {
            Failure::Status { status, request, .. } => error::translate(&status, request == Kind::Commit),
            Failure::Late { request: Kind::Commit } => Error::timed_out(self.operation, self.timeout()),
            Failure::Late { request: Kind::Read } => Error::unanswered(self.operation, self.timeout()),
            Failure::NotSent(error) | Failure::Refused(error) => error,
        };
        error.during(self.operation)
    }

    /// Has the next request ask for a new token, if it was the token that the server did not take.
    pub(super) fn renew_token(&self, failure: &Failure) -> bool {
        match failure {
            Failure::Status { token, .. } if failure.is_about_token() => self.connection.tokens.discard(*token),
            _ => false,
        }
    }

    /// Has a transaction end in the background, on the runtime of the connection.
    pub(super) fn roll_back(&self, transaction: Vec<u8>) -> JoinHandle<()> {
        let Connection { place, tokens, channel, runtime } = self.connection;
        let rollback = Rollback { place: place.clone(), tokens: tokens.clone(), transaction };
        runtime.spawn(rollback.run(lock(channel).clone()))
    }
}

/// The end of a transaction that was not committed.
#[derive(Debug)]
struct Rollback {
    place: Arc<Place>,
    tokens: Arc<Tokens>,
    transaction: Vec<u8>,
}

impl Rollback {
    /// Asks until the server has answered, or has forgotten the transaction.
    async fn run(self, channel: Option<Channel>) {
        let given_up = Instant::now() + REMEMBERED;
        let mut pause = ROLL_BACK_PAUSE.0;
        let open = || Client::new(self.place.server.channel());
        let mut client = channel.map_or_else(open, Client::new);
        if self.is_answered(&mut client).await {
            return;
        }
        // The connection may be what is wrong.
        client = open();
        while !self.is_answered(&mut client).await && Instant::now() < given_up {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(ROLL_BACK_PAUSE.1);
        }
    }

    /// Whether there is an answer, whatever it says.
    async fn is_answered(&self, client: &mut Client) -> bool {
        let (database, transaction) = (self.place.database.clone(), self.transaction.clone());
        let message = api::RollbackRequest { database, transaction };
        let rollback = async {
            let (message, _) = prepare(&self.place, &self.tokens, message).await.ok()?;
            client.rollback(message).await.map_or_else(|status| error::is_answer(&status), |_| true).then_some(())
        };
        matches!(tokio::time::timeout(self.place.timeout, rollback).await, Ok(Some(())))
    }
}

/// A request that says who we are and which database it is about.
pub(super) async fn prepare<M>(place: &Place, tokens: &Tokens, message: M) -> Result<(Request<M>, Generation), Error> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    let (authorization, token) = tokens.authorization().await?;
    metadata.insert("authorization", authorization);
    // By these the service finds the servers that have the database.
    let params = format!("database={}", url_writer::part(&place.database));
    for (name, value) in [("google-cloud-resource-prefix", place.database.as_str()), ("x-goog-request-params", &params)]
    {
        if let Ok(value) = value.parse() {
            metadata.insert(name, value);
        }
    }
    Ok((request, token))
}
