//! Transactions wait for each other, but not forever.

use std::time::{Duration, Instant};

use googleapis_tonic_google_firestore_v1::google::firestore::v1::transaction_options::{Mode, ReadOnly};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{BeginTransactionRequest, TransactionOptions};
use serde_json::json;
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::common::{DATABASE, DEADLINE, World, assert_code, number_in, set, start, start_optimistic};

async fn limit(world: &World, name: &str, ms: u64) {
    world.control(json!({"command": "limits", name: ms})).await;
}

async fn open_transactions(world: &World) -> u64 {
    world.control(json!({"command": "transactions"})).await["open"].as_u64().unwrap()
}

#[tokio::test]
async fn a_commit_waits_for_a_reader_to_end() {
    let world = start().await;
    limit(&world, "lock_wait_ms", 30_000).await;
    for commits in [true, false] {
        let (reader, _) = world.client.begin_reading("a").await.unwrap();
        let writer = world.client.clone();
        let write = tokio::spawn(async move { writer.commit(&[], vec![set("a", 2)]).await });
        sleep(Duration::from_millis(100)).await;
        assert!(!write.is_finished());
        if commits {
            world.client.commit(&reader, vec![set("a", 1)]).await.unwrap();
        } else {
            world.client.roll_back(&reader).await.unwrap();
        }
        timeout(DEADLINE, write).await.unwrap().unwrap().unwrap();
        assert_eq!(number_in(&world.client.get("a").await.unwrap(), "n"), 2);
    }
}

#[tokio::test]
async fn a_commit_that_has_waited_too_long_is_aborted() {
    let world = start().await;
    limit(&world, "lock_wait_ms", 200).await;
    let (reader, _) = world.client.begin_reading("a").await.unwrap();
    let start = Instant::now();
    assert_code(world.client.commit(&[], vec![set("a", 1)]).await, Code::Aborted);
    assert!(start.elapsed() >= Duration::from_millis(200));
    // Others, and what others have not read, need not wait.
    world.client.write(vec![set("b", 1)]).await;
    world.client.get("a").await;
    world.client.commit(&reader, vec![set("a", 2)]).await.unwrap();
}

#[tokio::test]
async fn of_two_that_wait_for_each_other_one_is_aborted_at_once() {
    let world = start().await;
    limit(&world, "lock_wait_ms", 30_000).await;
    let client = &world.client;
    let (one, _) = client.begin_reading("a").await.unwrap();
    let (two, _) = client.begin_reading("a").await.unwrap();
    let both = async { tokio::join!(client.commit(&one, vec![set("a", 1)]), client.commit(&two, vec![set("a", 2)])) };
    let (first, second) = timeout(Duration::from_secs(10), both).await.unwrap();
    assert!(first.is_ok() != second.is_ok());
    assert_code(if first.is_ok() { second } else { first }, Code::Aborted);
}

#[tokio::test]
async fn a_newcomer_queues_behind_a_commit_that_waits() {
    let world = start().await;
    limit(&world, "lock_wait_ms", 30_000).await;
    let (reader, _) = world.client.begin_reading("a").await.unwrap();
    let client = world.client.clone();
    let write = tokio::spawn(async move { client.commit(&[], vec![set("a", 1)]).await });
    sleep(Duration::from_millis(50)).await;
    let client = world.client.clone();
    let newcomer = tokio::spawn(async move { client.begin_reading("a").await });
    sleep(Duration::from_millis(100)).await;
    assert!(!newcomer.is_finished());
    world.client.roll_back(&reader).await.unwrap();
    write.await.unwrap().unwrap();
    let (_, document) = newcomer.await.unwrap().unwrap();
    assert_eq!(number_in(&document.unwrap(), "n"), 1);
}

#[tokio::test]
async fn an_optimistic_commit_does_not_wait() {
    let world = start_optimistic().await;
    let (reader, _) = world.client.begin_reading("a").await.unwrap();
    world.client.write(vec![set("a", 1)]).await;
    assert_code(world.client.commit(&reader, vec![set("a", 2)]).await, Code::Aborted);
    world.control(json!({"command": "mode", "mode": "pessimistic"})).await;
    limit(&world, "lock_wait_ms", 10).await;
    let _reader = world.client.begin_reading("a").await.unwrap();
    assert_code(world.client.commit(&[], vec![set("a", 3)]).await, Code::Aborted);
}

#[tokio::test]
async fn a_transaction_that_has_ended_means_nothing() {
    let world = start().await;
    let client = &world.client;
    let committed = client.begin().await;
    client.commit(&committed, vec![]).await.unwrap();
    let rolled_back = client.begin().await;
    client.roll_back(&rolled_back).await.unwrap();
    for transaction in [committed, rolled_back, b"nonsense".to_vec()] {
        assert_code(client.read_in(&transaction, "a").await, Code::InvalidArgument);
        assert_code(client.commit(&transaction, vec![]).await, Code::InvalidArgument);
        assert_code(client.roll_back(&transaction).await, Code::InvalidArgument);
    }
}

#[tokio::test]
async fn an_idle_transaction_expires_and_holds_up_nobody() {
    let world = start().await;
    limit(&world, "lock_wait_ms", 30_000).await;
    limit(&world, "idle_ms", 150).await;
    let (reader, _) = world.client.begin_reading("a").await.unwrap();
    assert_eq!(open_transactions(&world).await, 1);
    world.client.write(vec![set("a", 1)]).await;
    assert_eq!(open_transactions(&world).await, 0);
    assert_code(world.client.commit(&reader, vec![]).await, Code::InvalidArgument);
}

#[tokio::test]
async fn a_transaction_expires_however_busy_it_is() {
    let world = start().await;
    limit(&world, "total_ms", 300).await;
    let transaction = world.client.begin().await;
    let start = Instant::now();
    while world.client.read_in(&transaction, "a").await.is_ok() {
        assert!(start.elapsed() < DEADLINE);
        sleep(Duration::from_millis(20)).await;
    }
    assert!(start.elapsed() >= Duration::from_millis(250));
}

#[tokio::test]
async fn a_read_only_transaction_locks_nothing_and_writes_nothing() {
    let mut world = start().await;
    let mode = Some(Mode::ReadOnly(ReadOnly::default()));
    let options = Some(TransactionOptions { mode });
    let request = BeginTransactionRequest { database: DATABASE.to_owned(), options };
    let transaction = world.client.0.begin_transaction(request).await.unwrap().into_inner().transaction;
    assert_eq!(world.client.read_in(&transaction, "a").await.unwrap(), None);
    world.client.write(vec![set("a", 1)]).await;
    assert_code(world.client.commit(&transaction, vec![set("a", 2)]).await, Code::InvalidArgument);
}

#[tokio::test]
async fn a_commit_that_was_given_up_waits_no_more() {
    let world = start().await;
    limit(&world, "lock_wait_ms", 30_000).await;
    let (reader, _) = world.client.begin_reading("a").await.unwrap();
    let write = timeout(Duration::from_millis(100), world.client.commit(&[], vec![set("a", 1)])).await;
    assert!(write.is_err());
    // A newcomer would queue behind it.
    let (newcomer, _) = timeout(DEADLINE, world.client.begin_reading("a")).await.unwrap().unwrap();
    for transaction in [reader, newcomer] {
        world.client.roll_back(&transaction).await.unwrap();
    }
    assert_eq!(world.client.get("a").await, None);
}
