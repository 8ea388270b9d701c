use googleapis_tonic_google_firestore_v1::google::firestore::v1::run_query_request::{ConsistencySelector, QueryType};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{RunQueryRequest, RunQueryResponse};
use tonic::Status;

use super::{Rpc, consistency, need};
use crate::access::Need;
use crate::clock::timestamp;
use crate::data::query::Query;
use crate::engine::Lookup;
use crate::name::Database;
use crate::server::Server;

impl Rpc for RunQueryRequest {
    const NAME: &'static str = "RunQuery";

    type Response = RunQueryResponse;

    fn database(&self) -> Result<Database, Status> {
        Database::of(&self.parent)
    }

    fn need(&self) -> Need {
        need!(&self.consistency_selector, ConsistencySelector)
    }

    async fn run(self, server: &Server) -> Result<Vec<RunQueryResponse>, Status> {
        self.database()?.check_parent(&self.parent)?;
        let Some(QueryType::StructuredQuery(query)) = self.query_type else {
            return Err(Status::invalid_argument("There is no query."));
        };
        let query = Box::new(Query::parse(&self.parent, query)?);
        let consistency = consistency!(self.consistency_selector, ConsistencySelector)?;
        let answer = server.engine.read(consistency, Lookup::Query(query.clone())).await?;
        server.engine.state().counts.add_reads((answer.documents.len() + answer.skipped).max(1));

        let mut responses = Vec::new();
        if let Some(transaction) = answer.transaction {
            responses.push(RunQueryResponse { transaction, ..RunQueryResponse::default() });
        }
        let read_time = Some(timestamp(answer.time));
        for document in answer.documents.into_iter().filter_map(|(_, document)| document) {
            let document = Some(query.project(&document));
            responses.push(RunQueryResponse { document, read_time, ..RunQueryResponse::default() });
        }
        // The last word is the time, and it is all there is to say of no documents.
        let skipped_results = i32::try_from(answer.skipped).unwrap_or(i32::MAX);
        responses.push(RunQueryResponse { read_time, skipped_results, ..RunQueryResponse::default() });
        Ok(responses)
    }
}
