//! A server that stands still for longer than a lease lasts.

use std::time::Duration;

use leasehold::{LockState, Locks, Loss};
use leasehold_conformance::history::{History, What};
use test_servers::Redis;

use crate::contest::Contest;
use crate::store::connect;
use crate::support::{assert_sound, in_time};
use crate::turns::{Turns, record_grant};

const TTL: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_is_told_at_its_deadline_while_the_server_stands_still() {
    let server = Redis::start();
    let history = History::new();
    let locks = Locks::builder(connect(&server.url()).await).on_release_error(|_| {}).build();
    let rivals = Locks::new(connect(&server.url()).await);
    let sent = history.now();
    let guard = locks.lock("k").ttl(TTL).acquire().await.unwrap();
    let name = guard.lock_id().hash_id().to_string();
    history.record_at(sent, "k", &name, What::AcquireSent { may_steal: false });
    record_grant(&history, &guard);

    let rival = tokio::spawn({
        let history = history.clone();
        async move {
            let sent = history.now();
            let guard = rivals.lock("k").ttl(TTL).wait_forever().acquire().await.unwrap();
            let name = guard.lock_id().hash_id().to_string();
            history.record_at(sent, "k", &name, What::AcquireSent { may_steal: false });
            record_grant(&history, &guard);
            history.record("k", &name, What::ReleaseSent);
            (guard.fence(), guard.release().await)
        }
    });
    server.pause();
    // Nothing but its own clock can tell it.
    assert_eq!(in_time("a loss that is not told", guard.lost()).await, Loss::Expired);
    history.record("k", &name, What::Lost);
    assert_eq!((guard.state(), guard.remaining()), (LockState::Lost, Duration::ZERO));
    assert!(!rival.is_finished());
    tokio::time::sleep(TTL).await;
    assert_eq!(guard.state(), LockState::Lost, "what the server never answered renews nothing");
    server.resume();

    let (fence, released) = in_time("the rival never gets the lock", rival).await.unwrap();
    released.unwrap();
    assert!(fence > guard.fence());
    assert_eq!(guard.state(), LockState::Lost);
    assert_eq!(guard.release().await.unwrap_err().loss(), Some(Loss::Expired));
    assert_sound(&history.events());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_overlaps_after_the_server_stood_still_for_two_leases() {
    let server = Redis::start();
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

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_carried_out_long_after_they_were_given_up_break_no_promise() {
    let server = Redis::start();
    let url = format!("{}?timeout=0.3", server.url());
    Contest::new()
        .during(server, &url, |contest, server| {
            for _ in 0..3 {
                contest.await_grants(20);
                server.pause();
                std::thread::sleep(Duration::from_millis(700));
                server.resume();
            }
            contest.await_grants(20);
        })
        .await;
}
