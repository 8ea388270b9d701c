//! Corners: what is rare, and was wrong once.

use std::time::Duration;

use leasehold::backend::{Acquire, Backend, Extend};
use leasehold::redis::{Redis, RedisOptions};
use leasehold::{ErrorCode, ListRequest, Locks, Verdict};
use test_servers::{Redis as Server, RedisCluster};

use crate::cluster::{owner, through};
use test_support::redis::{PREFIX, RULES, exists, now};
use test_support::{check, eventually, granted, key, request, stealing, ttl};

use crate::support::connect;

#[tokio::test]
async fn a_doctor_looks_at_the_node_that_has_the_locks() {
    let cluster = RedisCluster::start();
    let at = owner(&cluster);
    let node = &cluster.nodes()[at];
    node.cli(&["CONFIG", "SET", "maxmemory", "100mb"]);
    node.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let checks = Redis::connect(&through(&cluster, (at + 1) % 3)).await.unwrap().examine().await.unwrap();
    assert_eq!(check(&checks, "eviction").verdict, Verdict::Fail, "{checks:#?}");
}

#[tokio::test]
async fn a_doctor_follows_a_url_of_several_hosts_to_the_primary() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let url = format!("redis://127.0.0.1:{},127.0.0.1:{}", replica.port(), primary.port());
    let checks = Locks::examine(&url).await.unwrap();
    assert!(checks.iter().all(|check| check.verdict != Verdict::Fail), "{checks:#?}");
}

/// Makes a user with the documented rules and these, and returns the URL.
fn user(server: &Server, prefix: &str, rules: &[&str]) -> String {
    let documented = RULES.map(|rule| rule.replace(PREFIX, prefix));
    let all: Vec<_> = documented.iter().map(String::as_str).chain(rules.iter().copied()).collect();
    test_support::redis::user(server, "pw", &all)
}

#[tokio::test]
async fn a_cluster_that_moves_locks_needs_one_more_permission_which_the_doctor_names() {
    let cluster = RedisCluster::start();
    let allow = |rules: &[&str]| cluster.nodes().iter().map(|node| user(node, "{locks}", rules)).collect::<Vec<_>>();
    let url = format!("{}?prefix={{locks}}", allow(&["+info"])[0]);
    let checks = Locks::examine(&url).await.unwrap();
    assert!(check(&checks, "cluster").detail.contains("+asking"), "{checks:#?}");
    allow(&["+info", "+asking"]);
    assert_eq!(check(&Locks::examine(&url).await.unwrap(), "cluster").verdict, Verdict::Ok);
    let store = Redis::connect(&url).await.unwrap();
    let mine = request("order:42");
    granted(&store, &mine).await;
    let moving = cluster.begin_move(cluster.slot_of("{locks}:order:42"), (owner(&cluster) + 1) % 3);
    moving.move_keys();
    let extended = store.extend(&mine.lock_id, ttl(60_000)).await;
    assert!(matches!(extended, Ok(Extend::Extended { .. })), "{extended:?}");
}

#[tokio::test]
async fn another_database_needs_one_more_permission_which_the_error_names() {
    let server = Server::start();
    let url = format!("{}/3", user(&server, PREFIX, &[]));
    let error = Locks::examine(&url).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
    assert!(error.hint().is_some_and(|hint| hint.contains("+select")), "{error:?}");
    user(&server, "syncguard", &["+select"]);
    granted(&Redis::connect(&url).await.unwrap(), &request("order:42")).await;
}

#[tokio::test]
async fn a_node_that_left_the_cluster_is_left_for_another_of_the_url() {
    let cluster = RedisCluster::start();
    for node in cluster.nodes() {
        node.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let at = owner(&cluster);
    let out = &cluster.nodes()[(at + 1) % 3];
    assert_eq!(out.cli(&["CLUSTER", "RESET", "HARD"]), "OK");
    let url = format!("redis://127.0.0.1:{},127.0.0.1:{}?prefix={{locks}}", out.port(), cluster.nodes()[at].port());
    let store = Redis::connect(&url).await.unwrap();
    eventually("another node is asked", async || store.acquire(&request("order:42")).await.is_ok()).await;
}

#[tokio::test]
async fn a_node_that_gave_up_its_slots_and_left_is_forgotten() {
    let cluster = RedisCluster::start();
    for node in cluster.nodes() {
        node.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let at = owner(&cluster);
    // The URL names a healthy node; the link was sent to the owner.
    let store = Redis::connect(&through(&cluster, (at + 1) % 3)).await.unwrap();
    granted(&store, &request("order:1")).await;
    cluster.move_slot(cluster.slot_of("{locks}:order:42"), (at + 2) % 3);
    assert_eq!(cluster.nodes()[at].cli(&["CLUSTER", "RESET", "HARD"]), "OK");
    eventually("another node is asked", async || store.acquire(&request("order:42")).await.is_ok()).await;
}

#[tokio::test]
async fn a_timeout_without_end_is_no_panic() {
    let server = Server::start();
    let options = RedisOptions::default().with_timeout(Duration::MAX);
    if let Ok(store) = Redis::connect_with(&server.url(), options).await {
        granted(&store, &request("order:42")).await;
    }
}

#[tokio::test]
async fn a_forced_release_that_fails_ends_nothing() {
    let server = Server::start();
    let store = connect(&server).await;
    let far = now(&server) + 60_000;
    for (id, fence, name) in [
        ("short", "000000000000007", "order:42"),
        ("abcdefghijklmnopqrstuv", "999999999999999", "order:42"),
        ("abcdefghijklmnopqrstuv", "000000000000007", ""),
    ] {
        let raw =
            format!(r#"{{"lockId":"{id}","expiresAtMs":{far},"acquiredAtMs":1,"key":"{name}","fence":"{fence}"}}"#);
        server.cli(&["SET", "syncguard:order:42", &raw]);
        let ended = store.force_release(&key("order:42"), None).await;
        assert!(ended.is_ok() || exists(&server, "syncguard:order:42"), "{raw}: ended, and yet {ended:?}");
    }
}

#[tokio::test]
async fn a_broken_record_of_ours_is_said_to_be_one() {
    let server = Server::start();
    let store = connect(&server).await;
    let far = now(&server) + 60_000;
    let raw = format!(r#"{{"lockId":"abcdefghijklmnopqrstuv","expiresAtMs":{far},"acquiredAtMs":1,"key":"#);
    server.cli(&["SET", "syncguard:order:42", &raw]);
    let forced = store.force_release(&key("order:42"), None).await.unwrap_err();
    let stolen = store.acquire(&stealing("order:42", 0)).await.unwrap_err();
    for error in [forced, stolen] {
        assert!(error.hint().is_some() && !error.outcome_unknown(), "{error:?}");
    }
}

#[tokio::test]
async fn a_cursor_that_no_server_gave_is_an_invalid_argument() {
    let server = Server::start();
    let store = connect(&server).await;
    let error = store
        .list(&ListRequest::new("").with_cursor(r#"{"step":"99999999999999999999","left":[]}"#))
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
}

#[tokio::test]
async fn a_listing_has_one_deadline() {
    let server = Server::start();
    server.cli(&["EVAL", "for i = 1, 200000 do redis.call('SET', 'other:' .. i, i) end", "0"]);
    let store = Redis::connect(&format!("{}?timeout=1s", server.url())).await.unwrap();
    // A busy server: every script takes a while.
    let port = server.port();
    let busy = std::thread::spawn(move || {
        use std::io::Write;
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        use std::io::Read;
        let script = "local t = redis.call('TIME'); local n = t; repeat n = redis.call('TIME') until (n[1] - t[1]) * 1000000 + n[2] - t[2] > 300000";
        let command = format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len());
        for _ in 0..30 {
            stream.write_all(command.as_bytes()).unwrap();
            stream.read_exact(&mut [0; 5]).unwrap();
        }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    // By the same clock as the timeout of 1 s, which a busy machine does not hurry.
    let listed = tokio::time::timeout(Duration::from_millis(1500), store.list(&ListRequest::new(""))).await;
    drop(busy);
    assert!(listed.is_ok(), "it took longer than its timeout");
}

#[tokio::test]
async fn a_redirection_without_a_host_leads_to_the_same_host() {
    let cluster = RedisCluster::start();
    for node in cluster.nodes() {
        assert_eq!(node.cli(&["CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint"]), "OK");
    }
    let at = owner(&cluster);
    let store = Redis::connect(&through(&cluster, (at + 1) % 3)).await.unwrap();
    let outcome = store.acquire(&request("order:42")).await;
    assert!(matches!(outcome, Ok(Acquire::Granted(_))), "{outcome:?}");
}

#[tokio::test]
async fn an_option_for_sockets_is_not_silently_ignored_elsewhere() {
    let server = Server::start();
    let error = Redis::connect(&format!("{}?db=3", server.url())).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
}

#[tokio::test]
async fn an_at_sign_in_a_prefix_is_part_of_the_prefix() {
    let server = Server::start();
    let store = Redis::connect(&format!("{}?prefix=team@app", server.url())).await.unwrap();
    granted(&store, &request("order:42")).await;
    assert!(exists(&server, "team@app:order:42"), "{}", server.cli(&["KEYS", "*"]));
}

#[tokio::test]
async fn signs_in_the_password_of_a_socket_are_themselves() {
    for password in ["a+b/c=", "p@ss"] {
        let server = Server::builder().password(password).start();
        let outcome = Redis::connect(&format!("unix://{}?prefix=app&pass={password}", server.socket().display())).await;
        assert!(outcome.is_ok(), "{password}: {:?}", outcome.err());
    }
}

#[tokio::test]
async fn a_password_that_is_not_encoded_never_makes_another_host() {
    let other = Server::start();
    let port = other.port();
    // The real host is in the documentation range and never answers.
    for url in [
        format!("redis://localhost:{port}#word@192.0.2.1:6379?timeout=0.3s"),
        format!("redis://localhost:{port}?word@192.0.2.1:6379?timeout=0.3s"),
    ] {
        let outcome = Redis::connect(&url).await;
        assert!(outcome.is_err(), "{url} led to the host that is the user name");
    }
}

#[tokio::test]
async fn many_at_once_leave_a_replica_for_the_primary() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let store =
        Redis::connect(&format!("redis://127.0.0.1:{},127.0.0.1:{}", replica.port(), primary.port())).await.unwrap();
    for _ in 0..10 {
        let (one, two) = (request("order:1"), request("order:2"));
        let outcome = tokio::join!(store.acquire(&one), store.acquire(&two));
        if matches!(outcome, (Ok(Acquire::Granted(_)), Ok(Acquire::Granted(_)))) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("two at once never get away from the replica");
}
