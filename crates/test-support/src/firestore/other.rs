//! The other library, as far as its layout in the database goes: a transaction for each operation,
//! through a client of its own.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;
use leasehold::LockId;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use api::batch_get_documents_response::Result as Found;
use api::precondition::ConditionType;
use api::structured_query::field_filter::Operator;
use api::structured_query::filter::FilterType;
use api::structured_query::{CollectionSelector, FieldFilter, FieldReference, Filter};
use api::transaction_options::{Mode, ReadWrite};
use api::value::ValueType;
use api::write::Operation;
use test_servers::Firestore;

use super::look::{counter_of, lock_of};
use crate::OtherLibrary;

/// How long after its expiry a lock is still taken for held.
const TOLERANCE_MILLIS: i64 = 1000;

/// The longest pause before a transaction that met another is made again.
const LONGEST_PAUSE: Duration = Duration::from_millis(30);

/// A process that uses the other library, on a server that lets everybody in.
#[derive(Debug)]
pub struct Other {
    client: api::firestore_client::FirestoreClient<Channel>,
    database: String,
    root: String,
}

impl Other {
    /// Connects to a server.
    pub async fn connect(server: &Firestore) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
        Self {
            client: api::firestore_client::FirestoreClient::new(endpoint.connect().await.unwrap()),
            database: server.root().strip_suffix("/documents").unwrap().to_owned(),
            root: server.root(),
        }
    }

    /// Takes the lock of `key` for some milliseconds and returns its fence, unless it is held.
    pub async fn acquire(&mut self, key: &str, id: &LockId, ttl: u64) -> Option<u64> {
        let (lock, counter) = [lock_of(key), counter_of(key)].map(|path| format!("{}/{path}", self.root)).into();
        loop {
            match self.try_acquire(&lock, &counter, key, id, ttl).await {
                Ok(answer) => return answer,
                Err(status) => pause_after(&status).await,
            }
        }
    }

    async fn try_acquire(
        &mut self,
        lock: &str,
        counter: &str,
        key: &str,
        id: &LockId,
        ttl: u64,
    ) -> Result<Option<u64>, Status> {
        let transaction = self.begin().await?;
        let mut documents = Vec::new();
        for name in [lock, counter] {
            documents.push(self.get(name, &transaction).await?);
        }
        let now = now();
        let expiry = documents[0].as_ref().map(|document| integer(document, "expiresAtMs"));
        if expiry.is_some_and(|expiry| expiry > now - TOLERANCE_MILLIS) {
            self.roll_back(transaction).await;
            return Ok(None);
        }
        let last = documents[1].as_ref().map_or(0, |document| text(document, "fence").parse().unwrap());
        let fence = format!("{:015}", last + 1);
        let record = document(
            lock,
            [
                ("lockId", string(id.expose())),
                ("expiresAtMs", number(now + i64::try_from(ttl).unwrap())),
                ("acquiredAtMs", number(now)),
                ("key", string(key)),
                ("fence", string(&fence)),
            ],
        );
        let count = document(counter, [("fence", string(&fence)), ("keyDebug", string(key))]);
        self.commit(transaction, vec![set(record, None), set(count, None)]).await?;
        Ok(Some(last + 1))
    }

    /// Changes the lock with this id in the way that `change` says. Returns whether there is such a
    /// lock.
    async fn change(&mut self, id: &LockId, change: impl Fn(String) -> api::Write) -> bool {
        loop {
            match self.try_change(id, &change).await {
                Ok(answer) => return answer,
                Err(status) => pause_after(&status).await,
            }
        }
    }

    async fn try_change(&mut self, id: &LockId, change: impl Fn(String) -> api::Write) -> Result<bool, Status> {
        let transaction = self.begin().await?;
        let mut found = self.find(id, &transaction).await?;
        let Some(document) = found.pop() else {
            self.roll_back(transaction).await;
            return Ok(false);
        };
        assert!(found.is_empty(), "more than one lock has the same id");
        self.commit(transaction, vec![change(document.name)]).await?;
        Ok(true)
    }

    async fn begin(&mut self) -> Result<Vec<u8>, Status> {
        let options = api::TransactionOptions { mode: Some(Mode::ReadWrite(ReadWrite::default())) };
        let request = api::BeginTransactionRequest { database: self.database.clone(), options: Some(options) };
        Ok(self.client.begin_transaction(request).await?.into_inner().transaction)
    }

    async fn get(&mut self, name: &str, transaction: &[u8]) -> Result<Option<api::Document>, Status> {
        use api::batch_get_documents_request::ConsistencySelector;
        let request = api::BatchGetDocumentsRequest {
            database: self.database.clone(),
            documents: vec![name.to_owned()],
            consistency_selector: Some(ConsistencySelector::Transaction(transaction.to_vec())),
            ..api::BatchGetDocumentsRequest::default()
        };
        let mut answers = self.client.batch_get_documents(request).await?.into_inner();
        let mut document = None;
        while let Some(answer) = answers.message().await? {
            if let Some(Found::Found(found)) = answer.result {
                document = Some(found);
            }
        }
        Ok(document)
    }

    async fn find(&mut self, id: &LockId, transaction: &[u8]) -> Result<Vec<api::Document>, Status> {
        use api::run_query_request::{ConsistencySelector, QueryType};
        let filter = FieldFilter {
            field: Some(FieldReference { field_path: "lockId".to_owned() }),
            op: Operator::Equal.into(),
            value: Some(string(id.expose())),
        };
        let query = api::StructuredQuery {
            from: vec![CollectionSelector { collection_id: "locks".to_owned(), all_descendants: false }],
            r#where: Some(Filter { filter_type: Some(FilterType::FieldFilter(filter)) }),
            ..api::StructuredQuery::default()
        };
        let request = api::RunQueryRequest {
            parent: self.root.clone(),
            query_type: Some(QueryType::StructuredQuery(query)),
            consistency_selector: Some(ConsistencySelector::Transaction(transaction.to_vec())),
            ..api::RunQueryRequest::default()
        };
        let mut answers = self.client.run_query(request).await?.into_inner();
        let mut found = Vec::new();
        while let Some(answer) = answers.message().await? {
            found.extend(answer.document);
        }
        Ok(found)
    }

    async fn commit(&mut self, transaction: Vec<u8>, writes: Vec<api::Write>) -> Result<(), Status> {
        let request = api::CommitRequest { database: self.database.clone(), writes, transaction };
        self.client.commit(request).await.map(drop)
    }

    async fn roll_back(&mut self, transaction: Vec<u8>) {
        let request = api::RollbackRequest { database: self.database.clone(), transaction };
        self.client.rollback(request).await.unwrap();
    }
}

#[async_trait]
impl OtherLibrary for Other {
    async fn acquire(&mut self, key: &str, id: &LockId, ttl: u64) -> Option<u64> {
        Self::acquire(self, key, id, ttl).await
    }

    async fn extend(&mut self, id: &LockId, ttl: u64) -> bool {
        let expiry = now() + i64::try_from(ttl).unwrap();
        let field = "expiresAtMs";
        self.change(id, |name| set(document(&name, [(field, number(expiry))]), Some(field))).await
    }

    async fn release(&mut self, id: &LockId) -> bool {
        let delete = |name| api::Write { operation: Some(Operation::Delete(name)), ..api::Write::default() };
        self.change(id, delete).await
    }
}

/// Another transaction was in the way, which is no more than a reason to try again.
async fn pause_after(status: &Status) {
    assert_eq!(status.code(), Code::Aborted, "{status:?}");
    tokio::time::sleep(LONGEST_PAUSE.mul_f64(fastrand::f64())).await;
}

/// By the clock of this host.
fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn string(value: &str) -> api::Value {
    api::Value { value_type: Some(ValueType::StringValue(value.to_owned())) }
}

fn number(value: i64) -> api::Value {
    api::Value { value_type: Some(ValueType::IntegerValue(value)) }
}

fn text<'a>(document: &'a api::Document, field: &str) -> &'a str {
    match &document.fields[field].value_type {
        Some(ValueType::StringValue(value)) => value,
        other => panic!("{field} is {other:?}"),
    }
}

fn integer(document: &api::Document, field: &str) -> i64 {
    match &document.fields[field].value_type {
        Some(ValueType::IntegerValue(value)) => *value,
        other => panic!("{field} is {other:?}"),
    }
}

fn document<const N: usize>(name: &str, fields: [(&str, api::Value); N]) -> api::Document {
    let fields = fields.map(|(name, value)| (name.to_owned(), value)).into();
    api::Document { name: name.to_owned(), fields, ..api::Document::default() }
}

/// Writes a whole document, or one field of one that exists.
fn set(document: api::Document, field: Option<&str>) -> api::Write {
    let exists = api::Precondition { condition_type: Some(ConditionType::Exists(true)) };
    api::Write {
        update_mask: field.map(|field| api::DocumentMask { field_paths: vec![field.to_owned()] }),
        current_document: field.map(|_| exists),
        operation: Some(Operation::Update(document)),
        ..api::Write::default()
    }
}
