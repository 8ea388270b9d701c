//! Replies that make no sense, and replies that never come.

use std::time::Duration;

use leasehold::{Absence, Acquire, ErrorCode, ForceRelease, LookupBy, Operation, Release, Ttl};
use leasehold_conformance::history::History;
use test_servers::{Proxy, Redis};

use crate::recorder::Recorder;
use crate::store::{connect, through};
use crate::support::{PATIENCE, assert_sound, granted, in_time, request};

/// Not the protocol, and the protocol without sense.
const GARBAGE: [&str; 5] = [
    "HTTP/1.1 400 Bad Request\r\n\r\n",
    "\u{0}\u{1}\u{2}\r\n",
    "$5\r\nhello\r\n",
    "*2\r\n:1\r\n:2\r\n",
    "*4\r\n:1\r\n:-1\r\n:-1\r\n:-1\r\n",
];

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_sense_is_an_error_of_unknown_outcome_and_spoils_no_other_call() {
    let server = Redis::start();
    let proxy = Proxy::start(server.address());
    let history = History::new();
    let client = Recorder::new(connect(&through(&proxy)).await, &history);
    for garbage in GARBAGE {
        let wanted = request("k");
        let nonsense = |error: leasehold::Error, operation| {
            assert_eq!(error.code(), ErrorCode::Internal, "{garbage:?}: {error:?}");
            assert_eq!(error.operation(), Some(operation), "{garbage:?}");
            assert!(error.outcome_unknown() && !error.to_string().contains("hello"), "{garbage:?}: {error:?}");
        };
        let rule = proxy.garble("EVAL", garbage);
        nonsense(client.acquire(&wanted).await.map(drop).unwrap_err(), Operation::Acquire);
        assert!(rule.wait_fired(PATIENCE));
        assert!(!client.store.is_locked(&wanted.key).await.unwrap());
        granted(client.acquire(&wanted).await);
        drop(proxy.garble("EVAL", garbage));
        nonsense(client.extend(&wanted.lock_id, Ttl::default()).await.map(drop).unwrap_err(), Operation::Extend);
        drop(proxy.garble("EVAL", garbage));
        nonsense(client.release(&wanted.lock_id).await.map(drop).unwrap_err(), Operation::Release);
        assert_eq!(client.release(&wanted.lock_id).await.unwrap(), Release::Released);
        assert!(matches!(client.store.force_release(&wanted.key).await.unwrap(), ForceRelease::Absent));
    }
    assert_sound(&history.events());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_never_comes_is_given_up_and_the_next_call_gets_a_new_connection() {
    let server = Redis::start();
    let proxy = Proxy::start(server.address());
    let history = History::new();
    let client = Recorder::new(connect(&format!("{}?timeout=0.5", through(&proxy))).await, &history);
    let late = |error: leasehold::Error, operation| {
        assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error:?}");
        assert_eq!(error.operation(), Some(operation));
        assert!(error.outcome_unknown() && error.is_retryable() && error.hint().is_some(), "{error:?}");
        assert!(error.to_string().contains("500ms"), "{error}");
    };

    // The server learns the scripts, so that it has done what it does not answer.
    let known = request("known");
    granted(client.acquire(&known).await);
    client.release(&known.lock_id).await.unwrap();
    let wanted = request("k");
    let before = proxy.counts().connections;
    let rule = proxy.stall("EVALSHA");
    let error = in_time("an answer that never comes", client.acquire(&wanted)).await.map(drop).unwrap_err();
    late(error, Operation::Acquire);
    assert!(rule.wait_fired(PATIENCE));
    let grant = granted(client.acquire(&wanted).await);
    assert_eq!(proxy.counts().connections, before + 1);
    let record = client.store.lookup(LookupBy::Key(&wanted.key)).await.unwrap().unwrap();
    assert_eq!((record.fence, record.expires_at), (grant.fence, grant.expires_at), "it was granted the first time");

    let rule = proxy.stall("EVALSHA");
    let error = in_time("an answer that never comes", client.release(&wanted.lock_id)).await.unwrap_err();
    late(error, Operation::Release);
    assert!(rule.wait_fired(PATIENCE));
    assert_eq!(client.release(&wanted.lock_id).await.unwrap(), Release::Absent(Absence::NotFound));
    assert_eq!(proxy.counts().connections, before + 2);
    assert_sound(&history.events());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_answer_that_never_comes_holds_up_no_other_handle() {
    let server = Redis::start();
    let proxy = Proxy::start(server.address());
    let history = History::new();
    let stuck = Recorder::new(connect(&format!("{}?timeout=0.5", through(&proxy))).await, &history);
    let other = Recorder::new(connect(&format!("{}?timeout=0.5", through(&proxy))).await, &history);
    granted(stuck.acquire(&request("known")).await);
    let rule = proxy.stall("EVALSHA");
    let wanted = request("k");
    let hanging = stuck.acquire(&wanted);
    let meanwhile = async {
        assert!(rule.wait_fired(Duration::from_secs(20)));
        other.acquire(&request("k")).await.unwrap()
    };
    let (hung, answer) = in_time("an answer that never comes", async { tokio::join!(hanging, meanwhile) }).await;
    assert!(hung.unwrap_err().outcome_unknown());
    assert!(matches!(answer, Acquire::Held(_)), "the server has granted what was not answered");
    assert_sound(&history.events());
}
