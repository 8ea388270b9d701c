use googleapis_tonic_google_firestore_v1::google::firestore::v1::run_aggregation_query_request::QueryType as Aggregated;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::run_query_request::{ConsistencySelector, QueryType};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_aggregation_query::aggregation::{
    Count, Operator as Aggregate,
};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_aggregation_query::{
    Aggregation, QueryType as Inner,
};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::composite_filter::Operator as Together;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::field_filter::Operator;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::filter::FilterType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::{
    CollectionSelector, CompositeFilter, Direction, FieldFilter, FieldReference, Filter, Order, Projection,
};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    ArrayValue, Cursor, RunAggregationQueryRequest, RunQueryRequest, RunQueryResponse, StructuredAggregationQuery,
    StructuredQuery, Value,
};
use serde_json::json;
use tonic::{Code, Status};

use crate::common::{Client, ROOT, World, assert_code, int, reference, set, start, text, update};

pub(crate) fn query() -> StructuredQuery {
    let from = CollectionSelector { collection_id: "locks".to_owned(), all_descendants: false };
    StructuredQuery { from: vec![from], ..StructuredQuery::default() }
}

fn field(path: &str) -> FieldReference {
    FieldReference { field_path: path.to_owned() }
}

pub(crate) fn filter(path: &str, operator: Operator, value: Value) -> Filter {
    let filter = FieldFilter { field: Some(field(path)), op: operator.into(), value: Some(value) };
    Filter { filter_type: Some(FilterType::FieldFilter(filter)) }
}

fn all(filters: Vec<Filter>) -> Filter {
    let filter = CompositeFilter { op: Together::And.into(), filters };
    Filter { filter_type: Some(FilterType::CompositeFilter(filter)) }
}

fn any(filters: Vec<Filter>) -> Filter {
    let filter = CompositeFilter { op: Together::Or.into(), filters };
    Filter { filter_type: Some(FilterType::CompositeFilter(filter)) }
}

pub(crate) fn order(path: &str, direction: Direction) -> Order {
    Order { field: Some(field(path)), direction: direction.into() }
}

impl Client {
    pub(crate) async fn query(
        &self,
        query: StructuredQuery,
        selector: Option<ConsistencySelector>,
    ) -> Result<Vec<RunQueryResponse>, Status> {
        let request = RunQueryRequest {
            parent: ROOT.to_owned(),
            query_type: Some(QueryType::StructuredQuery(query)),
            consistency_selector: selector,
            explain_options: None,
        };
        let mut stream = self.0.clone().run_query(request).await?.into_inner();
        let mut responses = Vec::new();
        while let Some(response) = stream.message().await? {
            responses.push(response);
        }
        Ok(responses)
    }

    /// The ids of what a query finds.
    pub(crate) async fn ids(&self, query: StructuredQuery) -> String {
        let responses = self.query(query, None).await.unwrap();
        let documents = responses.into_iter().filter_map(|response| response.document);
        documents.map(|document| document.name.rsplit('/').next().unwrap().to_owned()).collect()
    }

    async fn count(&self, up_to: Option<i64>) -> i64 {
        let aggregation = Aggregation { alias: "n".to_owned(), operator: Some(Aggregate::Count(Count { up_to })) };
        let query = StructuredAggregationQuery {
            aggregations: vec![aggregation],
            query_type: Some(Inner::StructuredQuery(query())),
        };
        let request = RunAggregationQueryRequest {
            parent: ROOT.to_owned(),
            query_type: Some(Aggregated::StructuredAggregationQuery(query)),
            ..RunAggregationQueryRequest::default()
        };
        let mut stream = self.0.clone().run_aggregation_query(request).await.unwrap().into_inner();
        let response = stream.message().await.unwrap().unwrap();
        assert!(response.read_time.is_some());
        let value = response.result.unwrap().aggregate_fields.remove("n").unwrap();
        (0..).find(|number| int(*number) == value).unwrap()
    }
}

/// Documents `a` to `e` whose number falls and whose group alternates; and `f` without a number,
/// `g` with a text instead.
async fn filled() -> World {
    let world = start().await;
    let client = &world.client;
    for (at, id) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        let at = i64::try_from(at).unwrap();
        client.write(vec![update(id, &[("n", int(5 - at)), ("group", int(at % 2))])]).await;
    }
    client.write(vec![update("f", &[("x", int(1))]), update("g", &[("n", text("1"))])]).await;
    world.control(json!({"command": "set_document", "path": format!("{ROOT}/other/z"), "fields": {}})).await;
    world.control(json!({"command": "set_document", "path": format!("{ROOT}/locks/a/b/c"), "fields": {}})).await;
    world
}

#[tokio::test]
async fn a_collection_is_listed_by_name_and_no_other() {
    assert_eq!(filled().await.client.ids(query()).await, "abcdefg");
}

#[tokio::test]
async fn filters_match_documents_with_a_comparable_field() {
    let world = filled().await;
    let client = &world.client;
    for (operator, value, ids) in [
        (Operator::Equal, int(3), "c"),
        (Operator::LessThan, int(3), "ed"),
        (Operator::LessThanOrEqual, int(3), "edc"),
        (Operator::GreaterThan, int(3), "ba"),
        (Operator::GreaterThanOrEqual, int(3), "cba"),
        (Operator::GreaterThanOrEqual, text(""), "g"),
    ] {
        assert_eq!(client.ids(StructuredQuery { r#where: Some(filter("n", operator, value)), ..query() }).await, ids);
    }
    let both = all(vec![filter("n", Operator::GreaterThan, int(1)), filter("n", Operator::LessThan, int(5))]);
    assert_eq!(client.ids(StructuredQuery { r#where: Some(both), ..query() }).await, "dcb");
    let equal = all(vec![filter("n", Operator::Equal, int(4)), filter("group", Operator::Equal, int(1))]);
    assert_eq!(client.ids(StructuredQuery { r#where: Some(equal), ..query() }).await, "b");
    let after = filter("__name__", Operator::GreaterThan, reference("c"));
    assert_eq!(client.ids(StructuredQuery { r#where: Some(after), ..query() }).await, "defg");
}

#[tokio::test]
async fn alternatives_and_elements_of_arrays_are_found_without_an_index_of_their_own() {
    let world = filled().await;
    let client = &world.client;
    let list = |texts: &[&str]| {
        let values = texts.iter().map(|word| text(word)).collect();
        Value { value_type: Some(ValueType::ArrayValue(ArrayValue { values })) }
    };
    client.write(vec![update("h", &[("ids", list(&["x", "y"]))]), update("i", &[("ids", list(&["y"]))])]).await;
    client.write(vec![update("j", &[("ids", text("x"))]), update("k", &[("id", text("x"))])]).await;
    let contains = |word| filter("ids", Operator::ArrayContains, text(word));
    let among = |words: &[&str]| filter("ids", Operator::ArrayContainsAny, list(words));
    let is = |words: &[&str]| filter("id", Operator::In, list(words));
    for (wanted, ids) in [
        (contains("x"), "h"),
        (contains("y"), "hi"),
        (contains("z"), ""),
        (among(&["x", "z"]), "h"),
        (any(vec![filter("id", Operator::Equal, text("x")), contains("x")]), "hk"),
        (any(vec![is(&["x", "z"]), among(&["y", "x"])]), "hik"),
        (any(vec![filter("n", Operator::Equal, int(3)), filter("n", Operator::Equal, int(1))]), "ce"),
    ] {
        assert_eq!(client.ids(StructuredQuery { r#where: Some(wanted), ..query() }).await, ids);
    }
    let many: Vec<String> = (0..16).map(|number| number.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (wanted, code) in [
        (any(vec![is(&many[..15]), among(&many[..15])]), None),
        (any(vec![is(&many), among(&many)]), Some(Code::InvalidArgument)),
        (all(vec![contains("x"), among(&["y"])]), Some(Code::InvalidArgument)),
        (all(vec![contains("x"), filter("n", Operator::Equal, int(3))]), Some(Code::FailedPrecondition)),
    ] {
        let answer = client.query(StructuredQuery { r#where: Some(wanted), ..query() }, None).await;
        assert_eq!(answer.err().map(|status| status.code()), code);
    }
}

#[tokio::test]
async fn orders_leave_out_documents_without_the_field() {
    let world = filled().await;
    let client = &world.client;
    for (direction, ids) in [(Direction::Ascending, "edcbag"), (Direction::Descending, "gabcde")] {
        let by_number = StructuredQuery { order_by: vec![order("n", direction)], ..query() };
        assert_eq!(client.ids(by_number).await, ids);
    }
    let by_group = StructuredQuery { order_by: vec![order("group", Direction::Descending)], ..query() };
    assert_eq!(client.ids(by_group).await, "dbeca");
}

#[tokio::test]
async fn cursors_limits_and_offsets_cut_the_answer() {
    let world = filled().await;
    let client = &world.client;
    let by_name = StructuredQuery { order_by: vec![order("__name__", Direction::Ascending)], ..query() };
    let cursor = |id: &str, before| Some(Cursor { values: vec![reference(id)], before });
    for (start_at, end_at, ids) in [
        (cursor("c", true), None, "cdefg"),
        (cursor("c", false), None, "defg"),
        (None, cursor("c", true), "ab"),
        (None, cursor("c", false), "abc"),
        (cursor("b", false), cursor("e", true), "cd"),
    ] {
        assert_eq!(client.ids(StructuredQuery { start_at, end_at, ..by_name.clone() }).await, ids);
    }
    let page = StructuredQuery { limit: Some(2), offset: 1, start_at: cursor("b", true), ..by_name };
    assert_eq!(client.ids(page).await, "cd");
    // Less of a cursor than of the order.
    let by_group = vec![order("group", Direction::Ascending), order("__name__", Direction::Ascending)];
    let start_at = Some(Cursor { values: vec![int(1)], before: true });
    assert_eq!(client.ids(StructuredQuery { order_by: by_group, start_at, ..query() }).await, "bd");
}

#[tokio::test]
async fn only_the_fields_that_were_asked_for_are_sent() {
    let world = filled().await;
    let client = &world.client;
    let select = |path: &str| Some(Projection { fields: vec![field(path)] });
    let responses = client.query(StructuredQuery { select: select("n"), ..query() }, None).await.unwrap();
    let fields = &responses[0].document.as_ref().unwrap().fields;
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["n"]);
    let responses = client.query(StructuredQuery { select: select("__name__"), ..query() }, None).await.unwrap();
    assert!(responses[0].document.as_ref().unwrap().fields.is_empty());
}

#[tokio::test]
async fn a_query_that_finds_nothing_is_told_the_time() {
    let world = start().await;
    let client = &world.client;
    let responses = client.query(query(), None).await.unwrap();
    assert_eq!(responses.len(), 1);
    assert!(responses[0].read_time.is_some() && responses[0].document.is_none());
}

#[tokio::test]
async fn documents_are_counted_up_to_a_limit() {
    let world = filled().await;
    let client = &world.client;
    assert_eq!(client.count(None).await, 7);
    assert_eq!(client.count(Some(3)).await, 3);
}

#[tokio::test]
async fn a_query_that_needs_an_index_of_its_own_is_refused() {
    let world = start().await;
    world.client.write(vec![set("a", 1)]).await;
    let equal = filter("group", Operator::Equal, int(1));
    let mixed = all(vec![equal.clone(), filter("n", Operator::GreaterThan, int(1))]);
    let queries = [
        StructuredQuery { r#where: Some(mixed), ..query() },
        StructuredQuery { r#where: Some(equal), order_by: vec![order("n", Direction::Ascending)], ..query() },
        StructuredQuery { order_by: vec![order("__name__", Direction::Descending)], ..query() },
    ];
    for query in queries.clone() {
        assert_code(world.client.query(query, None).await, Code::FailedPrecondition);
    }
    world.control(json!({"command": "indexes", "composite": true})).await;
    for query in queries {
        world.client.query(query, None).await.unwrap();
    }
}
