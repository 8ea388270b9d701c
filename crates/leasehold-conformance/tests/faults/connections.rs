//! Servers that end connections in the middle of anything.

use std::time::Duration;

use test_support::{Case, DEADLINE, cases, connect};

use crate::Store;
use crate::contest::Contest;
use crate::turns::Turns;

pub(crate) const CASES: &[Case] = cases![
    connections_that_are_ended_at_any_moment_break_no_promise,
    whoever_waits_gets_a_turn_while_connections_are_ended,
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
    let turns = Turns::begin(stores, "turns", 3, 25);
    let (mut listeners, mut others) = (0, 0);
    while !turns.over() {
        listeners += server.end_listeners();
        tokio::time::sleep(Duration::from_millis(20)).await;
        others += server.end_connections();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(Duration::from_nanos(turns.history.now()) < DEADLINE, "somebody waits for a turn that never comes");
    }
    let summary = turns.end().await;
    assert!(listeners > 5 && others > 5, "{listeners} and {others} connections were ended: {summary:?}");
}
