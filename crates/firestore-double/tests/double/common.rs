//! What all tests use.

use std::collections::HashMap;
use std::time::Duration;

use firestore_double::{Double, Options};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::batch_get_documents_request::ConsistencySelector;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::batch_get_documents_response::Result as Found;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::firestore_client::FirestoreClient;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::precondition::ConditionType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::write::Operation;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    BatchGetDocumentsRequest, BatchGetDocumentsResponse, BeginTransactionRequest, CommitRequest, CommitResponse,
    Document, Precondition, RollbackRequest, TransactionOptions, Value, Write,
};
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic::{Code, Status};

pub(crate) const DATABASE: &str = "projects/p/databases/(default)";
pub(crate) const ROOT: &str = "projects/p/databases/(default)/documents";

/// Anything that is certain to happen does within this time.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A server and a client of it.
pub(crate) struct World {
    pub(crate) double: Double,
    pub(crate) client: Client,
    _directory: TempDir,
}

pub(crate) async fn start() -> World {
    start_with(Options::default()).await
}

pub(crate) async fn start_optimistic() -> World {
    start_with(Options { optimistic: true, ..Options::default() }).await
}

pub(crate) async fn start_with(options: Options) -> World {
    let directory = TempDir::new().unwrap();
    let double = Double::start(Options { directory: directory.path().to_owned(), ..options }).await.unwrap();
    let client = Client::connect(&format!("http://{}", double.address())).await;
    World { double, client, _directory: directory }
}

impl World {
    pub(crate) async fn control(&self, command: Json) -> Json {
        self.double.control(command).await.unwrap()
    }

    pub(crate) async fn fault(&self, mut fault: Json) {
        fault["command"] = json!("fault");
        self.control(fault).await;
    }

    /// Counts of one kind, such as `reads`.
    pub(crate) async fn count(&self, what: &str) -> u64 {
        self.control(json!({"command": "counts"})).await[what].as_u64().unwrap()
    }
}

#[derive(Clone)]
pub(crate) struct Client(pub(crate) FirestoreClient<Channel>);

impl Client {
    pub(crate) async fn connect(url: &str) -> Self {
        let channel = Channel::from_shared(url.to_owned()).unwrap().connect().await.unwrap();
        Self(FirestoreClient::new(channel))
    }

    pub(crate) async fn begin(&self) -> Vec<u8> {
        let request = BeginTransactionRequest { database: DATABASE.to_owned(), options: None };
        self.0.clone().begin_transaction(request).await.unwrap().into_inner().transaction
    }

    pub(crate) async fn commit(&self, transaction: &[u8], writes: Vec<Write>) -> Result<CommitResponse, Status> {
        let request = CommitRequest { database: DATABASE.to_owned(), writes, transaction: transaction.to_vec() };
        Ok(self.0.clone().commit(request).await?.into_inner())
    }

    pub(crate) async fn write(&self, writes: Vec<Write>) -> CommitResponse {
        self.commit(&[], writes).await.unwrap()
    }

    pub(crate) async fn roll_back(&self, transaction: &[u8]) -> Result<(), Status> {
        let request = RollbackRequest { database: DATABASE.to_owned(), transaction: transaction.to_vec() };
        self.0.clone().rollback(request).await.map(drop)
    }

    pub(crate) async fn batch_get(
        &self,
        ids: &[&str],
        selector: Option<ConsistencySelector>,
    ) -> Result<Vec<BatchGetDocumentsResponse>, Status> {
        let request = BatchGetDocumentsRequest {
            database: DATABASE.to_owned(),
            documents: ids.iter().map(|id| name(id)).collect(),
            mask: None,
            consistency_selector: selector,
        };
        let mut stream = self.0.clone().batch_get_documents(request).await?.into_inner();
        let mut responses = Vec::new();
        while let Some(response) = stream.message().await? {
            responses.push(response);
        }
        Ok(responses)
    }

    /// The document, if there is one, read in a transaction.
    pub(crate) async fn read_in(&self, transaction: &[u8], id: &str) -> Result<Option<Document>, Status> {
        let selector = ConsistencySelector::Transaction(transaction.to_vec());
        let mut responses = self.batch_get(&[id], Some(selector)).await?;
        Ok(found(responses.pop().unwrap()))
    }

    pub(crate) async fn get(&self, id: &str) -> Option<Document> {
        found(self.batch_get(&[id], None).await.unwrap().pop().unwrap())
    }

    /// Reads in a transaction that begins with it.
    pub(crate) async fn begin_reading(&self, id: &str) -> Result<(Vec<u8>, Option<Document>), Status> {
        let selector = ConsistencySelector::NewTransaction(TransactionOptions::default());
        let mut responses = self.batch_get(&[id], Some(selector)).await?;
        let document = found(responses.pop().unwrap());
        Ok((responses.pop().unwrap().transaction, document))
    }
}

fn found(response: BatchGetDocumentsResponse) -> Option<Document> {
    match response.result.unwrap() {
        Found::Found(document) => Some(document),
        Found::Missing(_) => None,
    }
}

/// The name of a document of the collection that most tests use.
pub(crate) fn name(id: &str) -> String {
    format!("{ROOT}/locks/{id}")
}

pub(crate) fn int(number: i64) -> Value {
    Value { value_type: Some(ValueType::IntegerValue(number)) }
}

pub(crate) fn text(text: &str) -> Value {
    Value { value_type: Some(ValueType::StringValue(text.to_owned())) }
}

pub(crate) fn reference(id: &str) -> Value {
    Value { value_type: Some(ValueType::ReferenceValue(name(id))) }
}

pub(crate) fn number_in(document: &Document, field: &str) -> i64 {
    match document.fields[field].value_type {
        Some(ValueType::IntegerValue(number)) => number,
        ref other => panic!("{other:?}"),
    }
}

pub(crate) fn update(id: &str, fields: &[(&str, Value)]) -> Write {
    let fields: HashMap<_, _> = fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let document = Document { name: name(id), fields, ..Document::default() };
    Write { operation: Some(Operation::Update(document)), ..Write::default() }
}

/// Sets the one field that most tests look at.
pub(crate) fn set(id: &str, number: i64) -> Write {
    update(id, &[("n", int(number))])
}

pub(crate) fn delete(id: &str) -> Write {
    Write { operation: Some(Operation::Delete(name(id))), ..Write::default() }
}

pub(crate) fn provided(condition: ConditionType, write: Write) -> Write {
    Write { current_document: Some(Precondition { condition_type: Some(condition) }), ..write }
}

#[track_caller]
pub(crate) fn assert_code<T: std::fmt::Debug>(result: Result<T, Status>, code: Code) {
    assert_eq!(result.unwrap_err().code(), code);
}
