use googleapis_tonic_google_firestore_v1::google::firestore::v1::batch_get_documents_request::ConsistencySelector;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::write::Operation;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    DocumentMask, GetDocumentRequest, ListDocumentsRequest, TransactionOptions, Write,
};
use serde_json::json;
use tonic::Code;

use crate::common::{ROOT, assert_code, delete, int, name, number_in, set, start, text, update};

#[tokio::test]
async fn commit_times_strictly_increase_and_are_what_documents_say() {
    let world = start().await;
    let client = &world.client;
    let mut last = None;
    for number in 0..50 {
        let response = client.write(vec![set("a", number), set(&format!("b{number}"), number)]).await;
        let time = response.commit_time.map(|time| (time.seconds, time.nanos));
        assert!(time > last);
        assert_eq!(time.unwrap().1 % 1000, 0);
        assert!(response.write_results.iter().all(|result| result.update_time == response.commit_time));
        last = time;
    }
    let (a, b) = (client.get("a").await.unwrap(), client.get("b0").await.unwrap());
    assert_eq!(a.create_time, b.create_time);
    assert_ne!(a.update_time, b.update_time);
}

#[tokio::test]
async fn a_write_that_changes_nothing_keeps_the_time_of_the_last() {
    let world = start().await;
    let client = &world.client;
    let first = client.write(vec![set("a", 1)]).await.commit_time;
    let second = client.write(vec![set("a", 1)]).await;
    assert_eq!(second.write_results[0].update_time, first);
    assert_ne!(second.commit_time, first);
}

#[tokio::test]
async fn a_mask_leaves_other_fields_alone() {
    let world = start().await;
    let client = &world.client;
    client.write(vec![update("a", &[("x", int(1)), ("y", int(1)), ("z", int(1))])]).await;
    let mask = Some(DocumentMask { field_paths: vec!["x".to_owned(), "y".to_owned()] });
    client.write(vec![Write { update_mask: mask, ..update("a", &[("x", int(2)), ("z", int(2))]) }]).await;
    let document = client.get("a").await.unwrap();
    assert_eq!((number_in(&document, "x"), number_in(&document, "z")), (2, 1));
    assert!(!document.fields.contains_key("y"));
    client.write(vec![set("a", 3)]).await;
    assert_eq!(client.get("a").await.unwrap().fields.len(), 1);
}

#[tokio::test]
async fn a_batch_is_answered_with_one_time_and_the_new_transaction_first() {
    let world = start().await;
    let client = &world.client;
    client.write(vec![set("a", 1)]).await;
    let selector = ConsistencySelector::NewTransaction(TransactionOptions::default());
    let responses = client.batch_get(&["a", "b"], Some(selector)).await.unwrap();
    assert_eq!(responses.len(), 3);
    assert!(!responses[0].transaction.is_empty() && responses[0].result.is_none());
    assert!(responses[1].read_time.is_some() && responses[1].read_time == responses[2].read_time);
    client.roll_back(&responses[0].transaction).await.unwrap();
}

#[tokio::test]
async fn one_document_is_found_or_not() {
    let world = start().await;
    let mut client = world.client.clone();
    client.write(vec![set("a", 1)]).await;
    let request = |id: &str| GetDocumentRequest { name: name(id), ..GetDocumentRequest::default() };
    assert_eq!(client.0.get_document(request("a")).await.unwrap().into_inner().name, name("a"));
    assert_code(client.0.get_document(request("b")).await, Code::NotFound);
    client.write(vec![delete("a")]).await;
    assert_code(client.0.get_document(request("a")).await, Code::NotFound);
}

#[tokio::test]
async fn bad_ids_and_large_documents_are_refused() {
    let world = start().await;
    let client = &world.client;
    for id in ["", ".", "..", "__x__", "a/b", &"x".repeat(1501)] {
        assert_code(client.commit(&[], vec![set(id, 1)]).await, Code::InvalidArgument);
        assert_code(client.batch_get(&[id], None).await, Code::InvalidArgument);
    }
    client.write(vec![set(&"x".repeat(1500), 1)]).await;
    client.write(vec![update("a", &[("x", text(&"x".repeat((1 << 20) - 200)))])]).await;
    let large = update("a", &[("x", text(&"x".repeat(1 << 20)))]);
    assert_code(client.commit(&[], vec![large]).await, Code::InvalidArgument);
    let elsewhere = Operation::Delete("projects/p/databases/other/documents/locks/a".to_owned());
    let elsewhere = Write { operation: Some(elsewhere), ..Write::default() };
    assert_code(client.commit(&[], vec![elsewhere]).await, Code::InvalidArgument);
}

#[tokio::test]
async fn the_clock_can_be_moved() {
    let world = start().await;
    let before = world.client.write(vec![set("a", 1)]).await.commit_time.unwrap();
    world.control(json!({"command": "clock", "offset_ms": 3_600_000})).await;
    let after = world.client.batch_get(&["a"], None).await.unwrap()[0].read_time.unwrap();
    assert!((3590..3660).contains(&(after.seconds - before.seconds)));
    let committed = world.client.write(vec![set("a", 2)]).await.commit_time.unwrap();
    assert!((3590..3660).contains(&(committed.seconds - before.seconds)));
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_not_found() {
    let world = start().await;
    world.control(json!({"command": "databases", "remove": ["(default)"]})).await;
    let status = world.client.commit(&[], vec![set("a", 1)]).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().starts_with("The database (default) does not exist for project p"), "{status}");
    world.control(json!({"command": "databases", "add": ["(default)"]})).await;
    world.client.write(vec![set("a", 1)]).await;
}

#[tokio::test]
async fn what_it_does_not_know_is_unimplemented() {
    let world = start().await;
    let mut client = world.client.clone();
    let request = ListDocumentsRequest { parent: ROOT.to_owned(), ..ListDocumentsRequest::default() };
    assert_code(client.0.list_documents(request).await, Code::Unimplemented);
}
