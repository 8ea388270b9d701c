//! An examination finds what endangers locks, and nothing else.

use leasehold::backend::Backend;
use leasehold::redis::Redis;
use leasehold::{Check, ErrorCode, Locks, Verdict};
use test_servers::{Redis as Server, RedisCluster};
use test_support::redis::snapshot;
use test_support::{check, complaints, request};

use crate::support::connect;

async fn examine(server: &Server) -> Vec<Check> {
    connect(server).await.examine().await.unwrap()
}

#[tokio::test]
async fn a_server_with_a_limit_of_memory_is_examined_in_all_its_parts() {
    let server = Server::builder().append_only("always").args(["--maxmemory", "100mb"]).start();
    let before = snapshot(&server);
    let checks = examine(&server).await;
    assert_eq!(complaints(&checks), [], "{checks:#?}");
    for name in ["redis", "permissions", "listening", "role", "eviction", "persistence", "replicas"] {
        check(&checks, name);
    }
    assert!(check(&checks, "redis").detail.contains(&server.info("server", "redis_version").unwrap()));
    assert_eq!(snapshot(&server), before, "it leaves nothing behind");
    let by_url = Locks::examine(&server.url()).await.unwrap();
    assert_eq!(check(&by_url, "exclusion").verdict, Verdict::Ok, "{by_url:#?}");
    assert!(checks.iter().all(|own| check(&by_url, own.name).verdict == own.verdict), "{by_url:#?}");
}

#[tokio::test]
async fn eviction_of_locks_or_counters_is_a_failure() {
    for (policy, counters) in
        [("allkeys-lru", true), ("allkeys-random", true), ("volatile-lru", false), ("volatile-ttl", false)]
    {
        let server = Server::with(&["--maxmemory", "50mb", "--maxmemory-policy", policy]);
        let checks = examine(&server).await;
        let found = check(&checks, "eviction");
        assert_eq!(found.verdict, Verdict::Fail, "{found:?}");
        assert!(found.detail.contains(policy) && found.detail.contains("noeviction"), "{found:?}");
        assert_eq!(found.detail.contains("fence counters"), counters, "{found:?}");
    }
    let server = Server::with(&["--maxmemory-policy", "allkeys-lru"]);
    assert_eq!(check(&examine(&server).await, "eviction").verdict, Verdict::Warn, "no limit, no eviction yet");
}

#[tokio::test]
async fn a_server_without_memory_is_said_to_have_none() {
    let server = Server::with(&["--maxmemory-policy", "noeviction"]);
    let store = connect(&server).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let checks = store.examine().await.unwrap();
    let found = check(&checks, "permissions");
    assert_eq!((found.verdict, found.error), (Verdict::Fail, Some(ErrorCode::ServiceUnavailable)));
    assert!(found.detail.contains("out of memory"), "{found:?}");
    assert!(found.hint.as_deref().is_some_and(|hint| hint.contains("maxmemory")), "{found:?}");
}

#[tokio::test]
async fn what_a_restart_would_forget_is_told() {
    for (arguments, verdict, word) in [
        (&["--save", ""][..], Verdict::Warn, "forgets all locks"),
        (&["--save", "3600 1"], Verdict::Warn, "snapshots"),
        (&["--appendonly", "yes", "--appendfsync", "everysec"], Verdict::Warn, "everysec"),
        (&["--appendonly", "yes", "--appendfsync", "no"], Verdict::Warn, "appendfsync no"),
        (&["--appendonly", "yes", "--appendfsync", "always"], Verdict::Ok, "on disk"),
    ] {
        let server = Server::with(arguments);
        let checks = examine(&server).await;
        let found = check(&checks, "persistence");
        assert_eq!(found.verdict, verdict, "{arguments:?}: {found:?}");
        assert!(found.detail.contains(word), "{arguments:?}: {found:?}");
        let others: Vec<_> = complaints(&checks).into_iter().filter(|(name, _)| *name != "persistence").collect();
        assert_eq!(others, [], "{arguments:?}");
    }
}

#[tokio::test]
async fn replicas_that_a_write_does_not_need_are_a_warning_and_a_replica_is_no_place_for_locks() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let checks = examine(&primary).await;
    let found = check(&checks, "replicas");
    assert_eq!(found.verdict, Verdict::Warn);
    assert!(found.detail.contains("min-replicas-to-write"), "{found:?}");
    primary.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_eq!(check(&examine(&primary).await, "replicas").verdict, Verdict::Ok);

    let store = connect(&replica).await;
    let checks = store.examine().await.unwrap();
    let found = check(&checks, "role");
    assert_eq!(found.verdict, Verdict::Fail);
    assert!(found.detail.contains("connect to the primary"), "{found:?}");
    let error = store.acquire(&request("order:42")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error:?}");
    assert!(error.hint().unwrap().contains("primary") && !error.outcome_unknown());
}

#[tokio::test]
async fn a_cluster_needs_a_prefix_with_a_hash_tag() {
    let cluster = RedisCluster::start();
    let checks = Redis::connect(&cluster.url()).await.unwrap().examine().await.unwrap();
    let found = check(&checks, "cluster");
    assert_eq!(found.verdict, Verdict::Fail);
    assert!(found.detail.contains("?prefix={locks}"), "{found:?}");
    for url in cluster.urls() {
        let checks = Redis::connect(&format!("{url}?prefix={{locks}}")).await.unwrap().examine().await.unwrap();
        assert_eq!(check(&checks, "cluster").verdict, Verdict::Ok);
        let others: Vec<_> = complaints(&checks).into_iter().filter(|(name, _)| *name != "persistence").collect();
        assert_eq!(others, [], "{checks:#?}");
    }
    for prefix in ["{}", "a{}b", "}{", "{locks"] {
        let store = Redis::connect(&format!("{}?prefix={prefix}", cluster.url())).await.unwrap();
        let checks = store.examine().await.unwrap();
        assert_eq!(check(&checks, "cluster").verdict, Verdict::Fail, "{prefix}");
    }
}
