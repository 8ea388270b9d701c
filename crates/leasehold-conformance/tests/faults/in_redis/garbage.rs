//! Replies that make no sense.

use leasehold::backend::Release;
use leasehold::{ErrorCode, Operation, Ttl};
use leasehold_conformance::history::History;
use test_servers::{Proxy, Redis};
use test_support::{Case, DEADLINE, StoreServer, cases_of_one_store, connect, grant, request};

use crate::recorder::Recorder;
use crate::support::assert_sound;

pub(crate) const CASES: &[Case] =
    cases_of_one_store![an_answer_without_sense_is_an_error_of_unknown_outcome_and_spoils_no_other_call];

/// Not the protocol, and the protocol without sense.
const GARBAGE: [&str; 5] = [
    "HTTP/1.1 400 Bad Request\r\n\r\n",
    "\u{0}\u{1}\u{2}\r\n",
    "$5\r\nhello\r\n",
    "*2\r\n:1\r\n:2\r\n",
    "*4\r\n:1\r\n:-1\r\n:-1\r\n:-1\r\n",
];

async fn an_answer_without_sense_is_an_error_of_unknown_outcome_and_spoils_no_other_call() {
    let server = Redis::start();
    let proxy = Proxy::start(server.address());
    let history = History::new();
    let client = Recorder::new(connect(&server.url_at(proxy.address(), None)).await, &history);
    for garbage in GARBAGE {
        let wanted = request("k");
        let nonsense = |error: leasehold::Error, operation| {
            assert_eq!(error.code(), ErrorCode::Internal, "{garbage:?}: {error:?}");
            assert_eq!(error.operation(), Some(operation), "{garbage:?}");
            assert!(error.outcome_unknown() && !error.to_string().contains("hello"), "{garbage:?}: {error:?}");
        };
        let rule = proxy.garble("EVAL", garbage);
        nonsense(client.acquire(&wanted).await.map(drop).unwrap_err(), Operation::Acquire);
        assert!(rule.wait_fired(DEADLINE));
        assert!(!client.store.is_locked(&wanted.key).await.unwrap());
        grant(client.acquire(&wanted).await);
        drop(proxy.garble("EVAL", garbage));
        nonsense(client.extend(&wanted.lock_id, Ttl::default()).await.map(drop).unwrap_err(), Operation::Extend);
        drop(proxy.garble("EVAL", garbage));
        nonsense(client.release(&wanted.lock_id).await.map(drop).unwrap_err(), Operation::Release);
        assert_eq!(client.release(&wanted.lock_id).await.unwrap(), Release::Released);
        assert!(client.store.force_release(&wanted.key, None).await.unwrap().is_empty());
    }
    assert_sound(&history.events());
}
