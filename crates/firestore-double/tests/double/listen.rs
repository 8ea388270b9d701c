use std::time::Duration;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::StructuredQuery;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::field_filter::Operator;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::common::{Client, DEADLINE, World, assert_code, delete, int, name, set, start, text, update};
use crate::listener::{documents, query_target};
use crate::queries::{filter, query};

fn large_numbers() -> StructuredQuery {
    StructuredQuery { r#where: Some(filter("n", Operator::GreaterThan, int(5))), ..query() }
}

#[tokio::test]
async fn documents_are_told_as_they_are_and_then_as_they_change() {
    let world = start().await;
    let client = &world.client;
    client.write(vec![set("a", 1)]).await;
    let (mut listener, heard) = client.listen_to(documents(&["a", "b"])).await;
    assert_eq!(heard, "+1 a=1[1] b deleted[1] *1 .");
    client.write(vec![set("c", 1)]).await;
    client.write(vec![set("a", 2)]).await;
    assert_eq!(listener.hear().await, "a=2[1] .");
    client.write(vec![set("b", 3), delete("a")]).await;
    assert_eq!(listener.hear().await, "a deleted[1] b=3[1] .");
    // What changes nothing is not told.
    client.write(vec![set("b", 3), delete("a")]).await;
    client.write(vec![set("a", 4)]).await;
    assert_eq!(listener.hear().await, "a=4[1] .");
}

#[tokio::test]
async fn a_query_is_told_of_what_enters_changes_and_leaves() {
    let world = start().await;
    let client = &world.client;
    client.write(vec![set("a", 6), set("b", 5)]).await;
    let (mut listener, heard) = client.listen_to(query_target(large_numbers())).await;
    assert_eq!(heard, "+1 a=6[1] *1 .");
    client.write(vec![set("b", 7)]).await;
    assert_eq!(listener.hear().await, "b=7[1] .");
    client.write(vec![set("a", 1), delete("b")]).await;
    assert_eq!(listener.hear().await, "a removed[1] b deleted[1] .");
    client.write(vec![set("a", 2), set("c", 8)]).await;
    assert_eq!(listener.hear().await, "c=8[1] .");
}

#[tokio::test]
async fn a_query_with_a_limit_is_told_of_what_moves_up() {
    let world = start().await;
    let client = &world.client;
    client.write(vec![set("a", 1), set("b", 2), set("c", 3)]).await;
    let limited = StructuredQuery { limit: Some(2), ..query() };
    let (mut listener, heard) = client.listen_to(query_target(limited)).await;
    assert_eq!(heard, "+1 a=1[1] b=2[1] *1 .");
    client.write(vec![delete("a")]).await;
    assert_eq!(listener.hear().await, "a deleted[1] c=3[1] .");
}

#[tokio::test]
async fn targets_share_a_stream_and_can_be_removed() {
    let world = start().await;
    let client = &world.client;
    let (mut listener, heard) = client.listen_to(documents(&["a"])).await;
    assert_eq!(heard, "+1 a deleted[1] *1 .");
    listener.add(2, query_target(large_numbers()), None).await;
    assert_eq!(listener.hear().await, "+2 *2 .");
    client.write(vec![set("a", 6)]).await;
    assert_eq!(listener.hear().await, "a=6[1, 2] .");
    client.write(vec![set("a", 1)]).await;
    assert_eq!(listener.hear().await, "a=1[1] and removed .");
    listener.remove(1).await;
    assert_eq!(listener.next().await.unwrap().unwrap(), "-1");
    client.write(vec![set("a", 2)]).await;
    client.write(vec![set("a", 7)]).await;
    assert_eq!(listener.hear().await, "a=7[2] .");
}

#[tokio::test]
async fn a_token_resumes_with_what_has_changed_since() {
    let world = start().await;
    let client = &world.client;
    client.write(vec![set("a", 6), set("b", 7), set("c", 8), set("d", 9)]).await;
    let (listener, _) = client.listen_to(query_target(large_numbers())).await;
    let (other, _) = client.listen_to(documents(&["a", "b", "c", "x"])).await;
    client.write(vec![set("a", 1), delete("b")]).await;
    client.write(vec![set("c", 10)]).await;
    let mut resumed = client.listen().await;
    resumed.add(1, query_target(large_numbers()), Some(&listener.token)).await;
    assert_eq!(resumed.hear().await, "+1 a removed[1] b deleted[1] c=10[1] *1 .");
    let mut resumed = client.listen().await;
    resumed.add(1, documents(&["a", "b", "c", "x"]), Some(&other.token)).await;
    assert_eq!(resumed.hear().await, "+1 a=1[1] b deleted[1] c=10[1] *1 .");
    client.write(vec![set("x", 1)]).await;
    assert_eq!(resumed.hear().await, "x=1[1] .");
    // Nothing is told twice.
    let mut again = client.listen().await;
    again.add(1, documents(&["a", "b", "c", "x"]), Some(&resumed.token)).await;
    assert_eq!(again.hear().await, "+1 *1 .");
}

#[tokio::test]
async fn a_token_that_is_too_old_or_unknown_starts_afresh() {
    let world = start().await;
    world.client.write(vec![set("a", 1)]).await;
    for token in [0_i64.to_be_bytes().as_slice(), i64::MAX.to_be_bytes().as_slice(), b"nonsense token"] {
        let mut listener = world.client.listen().await;
        listener.add(1, documents(&["a"]), Some(token)).await;
        assert_eq!(listener.hear().await, "+1 reset1 a=1[1] *1 .");
    }
}

#[tokio::test]
async fn a_target_that_cannot_be_is_removed() {
    let world = start().await;
    let mut listener = world.client.listen().await;
    listener.add(1, documents(&["."]), None).await;
    assert_eq!(listener.next().await.unwrap().unwrap(), "!1");
    listener.add(1, documents(&["a"]), None).await;
    assert_eq!(listener.hear().await, "+1 a deleted[1] *1 .");
}

async fn listening(world: &World) -> serde_json::Value {
    world.control(json!({"command": "listening"})).await
}

async fn streams_become(world: &World, number: u64) {
    let start = Instant::now();
    while listening(world).await["streams"] != number {
        assert!(start.elapsed() < DEADLINE);
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_is_listened_to_is_known_until_the_stream_ends() {
    let world = start().await;
    let (mut listener, _) = world.client.listen_to(documents(&["a"])).await;
    listener.add(2, query_target(query()), None).await;
    listener.hear().await;
    let seen = listening(&world).await;
    assert_eq!(seen["documents"], json!([name("a")]));
    assert_eq!(seen["collections"], json!([name("a").strip_suffix("/a").unwrap()]));
    streams_become(&world, 1).await;
    drop(listener);
    streams_become(&world, 0).await;
    assert_eq!(listening(&world).await["documents"], json!([]));
}

#[tokio::test]
async fn streams_can_be_closed_and_muted() {
    let world = start().await;
    let (mut listener, _) = world.client.listen_to(documents(&["a"])).await;
    world.control(json!({"command": "mute_streams", "muted": true})).await;
    world.client.write(vec![set("a", 1)]).await;
    assert!(timeout(Duration::from_millis(100), listener.hear()).await.is_err());
    world.control(json!({"command": "mute_streams", "muted": false})).await;
    assert_eq!(listener.hear().await, "a=1[1] .");
    world.control(json!({"command": "close_streams", "code": "RESOURCE_EXHAUSTED"})).await;
    assert_code(listener.next().await, Code::ResourceExhausted);
    let (_, heard) = world.client.listen_to(documents(&["a"])).await;
    assert_eq!(heard, "+1 a=1[1] *1 .");
}

#[tokio::test]
async fn a_slow_reader_holds_up_no_commit() {
    let world = start().await;
    // On a connection of its own, whose window fills up.
    let slow = Client::connect(&format!("http://{}", world.double.address())).await;
    let (mut listener, _) = slow.listen_to(documents(&["a"])).await;
    let padding = "x".repeat(300_000);
    let commits = async {
        for number in 0..320 {
            world.client.write(vec![update("a", &[("n", int(number)), ("padding", text(&padding))])]).await;
        }
    };
    timeout(DEADLINE, commits).await.unwrap();
    // It hears of the last one all the same, though it has missed others.
    let mut heard = String::new();
    while !heard.contains("a=319[1]") {
        heard = listener.hear().await;
    }
    assert_eq!(heard, "reset1 a=319[1] *1 .");
}
