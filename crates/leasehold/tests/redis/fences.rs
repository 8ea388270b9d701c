//! Fences go on from a counter that others increment too, and never fall below the clock.

use leasehold::{Backend, ErrorCode, Fence, Release};
use test_servers::Redis as Server;

use crate::support::{connect, get, granted, now, request, snapshot};

const COUNTER: &str = "syncguard:fence:syncguard:order:42";

#[tokio::test]
async fn a_fence_is_one_more_than_a_counter_that_is_ahead_of_the_clock() {
    let server = Server::start();
    let store = connect(&server).await;
    server.cli(&["SET", COUNTER, "100000000000000"]);
    let mut last = 100_000_000_000_000;
    for _ in 0..3 {
        let held = request("order:42");
        assert_eq!(granted(&store, &held).await.fence.get(), last + 1);
        assert_eq!(get(&server, COUNTER), (last + 1).to_string());
        assert_eq!(store.release(&held.lock_id).await.unwrap(), Release::Released);
        // The other library's next grant.
        assert_eq!(server.cli(&["INCR", COUNTER]), (last + 2).to_string());
        last += 2;
    }
}

#[tokio::test]
async fn a_fence_is_the_clock_when_the_counter_is_behind_or_missing() {
    let server = Server::start();
    let store = connect(&server).await;
    for counter in [None, Some("7"), Some("0"), Some("000012")] {
        if let Some(counter) = counter {
            server.cli(&["SET", COUNTER, counter]);
        }
        let held = request("order:42");
        let before = now(&server);
        let fence = granted(&store, &held).await.fence;
        // In units of 100 microseconds.
        assert!((before * 10..(now(&server) + 1) * 10).contains(&fence.get()), "{fence} after {counter:?}");
        assert_eq!(get(&server, COUNTER), fence.get().to_string());
        store.release(&held.lock_id).await.unwrap();
    }
}

#[tokio::test]
async fn fences_go_on_rising_after_the_server_lost_everything() {
    let server = Server::start();
    let store = connect(&server).await;
    let mut last = None;
    for _ in 0..5 {
        let fence = granted(&store, &request("order:42")).await.fence;
        assert!(Some(fence) > last);
        last = Some(fence);
        server.cli(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn the_highest_fence_is_granted_and_none_beyond_it() {
    let server = Server::start();
    let store = connect(&server).await;
    server.cli(&["SET", COUNTER, "899999999999999"]);
    let held = request("order:42");
    assert_eq!(granted(&store, &held).await.fence, Fence::MAX);
    assert_eq!(get(&server, COUNTER), "900000000000000");
    store.release(&held.lock_id).await.unwrap();
    for counter in ["900000000000000", "9007199254740993", "99999999999999999999999"] {
        server.cli(&["SET", COUNTER, counter]);
        let before = snapshot(&server);
        let error = store.acquire(&request("order:42")).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Internal, "{counter}");
        assert!(error.to_string().contains("beyond the highest"), "{error}");
        assert!(!error.outcome_unknown() && !error.is_retryable());
        assert_eq!(snapshot(&server), before, "{counter}");
    }
}

#[tokio::test]
async fn a_counter_that_is_no_number_is_an_error_that_changes_nothing() {
    let server = Server::start();
    let store = connect(&server).await;
    for counter in ["garbage", "", "-5", "1.5", "7 8", "nan", "inf"] {
        server.cli(&["SET", COUNTER, counter]);
        let before = snapshot(&server);
        let error = store.acquire(&request("order:42")).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Internal, "{counter}");
        assert!(error.hint().unwrap().contains("higher than any fence"), "{error:?}");
        assert_eq!(snapshot(&server), before, "{counter}");
    }
    server.cli(&["DEL", COUNTER]);
    server.cli(&["RPUSH", COUNTER, "7"]);
    let before = snapshot(&server);
    let error = store.acquire(&request("order:42")).await.unwrap_err();
    assert_eq!((error.code(), error.outcome_unknown()), (ErrorCode::Internal, false));
    assert_eq!(snapshot(&server), before);
}
