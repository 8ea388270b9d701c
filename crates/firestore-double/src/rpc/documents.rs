use googleapis_tonic_google_firestore_v1::google::firestore::v1::batch_get_documents_request::ConsistencySelector;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::batch_get_documents_response::Result as Found;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::get_document_request::ConsistencySelector as GetSelector;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    BatchGetDocumentsRequest, BatchGetDocumentsResponse, Document, DocumentMask, GetDocumentRequest,
};
use tonic::Status;

use super::{Rpc, consistency, need, no_past, transaction_or_latest};
use crate::access::Need;
use crate::clock::timestamp;
use crate::data::field_path::FieldPath;
use crate::data::query::project;
use crate::engine::Lookup;
use crate::name::Database;
use crate::server::Server;

impl Rpc for BatchGetDocumentsRequest {
    const NAME: &'static str = "BatchGetDocuments";

    type Response = BatchGetDocumentsResponse;

    fn database(&self) -> Result<Database, Status> {
        Database::of(&self.database)
    }

    fn need(&self) -> Need {
        need!(&self.consistency_selector, ConsistencySelector)
    }

    async fn run(self, server: &Server) -> Result<Vec<BatchGetDocumentsResponse>, Status> {
        let database = self.database()?;
        let mut names = self.documents;
        names.iter().try_for_each(|name| database.check_document(name))?;
        // A document that is asked for twice is answered once.
        names.sort();
        names.dedup();
        let mask = Mask::parse(self.mask)?;
        let consistency = consistency!(self.consistency_selector, ConsistencySelector)?;
        let reads = names.len();
        let answer = server.engine.read(consistency, Lookup::Documents(names)).await?;
        server.engine.state().counts.add_reads(reads);

        let mut responses = Vec::new();
        if let Some(transaction) = answer.transaction {
            responses.push(BatchGetDocumentsResponse { transaction, read_time: None, result: None });
        }
        let read_time = Some(timestamp(answer.time));
        responses.extend(answer.documents.into_iter().map(|(name, document)| {
            let result = document.map_or(Found::Missing(name), |document| Found::Found(mask.apply(&document)));
            BatchGetDocumentsResponse { transaction: Vec::new(), read_time, result: Some(result) }
        }));
        Ok(responses)
    }
}

impl Rpc for GetDocumentRequest {
    const NAME: &'static str = "GetDocument";

    type Response = Document;

    fn database(&self) -> Result<Database, Status> {
        Database::of(&self.name)
    }

    fn need(&self) -> Need {
        Need::Read
    }

    async fn run(self, server: &Server) -> Result<Vec<Document>, Status> {
        self.database()?.check_document(&self.name)?;
        let mask = Mask::parse(self.mask)?;
        let transaction = match self.consistency_selector {
            None => None,
            Some(GetSelector::Transaction(id)) => Some(id),
            Some(GetSelector::ReadTime(_)) => return Err(no_past()),
        };
        let lookup = Lookup::Documents(vec![self.name]);
        let mut answer = server.engine.read(transaction_or_latest(transaction), lookup).await?;
        server.engine.state().counts.add_reads(1);
        match answer.documents.pop() {
            Some((_, Some(document))) => Ok(vec![mask.apply(&document)]),
            Some((name, None)) => Err(Status::not_found(format!("Document \"{name}\" not found."))),
            None => Err(Status::internal("no document was looked up")),
        }
    }
}

/// The fields that are asked for, if not all.
struct Mask(Option<Vec<FieldPath>>);

impl Mask {
    fn parse(mask: Option<DocumentMask>) -> Result<Self, Status> {
        let paths = mask.map(|mask| mask.field_paths.iter().map(|path| FieldPath::parse(path)).collect());
        Ok(Self(paths.transpose()?))
    }

    fn apply(&self, document: &Document) -> Document {
        match &self.0 {
            None => document.clone(),
            Some(fields) => project(document, fields),
        }
    }
}
