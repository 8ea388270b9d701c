use googleapis_tonic_google_firestore_v1::google::firestore::v1::run_aggregation_query_request::{
    ConsistencySelector, QueryType,
};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_aggregation_query::QueryType as Inner;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_aggregation_query::aggregation::Operator;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    AggregationResult, RunAggregationQueryRequest, RunAggregationQueryResponse, Value,
};
use tonic::Status;

use super::{Rpc, consistency, need};
use crate::access::Need;
use crate::clock::timestamp;
use crate::data::query::Query;
use crate::engine::Lookup;
use crate::failure::unknown;
use crate::name::Database;
use crate::server::Server;

/// The entries of an index that cost as much as one document.
const ENTRIES_PER_READ: usize = 1000;

impl Rpc for RunAggregationQueryRequest {
    const NAME: &'static str = "RunAggregationQuery";

    type Response = RunAggregationQueryResponse;

    fn database(&self) -> Result<Database, Status> {
        Database::of(&self.parent)
    }

    fn need(&self) -> Need {
        need!(&self.consistency_selector, ConsistencySelector)
    }

    async fn run(self, server: &Server) -> Result<Vec<RunAggregationQueryResponse>, Status> {
        self.database()?.check_parent(&self.parent)?;
        let Some(QueryType::StructuredAggregationQuery(query)) = self.query_type else {
            return Err(Status::invalid_argument("There is no query."));
        };
        let Some(Inner::StructuredQuery(inner)) = query.query_type else {
            return Err(Status::invalid_argument("There is no query to aggregate."));
        };
        let inner = Box::new(Query::parse(&self.parent, inner)?);
        let mut limits = Vec::new();
        for aggregation in query.aggregations {
            let Some(Operator::Count(count)) = aggregation.operator else {
                return Err(unknown("aggregations other than a count"));
            };
            limits.push((aggregation.alias, count.up_to.unwrap_or(i64::MAX)));
        }
        let consistency = consistency!(self.consistency_selector, ConsistencySelector)?;
        let answer = server.engine.read(consistency, Lookup::Query(inner)).await?;
        let count = answer.documents.len();
        server.engine.state().counts.add_reads(count.div_ceil(ENTRIES_PER_READ).max(1));

        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let number = |limit: i64| Value { value_type: Some(ValueType::IntegerValue(count.min(limit))) };
        let aggregate_fields = limits.into_iter().map(|(alias, limit)| (alias, number(limit))).collect();
        Ok(vec![RunAggregationQueryResponse {
            result: Some(AggregationResult { aggregate_fields }),
            transaction: answer.transaction.unwrap_or_default(),
            read_time: Some(timestamp(answer.time)),
            explain_metrics: None,
        }])
    }
}
