use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::timeout;
use tonic::Code;

use crate::common::{Client, assert_code, set, start};
use crate::listener::documents;

const MOMENT: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a_fault_before_leaves_nothing_done() {
    let world = start().await;
    world.fault(json!({"method": "Commit", "action": "status", "code": "UNAVAILABLE", "times": 1})).await;
    assert_code(world.client.commit(&[], vec![set("a", 1)]).await, Code::Unavailable);
    assert_eq!(world.client.get("a").await, None);
    world.client.write(vec![set("a", 1)]).await;
}

#[tokio::test]
async fn a_fault_after_hides_that_it_was_done() {
    let world = start().await;
    for (number, code) in [(1, "UNAVAILABLE"), (2, "DEADLINE_EXCEEDED"), (3, "ABORTED")] {
        world.fault(json!({"action": "status", "code": code, "when": "after", "times": 1})).await;
        world.client.commit(&[], vec![set("a", number)]).await.unwrap_err();
        assert_eq!(crate::common::number_in(&world.client.get("a").await.unwrap(), "n"), number);
    }
}

#[tokio::test]
async fn a_fault_can_be_about_some_documents_only() {
    let world = start().await;
    world.fault(json!({"action": "status", "code": "INTERNAL", "contains": "locks/b"})).await;
    world.client.write(vec![set("a", 1)]).await;
    for _ in 0..3 {
        assert_code(world.client.commit(&[], vec![set("b", 1)]).await, Code::Internal);
    }
    let faults = world.control(json!({"command": "faults"})).await;
    assert_eq!(faults[0]["hits"], 3);
    world.control(json!({"command": "clear_faults"})).await;
    world.client.write(vec![set("b", 1)]).await;
}

#[tokio::test]
async fn a_delay_is_before_or_after_the_work() {
    let world = start().await;
    for when in ["before", "after"] {
        world.fault(json!({"method": "Commit", "action": "delay", "ms": 300, "when": when, "times": 1})).await;
        let start = Instant::now();
        let client = world.client.clone();
        let commit = tokio::spawn(async move { client.write(vec![set(when, 1)]).await });
        tokio::time::sleep(MOMENT).await;
        assert_eq!(world.client.get(when).await.is_some(), when == "after");
        commit.await.unwrap();
        assert!(start.elapsed() >= Duration::from_millis(300));
    }
}

#[tokio::test]
async fn some_calls_are_never_answered() {
    let world = start().await;
    for when in ["before", "after"] {
        world.fault(json!({"method": "Commit", "action": "silence", "when": when, "times": 1})).await;
        assert!(timeout(MOMENT, world.client.commit(&[], vec![set(when, 1)])).await.is_err());
        assert_eq!(world.client.get(when).await.is_some(), when == "after");
    }
}

#[tokio::test]
async fn connections_are_counted_and_closed() {
    let world = start().await;
    let open = || async { world.control(json!({"command": "connections"})).await["open"].as_u64().unwrap() };
    let other = Client::connect(&format!("http://{}", world.double.address())).await;
    other.get("a").await;
    world.client.get("a").await;
    assert_eq!(open().await, 2);
    world.fault(json!({"method": "Commit", "action": "close_connection", "when": "after", "times": 1})).await;
    other.commit(&[], vec![set("a", 1)]).await.unwrap_err();
    assert!(world.client.get("a").await.is_some());
    other.get("a").await;
    assert_eq!(world.control(json!({"command": "close_connections", "fraction": 0.5})).await["closed"], 1);
}

#[tokio::test]
async fn random_faults_are_the_same_for_the_same_seed() {
    let world = start().await;
    let mut runs = Vec::new();
    for _ in 0..2 {
        let fault = json!({"method": "Commit", "action": "status", "code": "ABORTED", "probability": 0.5, "seed": 7});
        world.fault(fault).await;
        let mut run = Vec::new();
        for number in 0..32 {
            run.push(world.client.commit(&[], vec![set("a", number)]).await.is_ok());
        }
        world.control(json!({"command": "clear_faults"})).await;
        runs.push(run);
    }
    assert_eq!(runs[0], runs[1]);
    assert!(runs[0].contains(&true) && runs[0].contains(&false));
}

#[tokio::test]
async fn a_stream_can_fail_before_and_after_a_target() {
    let world = start().await;
    world.fault(json!({"method": "Listen", "action": "status", "code": "UNAVAILABLE", "times": 1})).await;
    let mut listener = world.client.listen().await;
    listener.add(1, documents(&["a"]), None).await;
    assert_code(listener.next().await, Code::Unavailable);
    world.fault(json!({"method": "Listen", "action": "status", "code": "INTERNAL", "when": "after", "times": 1})).await;
    let (mut listener, heard) = world.client.listen_to(documents(&["a"])).await;
    assert_eq!(heard, "+1 a deleted[1] *1 .");
    assert_code(listener.next().await, Code::Internal);
}
