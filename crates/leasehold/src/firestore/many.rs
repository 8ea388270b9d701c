//! Heartbeats and releases of many locks at once: a question for up to thirty of them, and then one
//! request with a write for each lock, which succeeds or fails by itself. The next thirty do not
//! wait for that.

use std::pin::Pin;

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;
use tonic::{Code, Status};

use super::clocks::Moment;
use super::connection::{Failure, Kind, Session};
use super::error::is_conflict;
use super::owned::{extension, only_live};
use super::tokens::Generation;
use super::transaction::{Consistency, delete};
use super::{Firestore, query};
use crate::backend::{Absence, Extend, Release, all};
use crate::{Error, ErrorCode, LockId, Operation, Ttl};

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What has become of one of many locks.
enum Outcome<T> {
    Done(Result<T, Error>),
    /// This is the answer if its write succeeds.
    Written(T),
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
        let extend = |index: usize, document: &api::Document, moment: Moment| {
            let (write, expires_at) = extension(document, moment, locks[index].1);
            (write, Extend::Extended { expires_at })
        };
        let outcomes = self.together(session, &ids, extend, Extend::Absent).await;
        finish(outcomes, |index| Box::pin(self.extend_in(session, &locks[index].0, locks[index].1))).await
    }

    async fn release_chunk(&self, session: Session<'_>, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        let release = |_: usize, document: &api::Document, _: Moment| (delete(document), Release::Released);
        let outcomes = self.together(session, ids, release, Release::Absent).await;
        finish(outcomes, |index| Box::pin(self.release_in(session, &ids[index]))).await
    }

    /// Asks for locks and writes what `write` says of those that are still theirs.
    async fn together<T>(
        &self,
        session: Session<'_>,
        ids: &[LockId],
        write: impl Fn(usize, &api::Document, Moment) -> (api::Write, T),
        absent: fn(Absence) -> T,
    ) -> Vec<Outcome<T>> {
        let asked = query::by_ids(&self.names, ids);
        let read = match session.query(&self.clocks, &self.names.root, asked, Consistency::Latest).await {
            Ok(read) => read,
            Err(failure) => {
                let error = error_unless_again(session, failure);
                return ids.iter().map(|_| done_or_alone(error.clone())).collect();
            }
        };
        let (mut outcomes, mut writes) = (Vec::with_capacity(ids.len()), Vec::new());
        for (index, id) in ids.iter().enumerate() {
            outcomes.push(match only_live(&read.documents, id, read.moment.early) {
                Ok(Ok((document, _))) => {
                    let (write, answer) = write(index, document, read.moment);
                    writes.push(write);
                    Outcome::Written(answer)
                }
                Ok(Err(absence)) => Outcome::Done(Ok(absent(absence))),
                Err(error) => Outcome::Done(Err(session.explain(Failure::Refused(error)))),
            });
        }
        if !writes.is_empty() {
            let statuses = session.write_each(writes).await;
            settle(&mut outcomes, session, statuses);
        }
        outcomes
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

/// Makes answers of writes, now that it is known what became of them.
fn settle<T>(outcomes: &mut [Outcome<T>], session: Session<'_>, statuses: Result<Vec<Status>, Option<Error>>) {
    let mut statuses = statuses.map(Vec::into_iter);
    for outcome in outcomes {
        let Outcome::Written(answer) = std::mem::replace(outcome, Outcome::Alone) else { continue };
        *outcome = match &mut statuses {
            Ok(statuses) => match statuses.next() {
                Some(status) if status.code() == Code::Ok => Outcome::Done(Ok(answer)),
                Some(status) if is_conflict(&status, true) => Outcome::Alone,
                Some(status) => {
                    let token = Generation::default();
                    let failure = Failure::Status { status, request: Kind::Commit, token };
                    Outcome::Done(Err(session.explain(failure)))
                }
                None => Outcome::Done(Err(session.explain(Failure::Refused(untold())))),
            },
            Err(error) => done_or_alone(error.clone()),
        };
    }
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
        Outcome::Alone | Outcome::Written(_) => tried.next(),
    };
    outcomes.into_iter().filter_map(result).collect()
}

fn untold() -> Error {
    Error::new(ErrorCode::Internal, "an unexpected answer of the server: it does not tell of every write")
        .with_outcome_unknown()
}
