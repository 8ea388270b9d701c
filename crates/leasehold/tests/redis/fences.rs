//! A fence counter is text that anybody could have written.

use leasehold::ErrorCode;
use leasehold::backend::Backend;
use test_servers::Redis as Server;
use test_support::redis::snapshot;
use test_support::{granted, request};

use crate::support::connect;

const COUNTER: &str = "syncguard:fence:syncguard:order:42";

#[tokio::test]
async fn a_counter_with_more_digits_than_a_number_has_is_beyond_the_highest() {
    let server = Server::start();
    let store = connect(&server).await;
    server.cli(&["SET", COUNTER, "000012"]);
    let held = request("order:42");
    granted(&store, &held).await;
    store.release(&held.lock_id).await.unwrap();
    server.cli(&["SET", COUNTER, "99999999999999999999999"]);
    let before = snapshot(&server);
    let error = store.acquire(&request("order:42")).await.unwrap_err();
    assert_eq!((error.code(), error.outcome_unknown()), (ErrorCode::Internal, false), "{error:?}");
    assert!(error.to_string().contains("beyond the highest"), "{error}");
    assert_eq!(snapshot(&server), before);
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
