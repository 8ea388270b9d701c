//! Heartbeats and releases of many locks at once: questions for up to thirty each, and then one
//! request with a write for each lock, which succeeds or fails by itself.

use std::pin::Pin;

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;
use tonic::{Code, Status};

use super::clocks::Moment;
use super::connection::{Failure, Kind, Session};
use super::error::is_conflict;
use super::owned::{extension, only_live};
use super::transaction::{Consistency, Read, delete};
use super::{Firestore, query};
use crate::backend::{Absence, Extend, Release, all};
use crate::{Error, LockId, Operation, Ttl};

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What has become of one of many locks.
enum Outcome<T> {
    Done(Result<T, Error>),
    /// This would be the answer if its write succeeds.
    Written(T),
    /// It has to be tried by itself: others were in its way, or the token was not taken.
    Alone,
}

impl Firestore {
    pub(super) async fn extend_together(&self, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
        let ids: Vec<LockId> = locks.iter().map(|(id, _)| *id).collect();
        let extend = |index: usize, document: &api::Document, moment: Moment| {
            let (write, expires_at) = extension(document, moment, locks[index].1);
            (write, Extend::Extended { expires_at })
        };
        let outcomes = self.together(Operation::Extend, &ids, extend, Extend::Absent).await;
        let alone = |index: usize| self.extend_lock(&locks[index].0, locks[index].1);
        finish(outcomes, |index| Box::pin(alone(index))).await
    }

    pub(super) async fn release_together(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        let release = |_: usize, document: &api::Document, _: Moment| (delete(document), Release::Released);
        let outcomes = self.together(Operation::Release, ids, release, Release::Absent).await;
        finish(outcomes, |index| Box::pin(self.release_lock(&ids[index]))).await
    }

    async fn together<T>(
        &self,
        operation: Operation,
        ids: &[LockId],
        write: impl Fn(usize, &api::Document, Moment) -> (api::Write, T),
        absent: fn(Absence) -> T,
    ) -> Vec<Outcome<T>> {
        let connection = match self.connection() {
            Ok(connection) => connection,
            Err(error) => return ids.iter().map(|_| Outcome::Done(Err(error.clone()))).collect(),
        };
        let session = connection.session(operation);
        let ask = |ids| -> Boxed<'_, Result<Read, Option<Error>>> { Box::pin(self.ask_for(session, ids)) };
        let answers = all(ids.chunks(query::MOST_IDS).map(ask).collect()).await;
        let (mut outcomes, mut writes) = (Vec::with_capacity(ids.len()), Vec::new());
        for (chunk, answer) in ids.chunks(query::MOST_IDS).zip(answers) {
            for id in chunk {
                outcomes.push(match &answer {
                    Ok(read) => match only_live(&read.documents, id, read.moment.early) {
                        Ok(Ok((document, _))) => {
                            let (write, answer) = write(outcomes.len(), document, read.moment);
                            writes.push(write);
                            Outcome::Written(answer)
                        }
                        Ok(Err(absence)) => Outcome::Done(Ok(absent(absence))),
                        Err(error) => Outcome::Done(Err(error.during(operation))),
                    },
                    Err(Some(error)) => Outcome::Done(Err(error.clone())),
                    Err(None) => Outcome::Alone,
                });
            }
        }
        if !writes.is_empty() {
            let statuses = self.write_each(session, writes).await;
            settle(&mut outcomes, session, statuses);
        }
        outcomes
    }

    /// The documents with these ids. No error means that it is worth another try.
    async fn ask_for(&self, session: Session<'_>, ids: &[LockId]) -> Result<Read, Option<Error>> {
        let asked = query::by_ids(&self.names, ids);
        let read = session.query(&self.clocks, &self.names.root, asked, Consistency::Latest).await;
        read.map_err(|failure| again_or_error(session, failure))
    }

    /// What became of each of the writes.
    async fn write_each(&self, session: Session<'_>, writes: Vec<api::Write>) -> Result<Vec<Status>, Option<Error>> {
        let database = session.database().to_owned();
        let message = api::BatchWriteRequest { database, writes, ..api::BatchWriteRequest::default() };
        let answer = session.send(Kind::Commit, message, async |mut client, message| {
            client.batch_write(message).await.map(tonic::Response::into_inner)
        });
        let status = |status| Status::new(Code::from_i32(status), "");
        match answer.await {
            Ok(answer) => Ok(answer.status.into_iter().map(|said| status(said.code)).collect()),
            Err(failure) => Err(again_or_error(session, failure)),
        }
    }
}

/// No error if the same may succeed when it is asked again.
fn again_or_error(session: Session<'_>, failure: Failure) -> Option<Error> {
    session.renew_token(&failure);
    let again = failure.is_about_token() || failure.is_conflict();
    (!again).then(|| session.explain(failure))
}

/// Makes answers of writes, now that it is known what became of them.
fn settle<T>(outcomes: &mut [Outcome<T>], session: Session<'_>, statuses: Result<Vec<Status>, Option<Error>>) {
    let mut statuses = statuses.map(Vec::into_iter);
    for outcome in outcomes.iter_mut().filter(|outcome| matches!(outcome, Outcome::Written(_))) {
        let Outcome::Written(answer) = std::mem::replace(outcome, Outcome::Alone) else { continue };
        *outcome = match &mut statuses {
            Ok(statuses) => match statuses.next() {
                Some(status) if status.code() == Code::Ok => Outcome::Done(Ok(answer)),
                Some(status) if is_conflict(&status, true) => Outcome::Alone,
                Some(status) => Outcome::Done(Err(session.explain(Failure::Status { status, request: Kind::Commit }))),
                // It was not told, and may have been written or not: whoever asks again finds out.
                None => Outcome::Alone,
            },
            Err(Some(error)) => Outcome::Done(Err(error.clone())),
            Err(None) => Outcome::Alone,
        };
    }
}

/// Tries by itself what could not be done together.
async fn finish<'a, T: Send>(
    outcomes: Vec<Outcome<T>>,
    alone: impl Fn(usize) -> Boxed<'a, Result<T, Error>>,
) -> Vec<Result<T, Error>> {
    let rest: Vec<usize> =
        (0..outcomes.len()).filter(|index| matches!(outcomes[*index], Outcome::Alone | Outcome::Written(_))).collect();
    let mut tried = all(rest.iter().map(|index| alone(*index)).collect()).await.into_iter();
    let done = |outcome| match outcome {
        Outcome::Done(result) => Some(result),
        Outcome::Alone | Outcome::Written(_) => tried.next(),
    };
    outcomes.into_iter().filter_map(done).collect()
}
