//! Scripts are sent once, a handle makes one connection, and a line costs only where there is one.

use std::collections::BTreeMap;

use leasehold::backend::{Backend, Line, Release};
use leasehold::redis::Redis;
use test_servers::Redis as Server;
use test_support::redis::{commands, commands_and_those_of_scripts as done};
use test_support::{every_operation, granted, held, request, ttl};

use crate::support::{connect, joining};

#[tokio::test]
async fn a_server_that_forgot_its_scripts_is_sent_each_of_them_once() {
    let server = Server::start();
    let store = connect(&server).await;
    every_operation(&store, |_| ()).await;
    server.cli(&["SCRIPT", "FLUSH"]);
    commands(&server);
    let (mut by_hash, mut by_source) = (0, 0);
    let mut count = |_: &str| {
        let sent = commands(&server);
        by_hash += sent.get("evalsha").copied().unwrap_or(0);
        by_source += sent.get("eval").copied().unwrap_or(0);
        assert!(sent.keys().all(|command| command.starts_with("eval")), "{sent:?}");
    };
    every_operation(&store, &mut count).await;
    every_operation(&store, &mut count).await;
    // A script for each operation but `is_locked`, which uses that of a lookup by key.
    assert_eq!((by_hash, by_source), (24, 7));
}

#[tokio::test]
async fn a_new_handle_makes_one_connection() {
    let server = Server::start();
    let connections = || server.info("stats", "total_connections_received").unwrap().parse::<u64>().unwrap();
    let before = connections();
    let store = connect(&server).await;
    every_operation(&store, |_| ()).await;
    // The second question is a connection too.
    assert_eq!(connections() - before, 2);
}

/// All that the server did for an acquire and a release of a lock that nobody else wants.
async fn pair(server: &Server, store: &Redis, line: Line) -> BTreeMap<String, u64> {
    done(server);
    let request = request("order:42").with_line(line);
    granted(store, &request).await;
    store.release(&request.lock_id).await.unwrap();
    done(server)
}

#[tokio::test]
async fn a_lock_that_nobody_waits_for_costs_the_same_whatever_is_done_about_the_line() {
    let server = Server::start();
    let store = connect(&server).await;
    pair(&server, &store, Line::Ignore).await;
    let plain = pair(&server, &store, Line::Ignore).await;
    assert_eq!(plain["evalsha"], 2);
    assert_eq!(pair(&server, &store, Line::Heed).await, plain);
    assert_eq!(pair(&server, &store, Line::Join { lease: ttl(9000) }).await, plain);
}

#[tokio::test]
async fn a_hand_over_costs_the_server_the_same_however_many_wait() {
    let server = Server::start();
    let store = connect(&server).await;
    let mut costs = Vec::new();
    // The first time the server learns the scripts.
    for waiting in [3, 2, 100] {
        let name = format!("order:{waiting}");
        let holder = request(&name);
        granted(&store, &holder).await;
        let line: Vec<_> = (0..waiting).map(|_| joining(request(&name), 60_000)).collect();
        for waiter in &line {
            held(&store, waiter).await;
        }
        done(&server);
        assert_eq!(store.release(&holder.lock_id).await.unwrap(), Release::Released);
        granted(&store, &line[0]).await;
        costs.push(done(&server));
    }
    assert_eq!(costs[1], costs[2]);
    assert_eq!(costs[1]["evalsha"], 2, "one release and one acquire");
}
