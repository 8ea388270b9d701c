//! Transactions: what they read, what they write, and when they are tried again.

use std::time::Duration;

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use api::precondition::ConditionType;
use api::transaction_options::{Mode, ReadOnly, ReadWrite};

use super::clocks::{Clocks, Moment, Sent};
use super::connection::{Failure, Kind, Session};
use super::error::{is_about_token, is_conflict};
use super::record::timestamp;
use crate::{Error, ErrorCode};

/// The longest pause before a transaction is tried again, at first and in the end.
const PAUSE: (Duration, Duration) = (Duration::from_millis(8), Duration::from_millis(250));

/// Documents as they were at one moment.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) documents: Vec<api::Document>,
    pub(super) moment: Moment,
}

impl Read {
    pub(super) fn find(&self, name: &str) -> Option<&api::Document> {
        self.documents.iter().find(|document| document.name == name)
    }
}

/// Reads on their own, or in a transaction.
#[derive(Clone, Debug)]
pub(super) enum Consistency {
    Latest,
    In(Vec<u8>),
}

/// A transaction that has begun. If it is dropped before it is committed, it is rolled back in the
/// background: the server keeps others waiting for what an open one has read.
#[derive(Debug)]
pub(super) struct Transaction<'a> {
    session: Session<'a>,
    id: Vec<u8>,
    /// Nobody waits for one that has read nothing.
    has_read: bool,
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        self.start_rollback();
    }
}

impl<'a> Session<'a> {
    /// Begins a transaction that has read nothing yet, so that nobody waits for it.
    pub(super) async fn begin(self) -> Result<Transaction<'a>, Failure> {
        self.begin_with(read_write()).await
    }

    /// Finds out whether the database is there and lets us in, for which the server asks no price.
    pub(super) async fn probe(self) -> Result<(), Failure> {
        let read_only = api::TransactionOptions { mode: Some(Mode::ReadOnly(ReadOnly::default())) };
        self.begin_with(read_only).await.map(drop)
    }

    async fn begin_with(self, options: api::TransactionOptions) -> Result<Transaction<'a>, Failure> {
        let message = api::BeginTransactionRequest { database: self.database().to_owned(), options: Some(options) };
        let answer = self.send(Kind::Read, message, async |mut client, message| {
            client.begin_transaction(message).await.map(tonic::Response::into_inner)
        });
        Ok(Transaction { session: self, id: answer.await?.transaction, has_read: false })
    }

    /// The documents of these names that exist.
    pub(super) async fn get(self, clocks: &Clocks, names: &[&str], when: Consistency) -> Result<Read, Failure> {
        use api::batch_get_documents_request::ConsistencySelector;
        use api::batch_get_documents_response::Result as Found;
        let message = api::BatchGetDocumentsRequest {
            database: self.database().to_owned(),
            documents: names.iter().map(|name| (*name).to_owned()).collect(),
            mask: None,
            consistency_selector: match when {
                Consistency::Latest => None,
                Consistency::In(id) => Some(ConsistencySelector::Transaction(id)),
            },
        };
        let sent = Sent::now(clocks);
        let (documents, read_time) = self
            .send(Kind::Read, message, async |mut client, message| {
                let mut answers = client.batch_get_documents(message).await?.into_inner();
                let (mut documents, mut read_time) = (Vec::new(), None);
                while let Some(answer) = answers.message().await? {
                    read_time = answer.read_time.or(read_time);
                    if let Some(Found::Found(document)) = answer.result {
                        documents.push(document);
                    }
                }
                Ok((documents, read_time))
            })
            .await?;
        let moment = moment(clocks, read_time, sent)?;
        Ok(Read { documents, moment })
    }

    /// The documents that a query finds.
    pub(super) async fn query(
        self,
        clocks: &Clocks,
        parent: &str,
        query: api::StructuredQuery,
        when: Consistency,
    ) -> Result<Read, Failure> {
        use api::run_query_request::{ConsistencySelector, QueryType};
        let message = api::RunQueryRequest {
            parent: parent.to_owned(),
            explain_options: None,
            query_type: Some(QueryType::StructuredQuery(query)),
            consistency_selector: match when {
                Consistency::Latest => None,
                Consistency::In(id) => Some(ConsistencySelector::Transaction(id)),
            },
        };
        let sent = Sent::now(clocks);
        let (documents, read_time) = self
            .send(Kind::Read, message, async |mut client, message| {
                let mut answers = client.run_query(message).await?.into_inner();
                let (mut documents, mut read_time) = (Vec::new(), None);
                while let Some(answer) = answers.message().await? {
                    read_time = answer.read_time.or(read_time);
                    documents.extend(answer.document);
                }
                Ok((documents, read_time))
            })
            .await?;
        let moment = moment(clocks, read_time, sent)?;
        Ok(Read { documents, moment })
    }
}

impl Transaction<'_> {
    /// Ends it, and waits for that: this process may be about to end as well, and others would wait
    /// for a minute.
    pub(super) async fn roll_back(mut self) {
        if let Some(rollback) = self.start_rollback() {
            let _ = timeout_at(self.session.deadline, rollback).await;
        }
    }

    fn start_rollback(&mut self) -> Option<JoinHandle<()>> {
        std::mem::take(&mut self.has_read).then(|| self.session.roll_back(self.id.clone()))
    }

    /// For reads in this transaction.
    pub(super) fn here(&mut self) -> Consistency {
        self.has_read = true;
        Consistency::In(self.id.clone())
    }

    /// Writes all of it, if nothing that was read has changed since then. A commit that fails may
    /// not even have arrived, so the transaction is rolled back all the same.
    pub(super) async fn commit(&mut self, writes: Vec<api::Write>) -> Result<(), Failure> {
        self.session.commit(writes, self.id.clone()).await?;
        self.has_read = false;
        Ok(())
    }
}

impl Session<'_> {
    /// Writes all of it, if the documents are as they were read. That takes no transaction, so
    /// nobody has to wait for one whose owner is gone.
    pub(super) async fn write(self, writes: Vec<api::Write>) -> Result<(), Failure> {
        self.commit(writes, Vec::new()).await
    }

    async fn commit(self, writes: Vec<api::Write>, transaction: Vec<u8>) -> Result<(), Failure> {
        let message = api::CommitRequest { database: self.database().to_owned(), writes, transaction };
        let answer =
            self.send(Kind::Commit, message, async |mut client, message| client.commit(message).await.map(drop));
        answer.await
    }

    /// Makes `attempt` until it succeeds. After a conflict with another transaction it is made
    /// again in a moment, while there is time; after any other failure it is not, but for a token
    /// that the server did not take, once.
    pub(super) async fn retry<T, F>(self, mut attempt: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let (mut longest, mut token_renewed, mut conflict) = (PAUSE.0, false, None);
        loop {
            let failure = match attempt().await {
                Ok(answer) => return Ok(answer),
                // There was no time left for another try: what matters is why it took so many.
                Err(failure) if failure.is_lack_of_time() => conflict.take().unwrap_or(failure),
                Err(failure) => failure,
            };
            if !token_renewed && self.renew_token(&failure) {
                token_renewed = true;
                continue;
            }
            // Those who were in each other's way must not come back together.
            let next = Instant::now() + longest.mul_f64(fastrand::f64());
            longest = (longest * 2).min(PAUSE.1);
            if !failure.is_conflict() || next >= self.deadline {
                return Err(self.explain(failure));
            }
            conflict = Some(failure);
            tokio::time::sleep_until(next).await;
        }
    }
}

impl Failure {
    /// Whether the deadline came before anything could have been written.
    fn is_lack_of_time(&self) -> bool {
        matches!(self, Failure::Late { request: Kind::Read })
    }

    /// Whether the server did not take the token.
    pub(super) fn is_about_token(&self) -> bool {
        matches!(self, Failure::Status { status, .. } if is_about_token(status))
    }

    /// Whether another transaction was in the way.
    pub(super) fn is_conflict(&self) -> bool {
        match self {
            Failure::Status { status, request, .. } => is_conflict(status, *request == Kind::Commit),
            Failure::Late { .. } | Failure::NotSent(_) | Failure::Refused(_) => false,
        }
    }
}

fn read_write() -> api::TransactionOptions {
    api::TransactionOptions { mode: Some(Mode::ReadWrite(ReadWrite::default())) }
}

/// When the server read what it answered.
fn moment(clocks: &Clocks, read_time: Option<prost_types::Timestamp>, sent: Sent) -> Result<Moment, Failure> {
    let strange = || Error::new(ErrorCode::Internal, "an unexpected answer of the server: it has no time");
    let server = read_time.and_then(timestamp).ok_or_else(|| Failure::Refused(strange()))?;
    Ok(clocks.moment(server, sent))
}

/// A write of the whole document, or of some of its fields, if it is as it was read: `before` is
/// what was read, nothing if it did not exist.
pub(super) fn update(document: api::Document, fields: Option<&[&str]>, before: Option<&api::Document>) -> api::Write {
    let mask =
        |fields: &[&str]| api::DocumentMask { field_paths: fields.iter().map(|&name| name.to_owned()).collect() };
    api::Write {
        update_mask: fields.map(mask),
        current_document: Some(unchanged(before)),
        operation: Some(api::write::Operation::Update(document)),
        ..api::Write::default()
    }
}

/// The deletion of a document that is as it was read.
pub(super) fn delete(document: &api::Document) -> api::Write {
    api::Write {
        current_document: Some(unchanged(Some(document))),
        operation: Some(api::write::Operation::Delete(document.name.clone())),
        ..api::Write::default()
    }
}

/// The deletion of a document that has to exist.
pub(super) fn delete_existing(name: &str) -> api::Write {
    api::Write {
        current_document: Some(api::Precondition { condition_type: Some(ConditionType::Exists(true)) }),
        operation: Some(api::write::Operation::Delete(name.to_owned())),
        ..api::Write::default()
    }
}

/// For an acquire this is the second lock on the door, beside its transaction; for all else it is
/// the only one. A document without a time cannot have the one that is asked for.
fn unchanged(before: Option<&api::Document>) -> api::Precondition {
    let condition = match before {
        None => ConditionType::Exists(false),
        Some(document) => ConditionType::UpdateTime(document.update_time.unwrap_or_default()),
    };
    api::Precondition { condition_type: Some(condition) }
}
