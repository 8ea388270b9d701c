use std::sync::Arc;
use std::time::Duration;

use redis::FromRedisValue;
use tokio::time::Instant;

use super::connection::ReconnectingConnection;
use super::names::Names;
use super::script::{self, Script};
use super::server::Server;
use super::{decode_extend, decode_release, lifetime};
use crate::backend::{Acquire, AcquireRequest, Extend, Mode, Release};
use crate::remote::stage::{self, Batching, Pace, Stage};
use crate::{Error, ErrorCode, LockId, Operation, Ttl};

/// With two alone, eight tasks near the server were slower together than apart; with eight, 64
/// tasks at half a millisecond were.
const PACE: Pace = Pace { alone: 4, service: Duration::from_micros(25) };

/// What the tasks of one runtime share: a connection, and where requests wait to be sent together.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) names: Arc<Names>,
    pub(super) server: Arc<Server>,
    pub(super) connection: ReconnectingConnection,
    acquires: Stage<AcquireRequest, Option<Acquire>>,
    releases: Stage<LockId, Option<Release>>,
}

impl Client {
    /// A client for the runtime that runs the caller.
    pub(super) fn new(names: Arc<Names>, server: Arc<Server>, batching: bool) -> Self {
        let connection = ReconnectingConnection::new(server.clone());
        let (acquires, releases) = (Stage::new(batching, PACE), Stage::new(batching, PACE));
        Self { names, server, connection, acquires, releases }
    }

    pub(super) async fn run<T: FromRedisValue>(
        &self,
        operation: Operation,
        script: &Script,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<T, Error> {
        let value = self.connection.run(operation, script, keys, arguments).await?;
        redis::from_redis_value(value).map_err(|source| {
            Error::new(ErrorCode::Internal, "an unexpected answer of the server")
                .with_source(source)
                .during(operation)
                .with_outcome_unknown()
        })
    }

    /// Asks for a lock, together with others that ask at the same time.
    pub(super) async fn acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Acquire, Error> {
        // Nothing else can be decided at a glance.
        if request.mode != Mode::Exclusive || request.steal.is_possible() {
            return self.acquire_one(request).await;
        }
        let begun = Instant::now();
        match stage::send(self, request).await? {
            Some(answer) => Ok(answer),
            None => self.in_the_same_time(Operation::Acquire, begun, self.acquire_one(request)).await,
        }
    }

    /// Releases a lock, together with others that are released at the same time.
    pub(super) async fn release(self: &Arc<Self>, id: &LockId) -> Result<Release, Error> {
        let begun = Instant::now();
        match stage::send(self, id).await? {
            Some(answer) => Ok(answer),
            None => self.in_the_same_time(Operation::Release, begun, self.release_one(id)).await,
        }
    }

    /// A second request for an operation that has begun, which must not take longer than one.
    async fn in_the_same_time<T>(
        &self,
        operation: Operation,
        begun: Instant,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let timeout = self.server.timeout;
        let answer = tokio::time::timeout_at(begun + timeout, request).await;
        answer.unwrap_or_else(|_| Err(Error::timed_out(operation, timeout)))
    }

    pub(super) async fn release_one(&self, id: &LockId) -> Result<Release, Error> {
        let index = self.names.index(id);
        let arguments = [id.expose(), &self.names.held()];
        self.run(Operation::Release, &script::RELEASE, &[&index], &arguments).await.map(decode_release)
    }

    pub(super) async fn extend_one(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        let index = self.names.index(id);
        let (ttl, life) = lifetime(ttl);
        let arguments = [id.expose(), &ttl, &life];
        self.run(Operation::Extend, &script::EXTEND, &[&index], &arguments).await.map(decode_extend)
    }
}

/// What has to be sent alone is not answered, so that whoever wants it does so, and nobody else
/// waits.
impl Batching<AcquireRequest> for Client {
    type Answer = Option<Acquire>;

    fn stage(&self) -> &Stage<AcquireRequest, Option<Acquire>> {
        &self.acquires
    }

    async fn send_one(&self, request: &AcquireRequest) -> Result<Option<Acquire>, Error> {
        self.acquire_one(request).await.map(Some)
    }

    async fn send_many(&self, requests: Vec<AcquireRequest>) -> Vec<Result<Option<Acquire>, Error>> {
        self.acquire_together(&requests).await.into_iter().map(Option::transpose).collect()
    }
}

impl Batching<LockId> for Client {
    type Answer = Option<Release>;

    fn stage(&self) -> &Stage<LockId, Option<Release>> {
        &self.releases
    }

    async fn send_one(&self, id: &LockId) -> Result<Option<Release>, Error> {
        self.release_one(id).await.map(Some)
    }

    async fn send_many(&self, ids: Vec<LockId>) -> Vec<Result<Option<Release>, Error>> {
        match self.release_at_once(&ids).await {
            Some(answers) => answers.into_iter().map(|answer| answer.map(Some)).collect(),
            None => ids.iter().map(|_| Ok(None)).collect(),
        }
    }
}
