//! Scripts are sent once, and a handle makes one connection.

use test_servers::Redis as Server;
use test_support::every_operation;
use test_support::redis::commands;

use crate::support::connect;

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
