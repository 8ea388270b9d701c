use googleapis_tonic_google_firestore_v1::google::firestore::v1::precondition::ConditionType::{Exists, UpdateTime};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{BatchWriteRequest, Write};
use tonic::Code;

use crate::common::{DATABASE, assert_code, delete, number_in, provided, set, start};

#[tokio::test]
async fn a_document_that_must_not_exist_and_does_is_refused() {
    let world = start().await;
    let client = &world.client;
    client.write(vec![provided(Exists(false), set("a", 1))]).await;
    assert_code(client.commit(&[], vec![provided(Exists(false), set("a", 2))]).await, Code::AlreadyExists);
    assert_eq!(number_in(&client.get("a").await.unwrap(), "n"), 1);
}

#[tokio::test]
async fn a_document_that_must_exist_and_does_not_is_refused() {
    let world = start().await;
    let client = &world.client;
    for write in [set("a", 1), delete("a")] {
        assert_code(client.commit(&[], vec![provided(Exists(true), write)]).await, Code::NotFound);
    }
    client.write(vec![set("a", 1)]).await;
    client.write(vec![provided(Exists(true), delete("a"))]).await;
    assert_eq!(client.get("a").await, None);
}

#[tokio::test]
async fn a_document_that_was_changed_since_is_refused() {
    let world = start().await;
    let client = &world.client;
    let first = client.write(vec![set("a", 1)]).await.write_results[0].update_time.unwrap();
    assert_eq!(client.get("a").await.unwrap().update_time, Some(first));
    let second = client.write(vec![provided(UpdateTime(first), set("a", 2))]).await;
    let second = second.write_results[0].update_time.unwrap();
    assert_code(client.commit(&[], vec![provided(UpdateTime(first), set("a", 3))]).await, Code::FailedPrecondition);
    assert_code(client.commit(&[], vec![provided(UpdateTime(first), set("b", 3))]).await, Code::NotFound);
    client.write(vec![provided(UpdateTime(second), delete("a"))]).await;
}

#[tokio::test]
async fn all_writes_happen_or_none() {
    let world = start().await;
    let client = &world.client;
    let writes = vec![set("a", 1), provided(Exists(true), set("b", 1))];
    assert_code(client.commit(&[], writes).await, Code::NotFound);
    assert_eq!(client.get("a").await, None);
    // Later writes see earlier ones.
    client.write(vec![set("a", 1), provided(Exists(true), set("a", 2)), set("b", 1), delete("b")]).await;
    assert_eq!(number_in(&client.get("a").await.unwrap(), "n"), 2);
    assert_eq!(client.get("b").await, None);
}

#[tokio::test]
async fn a_batch_writes_each_document_by_itself_and_none_twice() {
    let world = start().await;
    let batch = async |writes: Vec<Write>| {
        let request = BatchWriteRequest { database: DATABASE.to_owned(), writes, ..BatchWriteRequest::default() };
        world.client.0.clone().batch_write(request).await
    };
    let answer = batch(vec![set("a", 1), provided(Exists(true), set("b", 1))]).await.unwrap().into_inner();
    let codes: Vec<_> = answer.status.iter().map(|status| Code::from_i32(status.code)).collect();
    assert_eq!(codes, [Code::Ok, Code::NotFound]);
    assert_code(batch(vec![set("c", 1), delete("c")]).await, Code::InvalidArgument);
    assert!(world.client.get("c").await.is_none());
}
