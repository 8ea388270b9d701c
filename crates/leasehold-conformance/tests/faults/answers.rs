//! Replies that never come.

use leasehold::backend::{Absence, Acquire, LookupBy, Release};
use leasehold::{ErrorCode, Operation};
use leasehold_conformance::history::History;
use test_servers::Proxy;
use test_support::{Case, DEADLINE, cases, connect, grant, request, soon};

use crate::Store;
use crate::recorder::Recorder;
use crate::support::assert_sound;

pub(crate) const CASES: &[Case] = cases![
    an_answer_that_never_comes_is_given_up_and_the_next_call_gets_a_new_connection,
    one_answer_that_never_comes_holds_up_no_other_handle,
];

async fn an_answer_that_never_comes_is_given_up_and_the_next_call_gets_a_new_connection(store: Store) {
    let server = store.server();
    let proxy = Proxy::start(server.server().address());
    let history = History::new();
    let client =
        Recorder::new(connect(&format!("{}?timeout=0.5s", server.url_at(proxy.address(), None))).await, &history);
    let late = |error: leasehold::Error, operation| {
        assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error:?}");
        assert_eq!(error.operation(), Some(operation));
        assert!(error.outcome_unknown() && error.is_retryable() && error.hint().is_some(), "{error:?}");
        assert!(error.to_string().contains("500ms"), "{error}");
    };

    // The server learns the scripts, so that it has done what it does not answer.
    let known = request("known");
    grant(client.acquire(&known).await);
    client.release(&known.lock_id).await.unwrap();
    let wanted = request("k");
    // A new one, and perhaps one to stop what was given up.
    let made_since = |before| (before + 1..=before + 2).contains(&proxy.counts().connections);
    let before = proxy.counts().connections;
    let rule = proxy.stall(server.operation_bytes());
    let error = soon("an error", client.acquire(&wanted)).await.map(drop).unwrap_err();
    late(error, Operation::Acquire);
    assert!(rule.wait_fired(DEADLINE));
    let grant = grant(client.acquire(&wanted).await);
    assert!(made_since(before));
    let record = client.store.lookup(LookupBy::Key(&wanted.key)).await.unwrap().unwrap();
    assert_eq!((record.fence, record.expires_at), (grant.fence, grant.expires_at), "it was granted the first time");

    let before = proxy.counts().connections;
    let rule = proxy.stall(server.operation_bytes());
    let error = soon("an error", client.release(&wanted.lock_id)).await.unwrap_err();
    late(error, Operation::Release);
    assert!(rule.wait_fired(DEADLINE));
    assert_eq!(client.release(&wanted.lock_id).await.unwrap(), Release::Absent(Absence::NotFound));
    assert!(made_since(before));
    assert_sound(&history.events());
}

async fn one_answer_that_never_comes_holds_up_no_other_handle(store: Store) {
    let server = store.server();
    let proxy = Proxy::start(server.server().address());
    let history = History::new();
    let stuck =
        Recorder::new(connect(&format!("{}?timeout=0.5s", server.url_at(proxy.address(), None))).await, &history);
    let other =
        Recorder::new(connect(&format!("{}?timeout=0.5s", server.url_at(proxy.address(), None))).await, &history);
    grant(stuck.acquire(&request("known")).await);
    let rule = proxy.stall(server.operation_bytes());
    let wanted = request("k");
    let hanging = stuck.acquire(&wanted);
    let meanwhile = async {
        assert!(rule.wait_fired(DEADLINE));
        other.acquire(&request("k")).await.unwrap()
    };
    let (hung, answer) = soon("an error", async { tokio::join!(hanging, meanwhile) }).await;
    assert!(hung.unwrap_err().outcome_unknown());
    assert!(matches!(answer, Acquire::Held(_)), "the server has granted what was not answered");
    assert_sound(&history.events());
}
