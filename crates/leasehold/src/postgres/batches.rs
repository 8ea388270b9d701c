use std::sync::Arc;
use std::time::Duration;

use super::operations::Operations;
use crate::backend::{Acquire, AcquireRequest, Release};
use crate::remote::stage::{self, Batching, Pace, Stage};
use crate::{Error, LockId};

/// Two alone at a time: each is a commit.
const PACE: Pace = Pace { alone: 2, service: Duration::from_micros(500) };

/// What comes together on one runtime, and is sent in one statement: a commit costs more than what
/// is committed.
///
/// Such a statement waits for nobody. What it leaves undone for that reason is done by whoever
/// asked for it, alone, so that nobody else waits for the answer.
pub(super) struct Batches {
    operations: Arc<Operations>,
    acquires: Stage<AcquireRequest, Option<Acquire>>,
    releases: Stage<LockId, Option<Release>>,
}

impl Batches {
    /// Those of the runtime that runs the caller.
    pub(super) fn new(operations: &Arc<Operations>) -> Self {
        Self { operations: operations.clone(), acquires: Stage::new(true, PACE), releases: Stage::new(true, PACE) }
    }

    pub(super) async fn acquire(self: Arc<Self>, request: &AcquireRequest) -> Result<Acquire, Error> {
        match stage::send(&self, request).await? {
            Some(answer) => Ok(answer),
            None => self.operations.acquire_one(request).await,
        }
    }

    pub(super) async fn release(self: Arc<Self>, id: &LockId) -> Result<Release, Error> {
        match stage::send(&self, id).await? {
            Some(answer) => Ok(answer),
            None => self.operations.release_one(id).await,
        }
    }
}

impl Batching<AcquireRequest> for Batches {
    type Answer = Option<Acquire>;

    fn stage(&self) -> &Stage<AcquireRequest, Option<Acquire>> {
        &self.acquires
    }

    async fn send_one(&self, request: &AcquireRequest) -> Result<Option<Acquire>, Error> {
        self.operations.acquire_one(request).await.map(Some)
    }

    async fn send_many(&self, requests: Vec<AcquireRequest>) -> Vec<Result<Option<Acquire>, Error>> {
        let decided = self.operations.acquire_without_waiting(&requests).await;
        decided.into_iter().map(Option::transpose).collect()
    }
}

impl Batching<LockId> for Batches {
    type Answer = Option<Release>;

    fn stage(&self) -> &Stage<LockId, Option<Release>> {
        &self.releases
    }

    async fn send_one(&self, id: &LockId) -> Result<Option<Release>, Error> {
        self.operations.release_one(id).await.map(Some)
    }

    async fn send_many(&self, ids: Vec<LockId>) -> Vec<Result<Option<Release>, Error>> {
        let done = self.operations.release_without_waiting(&ids).await;
        done.into_iter().map(Option::transpose).collect()
    }
}
