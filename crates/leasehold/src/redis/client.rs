use std::sync::Arc;

use redis::FromRedisValue;

use super::connection::ReconnectingConnection;
use super::names::Names;
use super::script::{self, Script};
use super::server::Server;
use super::{decode_extend, decode_release, lifetime};
use crate::backend::{Acquire, AcquireRequest, Extend, Release};
use crate::remote::stage::{Batching, Stage};
use crate::{Error, ErrorCode, LockId, Operation, Ttl};

/// What the tasks of one runtime share: a connection, and where requests wait to be sent together.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) names: Arc<Names>,
    pub(super) server: Arc<Server>,
    pub(super) connection: ReconnectingConnection,
    acquires: Stage<AcquireRequest, Acquire>,
    releases: Stage<LockId, Release>,
}

impl Client {
    /// A client for the runtime that runs the caller.
    pub(super) fn new(names: Arc<Names>, server: Arc<Server>, batching: bool) -> Self {
        let connection = ReconnectingConnection::new(server.clone());
        Self { names, server, connection, acquires: Stage::new(batching), releases: Stage::new(batching) }
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

impl Batching<AcquireRequest> for Client {
    type Answer = Acquire;

    fn stage(&self) -> &Stage<AcquireRequest, Acquire> {
        &self.acquires
    }

    async fn send_one(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        self.acquire_one(request).await
    }

    async fn send_many(&self, requests: Vec<AcquireRequest>) -> Vec<Result<Acquire, Error>> {
        self.acquire_together(&requests).await
    }
}

impl Batching<LockId> for Client {
    type Answer = Release;

    fn stage(&self) -> &Stage<LockId, Release> {
        &self.releases
    }

    async fn send_one(&self, id: &LockId) -> Result<Release, Error> {
        self.release_one(id).await
    }

    async fn send_many(&self, ids: Vec<LockId>) -> Vec<Result<Release, Error>> {
        self.release_together(&ids).await
    }
}
