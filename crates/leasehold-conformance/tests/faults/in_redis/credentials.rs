//! Servers that do not let us in, or no longer.

use leasehold::backend::{Acquire, Backend, Release};
use leasehold::{Error, ErrorCode, Locks};
use leasehold_conformance::history::History;
use test_servers::{Proxy, Redis};
use test_support::{
    Case, StoreServer, cases_of_one_store, connect, eventually, everything_said, grant, key, request, soon,
};

use crate::recorder::Recorder;
use crate::support::assert_sound;

pub(crate) const CASES: &[Case] = cases_of_one_store![
    a_password_that_is_set_while_connected_locks_us_out_with_the_next_connection,
    a_user_whose_password_is_changed_is_locked_out_and_let_in_again_with_the_old_one,
];

const RIGHT: &str = "open-sesame";
const WRONG: &str = "abracadabra";
const USER: &str = "ali-baba";

/// Trying again does not help, and nothing that is shown or logged helps a thief.
#[track_caller]
fn assert_locked_out(error: &Error) {
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
    assert!(!error.is_retryable() && !error.outcome_unknown() && error.hint().is_some(), "{error:?}");
    let shown = everything_said(error);
    for secret in [RIGHT, WRONG, USER] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

/// The error that remains when the lost connection is no longer the reason.
async fn lasting_error(store: &dyn Backend) -> Error {
    let lasting = async {
        loop {
            match store.is_locked(&key("k")).await {
                Err(error) if error.is_retryable() => {}
                Err(error) => return error,
                Ok(_) => panic!("let in"),
            }
        }
    };
    soon("an error that does not pass", lasting).await
}

async fn a_password_that_is_set_while_connected_locks_us_out_with_the_next_connection() {
    let server = Redis::start();
    let proxy = Proxy::start(server.address());
    let history = History::new();
    let client = Recorder::new(connect(&server.url_at(proxy.address(), None)).await, &history);
    let held = request("k");
    let fence = grant(client.acquire(&held).await).fence;
    assert_eq!(server.cli(&["CONFIG", "SET", "requirepass", RIGHT]), "OK");
    assert!(client.store.is_locked(&held.key).await.unwrap(), "whoever is in stays in");
    proxy.cut_all();
    assert_locked_out(&lasting_error(&*client.store).await);
    assert_locked_out(&client.acquire(&request("other")).await.map(drop).unwrap_err());
    assert_locked_out(&client.release(&held.lock_id).await.map(drop).unwrap_err());

    // Those who know it find everything as it was.
    let url = format!("redis://:{RIGHT}@127.0.0.1:{}", proxy.port());
    let other = Recorder::new(connect(&url).await, &history);
    assert!(matches!(other.acquire(&request("k")).await.unwrap(), Acquire::Held(_)));
    assert_eq!(other.store.release(&held.lock_id).await.unwrap(), Release::Released);
    assert!(grant(other.acquire(&request("k")).await).fence > fence);
    assert_sound(&history.events());
}

async fn a_user_whose_password_is_changed_is_locked_out_and_let_in_again_with_the_old_one() {
    let server = Redis::start();
    let set = |rules: &[&str]| assert_eq!(server.cli(&[&["ACL", "SETUSER", USER], rules].concat()), "OK");
    let kick_out = || assert_ne!(server.cli(&["CLIENT", "KILL", "USER", USER]), "0");
    set(&["on", &format!(">{RIGHT}"), "~*", "&*", "+@all"]);
    let url = format!("redis://{USER}:{RIGHT}@127.0.0.1:{}", server.port());
    let store = connect(&url).await;
    let locks = Locks::new(store.clone());
    let guard = locks.lock("k").acquire().await.unwrap();

    set(&["resetpass", &format!(">{WRONG}")]);
    kick_out();
    assert_locked_out(&lasting_error(&*store).await);
    assert_locked_out(&locks.lock("other").acquire().await.unwrap_err());

    set(&["resetpass", &format!(">{RIGHT}")]);
    eventually("the handle is let in again", async || store.is_locked(&key("k")).await.is_ok()).await;
    guard.release().await.unwrap();

    set(&["-set"]);
    assert_locked_out(&store.acquire(&request("k")).await.map(drop).unwrap_err());
    assert!(!store.is_locked(&key("k")).await.unwrap());
}
