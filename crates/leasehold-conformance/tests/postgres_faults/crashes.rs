//! Servers that end connections, stand still or crash.

use std::time::Duration;

use crate::contest::Contest;
use crate::store::{connect, server};
use crate::turns::Turns;

/// What everybody in a contest is called.
const OURS: &str = "application_name = 'leasehold'";

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_ended_at_any_moment_break_no_promise() {
    let server = server(&[]).await;
    let url = server.url();
    Contest::new()
        .during(server, &url, |contest, server| {
            for _ in 0..15 {
                contest.await_grants(5);
                server.terminate_backends(&format!("{OURS} AND random() < 0.5"));
            }
            while server.terminate_backends(&format!("{OURS} AND state = 'active'")) == 0 {}
            contest.await_grants(20);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_gets_a_turn_while_connections_are_ended() {
    let server = server(&[]).await;
    let stores = vec![connect(&server.url()).await, connect(&server.url()).await];
    let turns = Turns::begin(stores, "turns", 3, 20);
    let mut ended = 0;
    while !turns.over() {
        ended += server.terminate_backends(OURS);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(ended > 5, "{ended} connections were ended");
    turns.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_restarted_without_order_breaks_no_promise() {
    let server = server(&[]).await;
    let url = server.url();
    Contest::new()
        .during(server, &url, |contest, server| {
            for _ in 0..3 {
                contest.await_grants(20);
                server.restart_immediate();
            }
            contest.await_grants(20);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_breaks_no_promise() {
    let server = server(&[]).await;
    let url = server.url();
    Contest::new()
        .during(server, &url, |contest, server| {
            for _ in 0..4 {
                contest.await_grants(20);
                server.kill();
                server.restart();
            }
            contest.await_grants(20);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_carried_out_long_after_they_were_given_up_break_no_promise() {
    let server = server(&[]).await;
    let url = format!("{}?timeout=0.3", server.url());
    Contest::new()
        .during(server, &url, |contest, server| {
            for _ in 0..3 {
                contest.await_grants(20);
                server.pause();
                contest.await_error();
                std::thread::sleep(Duration::from_millis(300));
                server.resume();
            }
            contest.await_grants(20);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_overlaps_after_the_server_stood_still_for_two_leases() {
    let server = server(&[]).await;
    // Twice the ttl of a turn, and what was asked before is carried out late.
    let stores = vec![connect(&server.url()).await, connect(&server.url()).await];
    let turns = Turns::begin(stores, "turns", 3, 20);
    tokio::time::sleep(Duration::from_millis(150)).await;
    server.pause();
    assert!(!turns.over(), "they were done before the server stood still");
    tokio::time::sleep(Duration::from_secs(4)).await;
    server.resume();
    turns.end().await;
}
