//! Wake-ups: what the server says of documents as they change.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;
use lru::LruCache;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, Streaming};

use api::listen_request::TargetChange as Change;
use api::listen_response::ResponseType;
use api::target::query_target::QueryType;
use api::target::{DocumentsTarget, QueryTarget, ResumeType, TargetType};
use api::target_change::TargetChangeType;

use super::connection::{Client, prepare};
use super::error::{is_about_token, translate};
use super::names::Names;
use super::place::Place;
use super::query;
use super::seen::{Awaited, Seen};
use super::tokens::{Generation, Tokens};
use crate::backend::Event;
use crate::remote::driver_error::not_connected_in_time;
use crate::remote::notification::{GRANTED_TOPIC, Notification, TAKEN_TOPIC};
use crate::remote::push_connection::{PushConnection, Pushed, UNREAD};
use crate::sync::lock;
use crate::{Error, ErrorCode, Fence, Operation, Timestamp};

/// What happened this long before anybody listened is of no interest. More than clocks are apart.
const BEFORE: Duration = Duration::from_secs(60);

/// How many locks are known by their fence, so that an extend is not taken for a grant, and a grant
/// not for another loss.
const GRANTS: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");

/// What a connection for wake-ups is about, and what outlives it.
#[derive(Clone)]
pub(super) struct Source {
    place: Arc<Place>,
    pub(super) names: Names,
    tokens: Arc<Tokens>,
    /// Where the next connection goes on, for each topic: what did not change in between is neither
    /// sent again nor paid for.
    resume: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    /// The fences of the last locks that were taken, by the counters that told of them.
    pub(super) told: Arc<Mutex<LruCache<String, Vec<Fence>>>>,
    pub(super) since: Timestamp,
}

impl Source {
    /// Where the server's clock shows `now`.
    pub(super) fn new(place: Arc<Place>, names: Names, now: Timestamp) -> Self {
        let before = u64::try_from(BEFORE.as_micros()).unwrap_or(u64::MAX);
        let since = Timestamp::from_micros(now.as_micros().saturating_sub(before));
        let tokens = Arc::new(Tokens::new(place.server.access.clone()));
        let told = Arc::new(Mutex::new(LruCache::new(GRANTS)));
        Self { place, names, tokens, resume: Arc::default(), told, since }
    }

    /// What the server has to look at for a topic.
    fn target(&self, topic: &str) -> TargetType {
        let query = |query| {
            let parent = self.names.root.clone();
            TargetType::Query(QueryTarget { parent, query_type: Some(QueryType::StructuredQuery(query)) })
        };
        match topic {
            TAKEN_TOPIC => query(query::taken_since(&self.names, self.since)),
            GRANTED_TOPIC => query(query::granted_since(&self.names, self.since)),
            other => {
                let documents = Awaited::of(other).map(|awaited| self.names.lock(&awaited.document));
                TargetType::Documents(DocumentsTarget { documents: documents.into_iter().collect() })
            }
        }
    }
}

/// A connection for wake-ups. Topics are targets of the one stream.
pub(super) struct ListenConnection {
    pub(super) source: Source,
    requests: mpsc::UnboundedSender<api::ListenRequest>,
    stream: Stream,
    /// That with which the stream was opened.
    token: Generation,
    pub(super) targets: HashMap<i32, Target>,
    last_id: i32,
    /// The last fences that were granted.
    pub(super) granted: LruCache<String, Fence>,
    /// What came while something else was waited for.
    early: VecDeque<Pushed>,
}

/// The stream of what the server says. It is opened with the first topics: a server may not answer
/// before it was asked for something.
enum Stream {
    Closed(mpsc::UnboundedReceiver<api::ListenRequest>),
    Open(Box<Streaming<api::ListenResponse>>),
    Ended,
}

/// A topic as the server knows it.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) topic: String,
    /// All that was there before has been sent: what comes now is news.
    current: bool,
    /// It goes on where another connection ended, so all that comes is news.
    resumed: bool,
    /// The server begins anew, and what happened meanwhile cannot be told from what was there.
    reset: bool,
    /// What the document was when the server last told of it.
    pub(super) seen: Option<Seen>,
}

impl Target {
    pub(super) fn has_news(&self) -> bool {
        self.current || self.resumed
    }
}

impl PushConnection for ListenConnection {
    type Server = Source;

    async fn open(source: &Source) -> Result<Self, Error> {
        let (requests, queued) = mpsc::unbounded_channel();
        Ok(Self {
            source: source.clone(),
            requests,
            stream: Stream::Closed(queued),
            token: Generation::default(),
            targets: HashMap::new(),
            last_id: 0,
            granted: LruCache::new(GRANTS),
            early: VecDeque::new(),
        })
    }

    async fn change(&mut self, wanted: &[String], unwanted: &[String]) -> Result<Vec<String>, Error> {
        let timeout = self.source.place.timeout;
        let changed = tokio::time::timeout(timeout, self.change_targets(wanted, unwanted)).await;
        changed.unwrap_or_else(|_| Err(not_connected_in_time(Operation::Subscribe, timeout)))
    }

    /// The connection itself makes sure that the server answers.
    async fn check(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn next(&mut self) -> Pushed {
        if let Some(pushed) = self.early.pop_front() {
            return pushed;
        }
        let answer = match &mut self.stream {
            Stream::Open(answers) => answers.message().await,
            Stream::Closed(_) => std::future::pending().await,
            Stream::Ended => Ok(None),
        };
        match answer {
            Ok(Some(answer)) => {
                self.decode(answer);
                self.early.pop_front().unwrap_or(Pushed::Noise)
            }
            Ok(None) => Pushed::Lost,
            Err(status) => {
                self.failed(&status);
                Pushed::Lost
            }
        }
    }
}

impl ListenConnection {
    /// Opens the stream, unless it is open, with the requests that wait for that.
    async fn open_stream(&mut self) -> Result<(), Error> {
        let queued = match std::mem::replace(&mut self.stream, Stream::Ended) {
            Stream::Closed(queued) => queued,
            other => {
                self.stream = other;
                return Ok(());
            }
        };
        let source = &self.source;
        let mut client = Client::new(source.place.server.channel());
        let (request, token) = prepare(&source.place, &source.tokens, UnboundedReceiverStream::new(queued)).await?;
        self.token = token;
        let answers = client.listen(request).await.map_err(|status| self.failed(&status))?;
        self.stream = Stream::Open(Box::new(answers.into_inner()));
        Ok(())
    }

    /// The stream has come to this end.
    fn failed(&self, status: &Status) -> Error {
        if is_about_token(status) {
            // The next connection asks for a new one.
            self.source.tokens.discard(self.token);
        }
        translate(status, false)
    }

    async fn answer(&mut self) -> Result<api::ListenResponse, Error> {
        let Stream::Open(answers) = &mut self.stream else { return Err(ended()) };
        let answer = answers.message().await;
        answer.map_err(|status| self.failed(&status))?.ok_or_else(ended)
    }

    async fn change_targets(&mut self, wanted: &[String], unwanted: &[String]) -> Result<Vec<String>, Error> {
        if matches!(self.stream, Stream::Closed(_)) {
            // Others were given up while there was no connection.
            lock(&self.source.resume).retain(|topic, _| wanted.contains(topic));
        }
        for topic in unwanted {
            lock(&self.source.resume).remove(topic);
            let ids: Vec<i32> = self.ids_of(topic).collect();
            for id in ids {
                self.targets.remove(&id);
                self.send(Change::RemoveTarget(id))?;
            }
        }
        for topic in wanted {
            self.last_id += 1;
            let resume = lock(&self.source.resume).get(topic).cloned();
            let target = api::Target {
                target_id: self.last_id,
                target_type: Some(self.source.target(topic)),
                resume_type: resume.clone().map(ResumeType::ResumeToken),
                ..api::Target::default()
            };
            let (topic, resumed) = (topic.clone(), resume.is_some());
            let known = Target { topic, current: false, resumed, reset: false, seen: None };
            self.targets.insert(self.last_id, known);
            self.send(Change::AddTarget(target))?;
        }
        if !wanted.is_empty() {
            self.open_stream().await?;
        }
        let mut refused = Vec::new();
        while wanted.iter().any(|topic| !refused.contains(topic) && !self.is_current(topic)) {
            let answer = self.answer().await?;
            if let Some(topics) = self.refusal(&answer) {
                refused.extend(topics);
                continue;
            }
            self.decode(answer);
            if self.early.contains(&Pushed::Lost) {
                return Err(ended());
            }
        }
        Ok(refused)
    }

    fn send(&self, change: Change) -> Result<(), Error> {
        let database = self.source.place.database.clone();
        let request = api::ListenRequest { database, target_change: Some(change), ..api::ListenRequest::default() };
        self.requests.send(request).map_err(|_| ended())
    }

    fn ids_of(&self, topic: &str) -> impl Iterator<Item = i32> {
        self.targets.iter().filter(move |(_, target)| target.topic == topic).map(|(id, _)| *id)
    }

    fn is_current(&self, topic: &str) -> bool {
        self.targets.values().any(|target| target.topic == topic && target.current)
    }

    /// The topics that the server will not tell of, if that is what it says.
    fn refusal(&mut self, answer: &api::ListenResponse) -> Option<Vec<String>> {
        let Some(ResponseType::TargetChange(change)) = &answer.response_type else { return None };
        let removed = change.target_change_type() == TargetChangeType::Remove && change.cause.is_some();
        let mut remove = |id| {
            let target = self.targets.remove(id)?;
            // Perhaps it was this that it did not like.
            lock(&self.source.resume).remove(&target.topic);
            Some(target.topic)
        };
        removed.then(|| change.target_ids.iter().filter_map(&mut remove).collect())
    }

    /// Keeps what an answer says until it is asked for.
    fn decode(&mut self, answer: api::ListenResponse) {
        match answer.response_type {
            Some(ResponseType::TargetChange(change)) => {
                let pushed = self.target_changed(&change);
                self.keep(pushed);
            }
            Some(ResponseType::DocumentChange(change)) => self.document_changed(&change),
            Some(ResponseType::DocumentDelete(gone)) => self.deleted(&gone.document),
            // It no longer is what was asked for, as a counter that no longer tells of a lock.
            Some(ResponseType::DocumentRemove(_)) | None => {}
            // The server counts otherwise than somebody who resumed should have: look again.
            Some(ResponseType::Filter(_)) => self.keep(Pushed::Missed),
        }
    }

    fn keep(&mut self, pushed: Pushed) {
        match pushed {
            Pushed::Noise => {}
            // However many come, no more are kept.
            _ if self.early.len() >= UNREAD => self.early = VecDeque::from([Pushed::Missed]),
            pushed => self.early.push_back(pushed),
        }
    }

    pub(super) fn tell(&mut self, topic: impl Into<String>, event: Event) {
        self.keep(Pushed::Notification(Notification { topic: topic.into(), event }));
    }

    fn target_changed(&mut self, change: &api::TargetChange) -> Pushed {
        let concerns = |id: &i32| change.target_ids.is_empty() || change.target_ids.contains(id);
        match change.target_change_type() {
            // Of one that nobody wants any more.
            TargetChangeType::Remove if !self.targets.keys().any(|id| change.target_ids.contains(id)) => Pushed::Noise,
            TargetChangeType::Remove => Pushed::Lost,
            TargetChangeType::Reset => {
                let reset = self.targets.iter_mut().filter(|(id, _)| concerns(id));
                reset.for_each(|(_, target)| (target.current, target.resumed, target.reset) = (false, false, true));
                Pushed::Noise
            }
            kind => {
                let mut missed = false;
                for (_, target) in self.targets.iter_mut().filter(|(id, _)| concerns(id)) {
                    target.current |= kind == TargetChangeType::Current && !change.target_ids.is_empty();
                    missed |= target.current && std::mem::take(&mut target.reset);
                    if !change.resume_token.is_empty() && target.current {
                        lock(&self.source.resume).insert(target.topic.clone(), change.resume_token.clone());
                    }
                }
                if missed { Pushed::Missed } else { Pushed::Noise }
            }
        }
    }
}

fn ended() -> Error {
    Error::new(ErrorCode::ServiceUnavailable, "the server ended the stream for wake-ups").during(Operation::Subscribe)
}
