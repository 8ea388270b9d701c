//! Whatever transactions do at the same time could have been done one after the other.

use std::time::Duration;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::StructuredQuery;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::run_query_request::ConsistencySelector;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::field_filter::Operator;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tonic::{Code, Status};

use crate::common::{Client, World, assert_code, int, number_in, set, start, start_optimistic};
use crate::queries::{filter, query};

async fn increment(client: &Client) -> Result<(), Status> {
    let (transaction, document) = client.begin_reading("counter").await?;
    let number = document.map_or(0, |document| number_in(&document, "n"));
    client.commit(&transaction, vec![set("counter", number + 1)]).await.map(drop)
}

/// Tries again whenever it lost against another.
async fn certainly_increment(client: &Client) {
    loop {
        match increment(client).await {
            Ok(()) => return,
            Err(status) => assert_eq!(status.code(), Code::Aborted, "{status}"),
        }
        sleep(Duration::from_millis(fastrand::u64(1..10))).await;
    }
}

async fn no_increment_is_lost(world: World) {
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let client = world.client.clone();
        tasks.spawn(async move {
            for _ in 0..10 {
                certainly_increment(&client).await;
            }
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
    assert_eq!(number_in(&world.client.get("counter").await.unwrap(), "n"), 80);
}

#[tokio::test]
async fn no_increment_is_lost_by_waiting() {
    no_increment_is_lost(start().await).await;
}

#[tokio::test]
async fn no_increment_is_lost_by_failing() {
    no_increment_is_lost(start_optimistic().await).await;
}

/// Two doctors go off duty, each after a look at both. One must fail.
async fn write_skew_is_impossible(world: World) {
    let client = &world.client;
    client.write(vec![set("alice", 1), set("bob", 1)]).await;
    let (alice, bob) = (client.begin().await, client.begin().await);
    for transaction in [&alice, &bob] {
        for id in ["alice", "bob"] {
            assert_eq!(number_in(&client.read_in(transaction, id).await.unwrap().unwrap(), "n"), 1);
        }
    }
    let (first, second) =
        tokio::join!(client.commit(&alice, vec![set("alice", 0)]), client.commit(&bob, vec![set("bob", 0)]));
    let failure = match (first, second) {
        (Ok(_), Err(failure)) | (Err(failure), Ok(_)) => failure,
        other => panic!("{other:?}"),
    };
    assert_eq!(failure.code(), Code::Aborted);
}

#[tokio::test]
async fn write_skew_is_impossible_by_waiting() {
    write_skew_is_impossible(start().await).await;
}

#[tokio::test]
async fn write_skew_is_impossible_by_failing() {
    write_skew_is_impossible(start_optimistic().await).await;
}

/// Two look for documents that match, find none, and create one each. One must fail.
async fn phantoms_are_impossible(world: World) {
    let client = &world.client;
    let matching = StructuredQuery { r#where: Some(filter("n", Operator::GreaterThan, int(5))), ..query() };
    let (one, two) = (client.begin().await, client.begin().await);
    for transaction in [&one, &two] {
        let selector = ConsistencySelector::Transaction(transaction.clone());
        assert_eq!(client.query(matching.clone(), Some(selector)).await.unwrap().len(), 1);
    }
    // What does not match is in nobody's way.
    client.write(vec![set("other", 5)]).await;
    let (first, second) =
        tokio::join!(client.commit(&one, vec![set("one", 6)]), client.commit(&two, vec![set("two", 6)]));
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    assert_code(if first.is_ok() { second } else { first }, Code::Aborted);
}

#[tokio::test]
async fn phantoms_are_impossible_by_waiting() {
    phantoms_are_impossible(start().await).await;
}

#[tokio::test]
async fn phantoms_are_impossible_by_failing() {
    phantoms_are_impossible(start_optimistic().await).await;
}

#[tokio::test]
async fn a_document_that_leaves_a_query_was_read_by_it() {
    let world = start_optimistic().await;
    let client = &world.client;
    client.write(vec![set("a", 6)]).await;
    let transaction = client.begin().await;
    let matching = StructuredQuery { r#where: Some(filter("n", Operator::GreaterThan, int(5))), ..query() };
    let selector = ConsistencySelector::Transaction(transaction.clone());
    client.query(matching, Some(selector)).await.unwrap();
    client.write(vec![set("a", 5)]).await;
    assert_code(client.commit(&transaction, vec![set("b", 1)]).await, Code::Aborted);
}

#[tokio::test]
async fn a_limit_leaves_what_is_behind_it_to_others() {
    let world = start_optimistic().await;
    let client = &world.client;
    client.write(vec![set("a", 1), set("b", 1), set("c", 1)]).await;
    for (id, is_behind) in [("c", true), ("b", false), ("aa", false)] {
        let transaction = client.begin().await;
        let selector = ConsistencySelector::Transaction(transaction.clone());
        client.query(StructuredQuery { limit: Some(2), ..query() }, Some(selector)).await.unwrap();
        client.write(vec![set(id, 2)]).await;
        assert_eq!(client.commit(&transaction, vec![]).await.is_ok(), is_behind, "{id}");
    }
}

#[tokio::test]
async fn a_transaction_never_sees_half_of_another() {
    let world = start_optimistic().await;
    let client = &world.client;
    client.write(vec![set("a", 1), set("b", 1)]).await;
    let (transaction, _) = client.begin_reading("a").await.unwrap();
    client.write(vec![set("a", 2), set("b", 2)]).await;
    assert_code(client.read_in(&transaction, "b").await, Code::Aborted);
}
