use tokio::sync::oneshot;

use super::error::leaves_transaction_intact;
use super::operations::Operations;
use crate::backend::{Acquire, AcquireAll, AcquireRequest, Extend, Inspected, ListPage, Record, Release};
use crate::{Check, Error, Fence, Key, ListRequest, LockId, Operation, Timestamp, Ttl};

/// An operation on its way to the thread that owns the database.
pub(super) struct Job {
    pub(super) op: Op,
    /// `None` if nobody waits for the answer.
    pub(super) reply: Option<oneshot::Sender<Result<Answer, Error>>>,
}

pub(super) enum Op {
    Acquire(AcquireRequest),
    AcquireAll(Vec<AcquireRequest>),
    Release(Vec<LockId>),
    Extend(Vec<(LockId, Ttl)>),
    ByKey(Key),
    ById(LockId),
    Inspect(Key),
    List(ListRequest),
    ForceRelease(Key, Option<Fence>),
    Now,
    /// Removes the row of a key, which only an examination used.
    Forget(Vec<Key>),
    Examine,
    Listen {
        topics: Vec<String>,
        address: String,
    },
    Unlisten {
        topics: Vec<String>,
        address: String,
    },
}

pub(super) enum Answer {
    Acquire(Acquire),
    AcquireAll(AcquireAll),
    /// One for each lock, in their order.
    Release(Vec<Result<Release, Error>>),
    /// One for each lock, in their order.
    Extend(Vec<Result<Extend, Error>>),
    Found(Option<Record>),
    Inspected(Inspected),
    List(ListPage),
    ForceRelease(Vec<Record>),
    Now(Timestamp),
    Examined(Vec<Check>),
    Done,
}

impl Job {
    pub(super) fn answer(self, answer: Result<Answer, Error>) {
        if let Some(reply) = self.reply {
            let operation = self.op.operation();
            // The caller may have stopped waiting.
            let _ = reply.send(answer.map_err(|error| error.during(operation)));
        }
    }
}

impl Op {
    fn operation(&self) -> Operation {
        match self {
            Op::Acquire(_) | Op::AcquireAll(_) => Operation::Acquire,
            Op::Release(_) => Operation::Release,
            Op::Extend(_) => Operation::Extend,
            Op::ByKey(_) | Op::ById(_) | Op::Inspect(_) | Op::Examine | Op::Now | Op::Forget(_) => Operation::Lookup,
            Op::List(_) => Operation::List,
            Op::ForceRelease(..) => Operation::ForceRelease,
            Op::Listen { .. } | Op::Unlisten { .. } => Operation::Subscribe,
        }
    }

    /// How many locks it is about, for those who must not do too many at a time.
    pub(super) fn locks(&self) -> usize {
        match self {
            Op::AcquireAll(requests) => requests.len(),
            Op::Release(ids) => ids.len(),
            Op::Extend(locks) => locks.len(),
            _ => 1,
        }
    }

    pub(super) fn only_reads(&self) -> bool {
        matches!(self, Op::ByKey(_) | Op::ById(_) | Op::Inspect(_) | Op::List(_) | Op::Examine | Op::Now)
    }

    pub(super) fn run(&self, operations: &mut Operations<'_>) -> Result<Answer, Error> {
        Ok(match self {
            Op::Acquire(request) => Answer::Acquire(operations.acquire(request)?),
            Op::AcquireAll(requests) => Answer::AcquireAll(operations.acquire_all(requests)?),
            Op::Release(ids) => Answer::Release(self.each(ids, |id| operations.release(id))?),
            Op::Extend(locks) => Answer::Extend(self.each(locks, |(id, ttl)| operations.extend(id, *ttl))?),
            Op::ByKey(key) => Answer::Found(operations.by_key(key)?),
            Op::ById(id) => Answer::Found(operations.by_id(id)?),
            Op::Inspect(key) => Answer::Inspected(operations.inspect(key)?),
            Op::List(request) => Answer::List(operations.list(request)?),
            Op::ForceRelease(key, only) => Answer::ForceRelease(operations.force_release(key, *only)?),
            Op::Now => Answer::Now(operations.now),
            Op::Forget(keys) => {
                keys.iter().try_for_each(|key| operations.forget(key))?;
                Answer::Done
            }
            Op::Examine => Answer::Examined(operations.database.examine()?),
            Op::Listen { topics, address } => {
                operations.listen(topics, address)?;
                Answer::Done
            }
            Op::Unlisten { topics, address } => {
                operations.unlisten(topics, address)?;
                Answer::Done
            }
        })
    }

    /// Decides about each lock by itself. Fails as a whole only if the transaction is spoilt.
    fn each<L, T>(
        &self,
        locks: &[L],
        mut decide: impl FnMut(&L) -> Result<T, Error>,
    ) -> Result<Vec<Result<T, Error>>, Error> {
        let decide = |lock| match decide(lock) {
            Err(error) if !leaves_transaction_intact(&error) => Err(error),
            answer => Ok(answer.map_err(|error| error.during(self.operation()))),
        };
        locks.iter().map(decide).collect()
    }
}
