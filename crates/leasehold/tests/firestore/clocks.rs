//! A server whose clock is ahead of this host's. A host that is ahead, and two hosts whose clocks
//! differ, are in the tests of the store itself, which can set its clock.

use leasehold::ErrorCode;
use leasehold::backend::{Backend, Extend, Release};
use test_servers::Firestore;
use test_support::{Warnings, connect, granted, request, ttl};

#[tokio::test]
async fn a_host_whose_clock_is_beyond_the_tolerance_gets_no_lock_and_hears_why() {
    for offset in [1_500, 3_600_000] {
        let server = Firestore::start();
        let store = connect(&server.url()).await;
        server.set_clock_offset(offset);
        let error = store.acquire(&request("other")).await.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), (ErrorCode::Internal, false), "{error:?}");
        assert!(error.to_string().contains("clock") && error.to_string().contains("behind"), "{error}");
        assert!(error.hint().is_some() && !error.outcome_unknown());
        assert!(server.document("locks/other").is_none());
    }
    let server = Firestore::start();
    server.set_clock_offset(900);
    granted(&*connect(&server.url()).await, &request("other")).await;
}

#[tokio::test]
async fn a_lock_that_is_held_can_be_extended_and_released_whatever_the_clock_shows() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let held = request("order:42");
    granted(&*store, &held).await;
    // This host is now more than a second behind.
    server.set_clock_offset(5_000);
    let Extend::Extended { expires_at } = store.extend(&held.lock_id, ttl(30_000)).await.unwrap() else { panic!() };
    let server_now = server.now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let left = u128::from(expires_at.as_millis()).saturating_sub(server_now);
    assert!((29_000..=31_500).contains(&left), "by the server's clock it has {left} ms left, not the 25 s of ours");
    assert_eq!(store.release(&held.lock_id).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn fences_are_never_below_the_servers_clock_and_never_go_back() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let mut last = None;
    for offset in [0, 300, 900, 0, 900] {
        server.set_clock_offset(offset);
        let held = request("order:42");
        let floor = server.now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() / 100;
        let fence = granted(&*store, &held).await.fence;
        assert!(last.is_none_or(|last| fence > last) && u128::from(fence.get()) >= floor, "{offset}: {fence}");
        last = Some(fence);
        store.release(&held.lock_id).await.unwrap();
    }
}

#[tokio::test]
async fn a_clock_that_is_off_by_more_than_half_a_second_is_worth_one_warning() {
    for (offset, warned) in [(200, 0), (800, 1)] {
        let server = Firestore::start();
        server.set_clock_offset(offset);
        let store = connect(&server.url()).await;
        let (warnings, _guard) = Warnings::collect();
        for number in 0..3 {
            granted(&*store, &request(&format!("order:{number}"))).await;
        }
        let said = warnings.said();
        assert_eq!(said.iter().filter(|said| said.contains("clock")).count(), warned, "{offset} ms: {said:?}");
    }
}
