//! Servers that end connections in the middle of anything.

use std::sync::Arc;
use std::time::Duration;

use test_support::{Case, DEADLINE, StoreServer, cases, connect};

use crate::Store;
use crate::contest::Contest;
use crate::turns::Turns;

pub(crate) const CASES: &[Case] = cases![
    connections_that_are_ended_at_any_moment_break_no_promise,
    whoever_waits_gets_a_turn_while_connections_are_ended,
    whoever_stands_in_line_gets_a_turn_while_connections_are_ended,
];

async fn connections_that_are_ended_at_any_moment_break_no_promise(store: Store) {
    let server = store.server();
    let url = server.url();
    Contest::new()
        .during(server, &url, |contest, server| {
            let mut ended = 0;
            for _ in 0..20 {
                ended += server.end_connections();
                contest.await_grants(5);
            }
            assert!(ended >= 20, "{ended} connections were ended");
        })
        .await;
}

async fn whoever_waits_gets_a_turn_while_connections_are_ended(store: Store) {
    let server = store.server();
    let stores = vec![connect(&server.url()).await, connect(&server.url()).await, connect(&server.url()).await];
    let (listeners, others) = end_connections_during(&server, Turns::begin_unfair(stores, "turns", 3, 25)).await;
    assert!(listeners > 5 && others > 5, "{listeners} and {others} connections were ended");
}

/// Whoever does not hear its call keeps the others waiting until it looks by itself, so there are
/// fewer turns.
async fn whoever_stands_in_line_gets_a_turn_while_connections_are_ended(store: Store) {
    let server = store.server();
    let stores = vec![connect(&server.url()).await, connect(&server.url()).await, connect(&server.url()).await];
    let (listeners, others) = end_connections_during(&server, Turns::begin(stores, "turns", 2, 3)).await;
    assert!(listeners + others > 0, "{listeners} and {others} connections were ended");
}

async fn end_connections_during(server: &Arc<dyn StoreServer>, turns: Turns) -> (usize, usize) {
    let (mut listeners, mut others) = (0, 0);
    while !turns.over() {
        listeners += server.end_listeners();
        tokio::time::sleep(Duration::from_millis(20)).await;
        others += server.end_connections();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(Duration::from_nanos(turns.history.now()) < DEADLINE, "somebody waits for a turn that never comes");
    }
    turns.end().await;
    (listeners, others)
}
