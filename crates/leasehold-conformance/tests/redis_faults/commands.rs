//! Commands of an operator that get in the way: `SCRIPT FLUSH`, `CLIENT KILL`, `CLIENT PAUSE`.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use leasehold_conformance::RealHarness;
use leasehold_conformance::history::{HistoryOptions, concurrent};
use test_servers::Redis;

use crate::contest::Contest;
use crate::store::connect;
use crate::turns::Turns;

const TROUBLE: Duration = Duration::from_secs(3);

/// Runs a history in which no call may fail, and `trouble` beside it, over and over.
async fn unharmed_by(trouble: impl Fn(&Redis) + Send + 'static) {
    let server = Arc::new(Redis::start());
    let (store, peer) = (connect(&server.url()).await, connect(&server.url()).await);
    let options = HistoryOptions { duration: TROUBLE, ..HistoryOptions::real_clock() };
    let history = concurrent(Arc::new(RealHarness::new(store, peer)), &options);
    let troubled = tokio::task::spawn_blocking(move || {
        let started = Instant::now();
        while started.elapsed() < TROUBLE {
            trouble(&server);
        }
        server
    });
    let (summary, server) = (history.await, troubled.await.unwrap());
    summary.unwrap();
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_keeps_forgetting_the_scripts_fails_nobody() {
    unharmed_by(|server| {
        assert_eq!(server.cli(&["SCRIPT", "FLUSH"]), "OK");
        sleep(Duration::from_millis(1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_paused_again_and_again_fails_nobody() {
    unharmed_by(|server| {
        // While it is paused nobody is answered, this connection included.
        assert_eq!(server.cli(&["CLIENT", "PAUSE", "40", "ALL"]), "OK");
        assert_eq!(server.cli(&["PING"]), "PONG");
        sleep(Duration::from_millis(20));
    })
    .await;
}

/// Has the server close all connections of a kind. Returns how many.
fn kill(server: &Redis, kind: &str) -> usize {
    server.cli(&["CLIENT", "KILL", "TYPE", kind]).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_killed_in_the_middle_of_anything_break_no_promise() {
    let server = Redis::start();
    let url = server.url();
    Contest::new()
        .during(server, &url, |contest, server| {
            let mut killed = 0;
            for _ in 0..60 {
                killed += kill(server, "normal");
                contest.await_grants(5);
            }
            assert!(killed >= 60, "{killed} connections killed");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_who_waits_gets_a_turn_though_connections_are_killed() {
    let server = Redis::start();
    let stores = vec![connect(&server.url()).await, connect(&server.url()).await, connect(&server.url()).await];
    let turns = Turns::begin(stores, "turns", 3, 15);
    let (mut subscribers, mut others) = (0, 0);
    while !turns.over() {
        subscribers += kill(&server, "pubsub");
        tokio::time::sleep(Duration::from_millis(20)).await;
        others += kill(&server, "normal");
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(turns.history.now() < 25_000_000_000, "somebody waits for a turn that never comes");
    }
    let summary = turns.end().await;
    assert!(subscribers > 10 && others > 10, "{subscribers} and {others} connections killed: {summary:?}");
}
