use serde_json::json;

use crate::common::{delete, set, start};
use crate::listener::{documents, query_target};
use crate::queries::query;

#[tokio::test]
async fn reads_writes_and_deletes_are_counted_as_on_the_invoice() {
    let world = start().await;
    let client = &world.client;
    client.write(vec![set("a", 1), set("b", 1), delete("c")]).await;
    assert_eq!((world.count("writes").await, world.count("deletes").await), (2, 1));
    client.batch_get(&["a", "missing"], None).await.unwrap();
    assert_eq!(world.count("reads").await, 2);
    client.query(query(), None).await.unwrap();
    assert_eq!(world.count("reads").await, 4);
    client.write(vec![delete("a"), delete("b")]).await;
    client.query(query(), None).await.unwrap();
    assert_eq!(world.count("reads").await, 5);

    let counts = world.control(json!({"command": "counts", "reset": true})).await;
    assert_eq!(counts["calls"], json!({"BatchGetDocuments": 1, "Commit": 2, "RunQuery": 2}));
    assert_eq!(world.control(json!({"command": "calls"})).await, json!({}));
    assert_eq!((world.count("reads").await, world.count("deletes").await), (0, 0));
}

#[tokio::test]
async fn what_listeners_hear_is_counted() {
    let world = start().await;
    let client = &world.client;
    let (mut listener, _) = client.listen_to(documents(&["a"])).await;
    assert_eq!(world.count("reads").await, 1);
    client.write(vec![set("a", 1)]).await;
    listener.hear().await;
    assert_eq!(world.count("reads").await, 2);
    client.write(vec![delete("a")]).await;
    listener.hear().await;
    assert_eq!(world.count("reads").await, 2);
    listener.add(2, query_target(query()), None).await;
    listener.hear().await;
    assert_eq!(world.count("reads").await, 3);
}

#[tokio::test]
async fn what_tests_write_is_on_nobodys_bill_but_heard() {
    let world = start().await;
    let (mut listener, _) = world.client.listen_to(documents(&["a"])).await;
    let path = crate::common::name("a");
    let fields = json!({"n": {"integerValue": "5"}});
    world.control(json!({"command": "set_document", "path": path, "fields": fields})).await;
    assert_eq!(listener.hear().await, "a=5[1] .");
    assert_eq!(world.control(json!({"command": "documents"})).await[&path]["fields"], fields);
    world.control(json!({"command": "delete_document", "path": path})).await;
    assert_eq!(listener.hear().await, "a deleted[1] .");
    assert_eq!((world.count("writes").await, world.count("deletes").await), (0, 0));
}
