//! What it takes to see all locks.

use leasehold::ListRequest;
use leasehold::backend::{Backend, Record};
use leasehold::redis::Redis;
use test_servers::Redis as Server;
use test_support::redis::Other;
use test_support::{check, granted, id, request, stealing};

use crate::support::connect;

/// Makes the counters of keys that were locked once, and are free.
fn lock_once(server: &Server, keys: usize) {
    let script = "for i = 1, ARGV[1] do
        redis.call('SET', 'syncguard:fence:syncguard:order:' .. i, '17000000000000')
      end";
    server.cli(&["EVAL", script, "0", &keys.to_string()]);
}

async fn everything(store: &Redis, prefix: &str) -> Vec<Record> {
    let (mut records, mut request) = (Vec::new(), ListRequest::new(prefix));
    loop {
        let page = store.list(&request).await.unwrap();
        records.extend(page.records);
        match page.next {
            Some(next) => request = ListRequest::new(prefix).with_cursor(next),
            None => return records,
        }
    }
}

#[tokio::test]
async fn counters_of_keys_that_nobody_holds_are_never_read() {
    let server = Server::start();
    let store = connect(&server).await;
    lock_once(&server, 10_000);
    server.cli(&["CONFIG", "RESETSTAT"]);
    assert_eq!(everything(&store, "").await, []);
    assert_eq!((server.calls("scan"), server.calls("mget")), (0, 0), "nothing is held, which the server knows");

    let (mine, theirs) = (request("order:5"), id());
    granted(&store, &mine).await;
    Other(&server).acquire("order:7", &theirs, 60_000).unwrap();
    for prefix in ["", "o", "order:"] {
        server.cli(&["CONFIG", "RESETSTAT"]);
        let mut found: Vec<_> = everything(&store, prefix).await.into_iter().map(|record| record.lock_id).collect();
        found.sort_by_key(|id| id.expose() != mine.lock_id.expose());
        assert_eq!(found, [mine.lock_id, theirs], "{prefix}");
        // A step that finds something reads it, and its index if that led there.
        assert!(server.calls("mget") <= 4, "{prefix}: {} reads", server.calls("mget"));
    }
    assert_eq!(everything(&store, "f").await, []);
}

#[tokio::test]
async fn a_stolen_lock_is_listed_once_and_as_the_thief_has_it() {
    let server = Server::start();
    let store = connect(&server).await;
    granted(&store, &request("order:42")).await;
    let since = test_support::redis::now(&server);
    test_support::eventually("a millisecond has passed", async || test_support::redis::now(&server) > since + 1).await;
    let thief = stealing("order:42", 0);
    granted(&store, &thief).await;
    let found: Vec<_> = everything(&store, "").await.into_iter().map(|record| record.lock_id).collect();
    assert_eq!(found, [thief.lock_id]);
}

#[tokio::test]
async fn keys_that_look_like_counters_and_indexes_of_nobody_are_listed_as_what_they_are() {
    let server = Server::start();
    let store = connect(&server).await;
    for name in ["fence:syncguards:order", "fence:order", "id:order"] {
        granted(&store, &request(name)).await;
    }
    server.cli(&["SET", "syncguard:id:abcdefghijklmnopqrstuv", "elsewhere"]);
    server.cli(&["SET", "syncguard:id:abcdefghijklmnopqrstuw", "syncguard:id:order"]);
    server.cli(&["RPUSH", "syncguard:id:abcdefghijklmnopqrstux", "a"]);
    for (prefix, count) in [("", 3), ("fence:", 2), ("fence:syncguards", 1), ("id:", 1), ("fence:syncguard:", 0)] {
        assert_eq!(everything(&store, prefix).await.len(), count, "{prefix}");
    }
}

#[tokio::test]
async fn an_examination_tells_how_many_keys_were_ever_locked() {
    let server = Server::start();
    let store = connect(&server).await;
    lock_once(&server, 300);
    let detail = |checks: Vec<leasehold::Check>| check(&checks, "counters").detail.clone();
    assert!(detail(store.examine().await.unwrap()).starts_with("300 fence counters"));
    lock_once(&server, 20_000);
    let told = detail(store.examine().await.unwrap());
    let number: usize = told.strip_prefix("about ").unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((19_000..=20_000).contains(&number), "{told}");
}
