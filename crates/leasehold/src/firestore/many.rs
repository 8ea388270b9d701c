//! Heartbeats and releases of many locks at once: a question for up to thirty of them, and then one
//! request with a write for each key, which succeeds or fails by itself. The next thirty do not
//! wait for that.

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;
use tonic::{Code, Status};

use super::connection::{Boxed, Failure, Kind, Session};
use super::error::is_conflict;
use super::key_document::KeyDocument;
use super::owned::{Owned, extend, owned, readable, release};
use super::tokens::Generation;
use super::transaction::Consistency;
use super::{Firestore, query};
use crate::backend::{Extend, Release, all};
use crate::{Error, ErrorCode, LockId, Operation, Ttl};

/// What has become of one of many locks.
enum Outcome<T> {
    Done(Result<T, Error>),
    /// This is the answer if what was done to one of the keys could be written.
    Written {
        answer: T,
        key: usize,
    },
    /// It has to be tried by itself: others were in its way, or the token was not taken.
    Alone,
}

impl Firestore {
    pub(super) async fn extend_together(&self, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
        let connection = match self.connection() {
            Ok(connection) => connection,
            Err(error) => return vec![Err(error); locks.len()],
        };
        let session = connection.session(Operation::Extend);
        let extend = |chunk| -> Boxed<'_, _> { Box::pin(self.extend_chunk(session, chunk)) };
        all(locks.chunks(query::MOST_IDS).map(extend).collect()).await.concat()
    }

    pub(super) async fn release_together(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        let connection = match self.connection() {
            Ok(connection) => connection,
            Err(error) => return vec![Err(error); ids.len()],
        };
        let session = connection.session(Operation::Release);
        let release = |chunk| -> Boxed<'_, _> { Box::pin(self.release_chunk(session, chunk)) };
        all(ids.chunks(query::MOST_IDS).map(release).collect()).await.concat()
    }

    async fn extend_chunk(&self, session: Session<'_>, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
        let ids: Vec<LockId> = locks.iter().map(|(id, _)| *id).collect();
        let act = |keys: &mut [KeyDocument], owned, index: usize| extend(keys, owned, &ids[index], locks[index].1);
        let outcomes = self.together(session, &ids, act).await;
        finish(outcomes, |index| Box::pin(self.extend_in(session, &ids[index], locks[index].1))).await
    }

    async fn release_chunk(&self, session: Session<'_>, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        let act = |keys: &mut [KeyDocument], owned, index: usize| release(keys, owned, &ids[index]);
        let outcomes = self.together(session, ids, act).await;
        finish(outcomes, |index| Box::pin(self.release_in(session, &ids[index]))).await
    }

    /// Asks for locks, has `act` change those that are still theirs, and writes that. Locks of one
    /// key are one document, and one write.
    async fn together<T>(
        &self,
        session: Session<'_>,
        ids: &[LockId],
        act: impl Fn(&mut [KeyDocument], Owned, usize) -> T,
    ) -> Vec<Outcome<T>> {
        let mut keys = match self.find_by_ids(session, ids).await {
            Ok(keys) => keys,
            Err(failure) => {
                let error = error_unless_again(session, failure);
                return ids.iter().map(|_| done_or_alone(error.clone())).collect();
            }
        };
        let mut outcomes = Vec::with_capacity(ids.len());
        for (index, id) in ids.iter().enumerate() {
            outcomes.push(match owned(&keys, id) {
                Ok(owned) => {
                    let answer = act(&mut keys, owned, index);
                    match owned {
                        Owned::Holds(key) | Owned::Waits(key) => Outcome::Written { answer, key },
                        Owned::Not(_) => Outcome::Done(Ok(answer)),
                    }
                }
                Err(error) => Outcome::Done(Err(session.explain(Failure::Refused(error)))),
            });
        }
        let (written, writes): (Vec<_>, Vec<_>) =
            keys.iter().enumerate().filter_map(|(key, document)| Some((key, document.write()?))).unzip();
        let statuses = if writes.is_empty() { Ok(Vec::new()) } else { session.write_each(writes).await };
        settle(outcomes, session, &written, &statuses)
    }

    /// The documents in which these ids are, or were. Nearly all of them are exclusive locks, so
    /// that of many at once the others are asked for only if they were not found there.
    async fn find_by_ids(&self, session: Session<'_>, ids: &[LockId]) -> Result<Vec<KeyDocument>, Failure> {
        let ask = |query| session.query(&self.clocks, &self.names.root, query, Consistency::Latest);
        if ids.len() <= query::MOST_IDS_OF_EITHER {
            return Ok(readable(&ask(query::by_either(&self.names, ids)).await?));
        }
        let mut keys = readable(&ask(query::by_ids_alone(&self.names, ids)).await?);
        let is_found = |id: &LockId| keys.iter().any(|key| key.is_held_by(id));
        let missing: Vec<LockId> = ids.iter().filter(|id| !is_found(id)).copied().collect();
        if !missing.is_empty() {
            let others = readable(&ask(query::by_ids_among_others(&self.names, &missing)).await?);
            // What was read later is closer to the truth.
            keys.retain(|key| !others.iter().any(|other| other.name() == key.name()));
            keys.extend(others);
        }
        Ok(keys)
    }
}

impl Session<'_> {
    /// What became of each of the writes, or why that is not known; no error if all of them may be
    /// tried again.
    async fn write_each(self, writes: Vec<api::Write>) -> Result<Vec<Status>, Option<Error>> {
        let database = self.database().to_owned();
        let message = api::BatchWriteRequest { database, writes, ..api::BatchWriteRequest::default() };
        let answer = self.send(Kind::Commit, message, async |mut client, message| {
            client.batch_write(message).await.map(tonic::Response::into_inner)
        });
        match answer.await {
            Ok(answer) => {
                Ok(answer.status.into_iter().map(|said| Status::new(Code::from_i32(said.code), said.message)).collect())
            }
            Err(failure) => Err(error_unless_again(self, failure)),
        }
    }
}

/// No error if the same may succeed when it is asked again.
fn error_unless_again(session: Session<'_>, failure: Failure) -> Option<Error> {
    let again = session.renew_token(&failure) || failure.is_conflict();
    (!again).then(|| session.explain(failure))
}

fn done_or_alone<T>(error: Option<Error>) -> Outcome<T> {
    error.map_or(Outcome::Alone, |error| Outcome::Done(Err(error)))
}

/// Makes answers of writes, now that it is known what became of them. `written` are the keys that
/// they were about.
fn settle<T>(
    outcomes: Vec<Outcome<T>>,
    session: Session<'_>,
    written: &[usize],
    statuses: &Result<Vec<Status>, Option<Error>>,
) -> Vec<Outcome<T>> {
    let settled = |outcome| {
        let Outcome::Written { answer, key } = outcome else { return outcome };
        // Nothing was to be changed.
        let Some(index) = written.iter().position(|written| *written == key) else { return Outcome::Done(Ok(answer)) };
        match statuses {
            Ok(statuses) => match statuses.get(index) {
                Some(status) if status.code() == Code::Ok => Outcome::Done(Ok(answer)),
                Some(status) if is_conflict(status, true) => Outcome::Alone,
                Some(status) => {
                    let (status, token) = (status.clone(), Generation::default());
                    let failure = Failure::Status { status, request: Kind::Commit, token };
                    Outcome::Done(Err(session.explain(failure)))
                }
                None => Outcome::Done(Err(session.explain(Failure::Refused(untold())))),
            },
            Err(error) => done_or_alone(error.clone()),
        }
    };
    outcomes.into_iter().map(settled).collect()
}

/// Tries by itself what could not be done together.
async fn finish<'a, T>(
    outcomes: Vec<Outcome<T>>,
    alone: impl Fn(usize) -> Boxed<'a, Result<T, Error>>,
) -> Vec<Result<T, Error>> {
    let is_done = |outcome: &Outcome<T>| matches!(outcome, Outcome::Done(_));
    let rest = outcomes.iter().enumerate().filter(|(_, outcome)| !is_done(outcome)).map(|(index, _)| alone(index));
    let mut tried = all(rest.collect()).await.into_iter();
    let result = |outcome| match outcome {
        Outcome::Done(result) => Some(result),
        Outcome::Alone | Outcome::Written { .. } => tried.next(),
    };
    outcomes.into_iter().filter_map(result).collect()
}

fn untold() -> Error {
    Error::new(ErrorCode::Internal, "an unexpected answer of the server: it does not tell of every write")
        .with_outcome_unknown()
}
