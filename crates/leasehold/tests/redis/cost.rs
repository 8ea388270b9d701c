//! Every operation is one round trip.

use std::collections::BTreeMap;

use leasehold::{Acquire, Backend, ListRequest, LookupBy, Redis};
use test_servers::Redis as Server;

use crate::support::{connect, granted, request, stealing, ttl};

/// Commands that only scripts send here. A client that sent one would not be noticed, but then it would pay for both.
const IN_SCRIPTS: [&str; 7] = ["time", "get", "set", "del", "mget", "scan", "publish"];

/// What clients sent since the last time this was asked.
fn sent(server: &Server) -> BTreeMap<String, u64> {
    let statistics = server.cli(&["INFO", "commandstats"]);
    let calls = statistics.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().unwrap()))
    });
    let by_clients = calls.filter(|(name, _)| !IN_SCRIPTS.contains(&name.as_str()) && name != "config|resetstat");
    let sent = by_clients.collect();
    server.cli(&["CONFIG", "RESETSTAT"]);
    sent
}

fn only(command: &str) -> BTreeMap<String, u64> {
    [(command.to_owned(), 1)].into()
}

/// A handle whose every script is known to the server.
async fn warm(server: &Server) -> Redis {
    let store = connect(server).await;
    let held = request("warm");
    granted(&store, &held).await;
    every_operation(&store, &held, |_| ()).await;
    store.force_release(&held.key).await.unwrap();
    store.list(&ListRequest::new("")).await.unwrap();
    sent(server);
    store
}

/// One of each, after which the lock is free.
async fn every_operation(store: &Redis, held: &leasehold::AcquireRequest, mut after: impl FnMut(&str)) {
    assert!(matches!(store.acquire(held).await.unwrap(), Acquire::Granted(_)));
    after("acquire");
    store.extend(&held.lock_id, ttl(60_000)).await.unwrap();
    after("extend");
    assert!(store.is_locked(&held.key).await.unwrap());
    after("is_locked");
    assert!(store.lookup(LookupBy::Key(&held.key)).await.unwrap().is_some());
    after("lookup by key");
    assert!(store.lookup(LookupBy::Id(&held.lock_id)).await.unwrap().is_some());
    after("lookup by id");
    store.release(&held.lock_id).await.unwrap();
    after("release");
}

#[tokio::test]
async fn every_operation_is_one_command() {
    let server = Server::start();
    let store = warm(&server).await;
    every_operation(&store, &request("order:42"), |operation| {
        assert_eq!(sent(&server), only("evalsha"), "{operation}");
    })
    .await;
    let held = request("order:42");
    granted(&store, &held).await;
    sent(&server);
    assert!(matches!(store.acquire(&request("order:42")).await.unwrap(), Acquire::Held(_)));
    assert_eq!(sent(&server), only("evalsha"), "contention");
    assert!(matches!(store.acquire(&held).await.unwrap(), Acquire::Granted(_)));
    assert_eq!(sent(&server), only("evalsha"), "a repeated acquire");
    let _ = store.acquire(&stealing("order:42", 1)).await.unwrap();
    assert_eq!(sent(&server), only("evalsha"), "a steal");
    store.force_release(&held.key).await.unwrap();
    assert_eq!(sent(&server), only("evalsha"), "force_release");
    store.list(&ListRequest::new("")).await.unwrap();
    assert_eq!(sent(&server), only("evalsha"), "a list of one page");
}

#[tokio::test]
async fn a_server_that_forgot_its_scripts_is_sent_each_of_them_once() {
    let server = Server::start();
    let store = warm(&server).await;
    server.cli(&["SCRIPT", "FLUSH"]);
    sent(&server);
    let (mut by_hash, mut by_source) = (0, 0);
    let mut count = |_: &str| {
        let sent = sent(&server);
        by_hash += sent.get("evalsha").copied().unwrap_or(0);
        by_source += sent.get("eval").copied().unwrap_or(0);
        assert!(sent.keys().all(|command| command.starts_with("eval")), "{sent:?}");
    };
    every_operation(&store, &request("order:42"), &mut count).await;
    every_operation(&store, &request("order:42"), &mut count).await;
    // A script for each but `is_locked`, which uses that of a lookup by key.
    assert_eq!((by_hash, by_source), (12, 5));
}

#[tokio::test]
async fn a_new_handle_makes_one_connection() {
    let server = Server::start();
    let connections = || server.info("stats", "total_connections_received").unwrap().parse::<u64>().unwrap();
    let before = connections();
    let store = connect(&server).await;
    every_operation(&store, &request("order:42"), |_| ()).await;
    // The second question is a connection too.
    assert_eq!(connections() - before, 2);
}
