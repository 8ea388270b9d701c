//! A server that stands still for longer than a lease lasts.

use std::time::Duration;

use leasehold::{LockState, Locks, Loss};
use leasehold_conformance::history::{History, What};
use test_support::{Case, cases, connect, soon, with_option};

use crate::Store;
use crate::contest::Contest;
use crate::support::assert_sound;
use crate::turns::{Turns, acquire_recorded, name_of};

pub(crate) const CASES: &[Case] = cases![
    a_holder_is_told_at_its_deadline_while_the_server_stands_still,
    nobody_overlaps_after_the_server_stood_still_for_two_leases,
    requests_that_are_carried_out_long_after_they_were_given_up_break_no_promise,
];

const TTL: Duration = Duration::from_secs(1);

async fn a_holder_is_told_at_its_deadline_while_the_server_stands_still(store: Store) {
    let server = store.server();
    let history = History::new();
    let locks = Locks::builder(connect(&server.url()).await).on_release_error(|_| {}).build();
    let rivals = Locks::new(connect(&server.url()).await);
    let guard = acquire_recorded(&locks, TTL, &history).await;

    let rival = tokio::spawn({
        let history = history.clone();
        async move {
            let guard = acquire_recorded(&rivals, TTL, &history).await;
            history.record("k", &name_of(&guard), What::ReleaseSent);
            (guard.fence(), guard.release().await)
        }
    });
    server.server().pause();
    // Nothing but its own clock can tell it.
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Expired);
    history.record("k", &name_of(&guard), What::Lost);
    assert_eq!((guard.state(), guard.remaining()), (LockState::Lost, Duration::ZERO));
    assert!(!rival.is_finished());
    tokio::time::sleep(TTL).await;
    assert_eq!(guard.state(), LockState::Lost, "what the server never answered renews nothing");
    server.server().resume();

    let (fence, released) = soon("the rival", rival).await.unwrap();
    released.unwrap();
    assert!(fence > guard.fence());
    assert_eq!(guard.state(), LockState::Lost);
    assert_eq!(guard.release().await.unwrap_err().loss(), Some(Loss::Expired));
    assert_sound(&history.events());
}

async fn nobody_overlaps_after_the_server_stood_still_for_two_leases(store: Store) {
    let server = store.server();
    // Twice the ttl of a turn, and what was asked before is carried out late.
    let stores = vec![connect(&server.url()).await, connect(&server.url()).await];
    let turns = Turns::begin(stores, "turns", 3, 20);
    tokio::time::sleep(Duration::from_millis(150)).await;
    server.server().pause();
    assert!(!turns.over(), "they were done before the server stood still");
    tokio::time::sleep(Duration::from_secs(4)).await;
    server.server().resume();
    turns.end().await;
}

async fn requests_that_are_carried_out_long_after_they_were_given_up_break_no_promise(store: Store) {
    let server = store.server();
    let url = with_option(&server.url(), "timeout=0.3s");
    Contest::new()
        .during(server, &url, |contest, server| {
            for _ in 0..3 {
                contest.await_grants(20);
                server.server().pause();
                contest.await_error();
                std::thread::sleep(Duration::from_millis(400));
                server.server().resume();
            }
            contest.await_grants(20);
        })
        .await;
}
