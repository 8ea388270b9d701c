//! Replies that never come.

use leasehold::backend::{Absence, Acquire, LookupBy, Release};
use leasehold::{ErrorCode, Operation};
use leasehold_conformance::history::History;
use test_servers::Proxy;
use test_support::{Breakage, Case, Request, cases, connect, grant, request, soon, with_option};

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
        Recorder::new(connect(&with_option(&server.url_at(proxy.address(), None), "timeout=0.5s")).await, &history);
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
    let rule = server.break_next(&proxy, Request::Change, Breakage::Stall);
    let error = soon("an error", client.acquire(&wanted)).await.map(drop).unwrap_err();
    late(error, Operation::Acquire);
    assert!(rule.wait_fired());
    let grant = grant(client.acquire(&wanted).await);
    assert!(made_since(before));
    let record = client.store.lookup(LookupBy::Key(&wanted.key)).await.unwrap().unwrap();
    assert_eq!((record.fence, record.expires_at), (grant.fence, grant.expires_at), "it was granted the first time");

    let before = proxy.counts().connections;
    let rule = server.break_next(&proxy, Request::Change, Breakage::Stall);
    let error = soon("an error", client.release(&wanted.lock_id)).await.unwrap_err();
    late(error, Operation::Release);
    assert!(rule.wait_fired());
    assert_eq!(client.release(&wanted.lock_id).await.unwrap(), Release::Absent(Absence::NotFound));
    assert!(made_since(before));
    assert_sound(&history.events());
}

async fn one_answer_that_never_comes_holds_up_no_other_handle(store: Store) {
    let server = store.server();
    let proxy = Proxy::start(server.server().address());
    let history = History::new();
    let stuck =
        Recorder::new(connect(&with_option(&server.url_at(proxy.address(), None), "timeout=0.5s")).await, &history);
    let other =
        Recorder::new(connect(&with_option(&server.url_at(proxy.address(), None), "timeout=0.5s")).await, &history);
    grant(stuck.acquire(&request("known")).await);
    let rule = server.break_next(&proxy, Request::Change, Breakage::Stall);
    // In a task of its own, because an acquire may be several requests.
    let hanging = tokio::spawn(async move { stuck.acquire(&request("k")).await });
    assert!(rule.wait_fired());
    let answer = soon("an answer", other.acquire(&request("k"))).await.unwrap();
    assert!(soon("an error", hanging).await.unwrap().unwrap_err().outcome_unknown());
    assert!(matches!(answer, Acquire::Held(_)), "the server has granted what was not answered");
    assert_sound(&history.events());
}
