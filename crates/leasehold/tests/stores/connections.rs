//! Ways to a server, what keeps one out, and that nobody is told the password.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use leasehold::backend::{Backend, Topic};
use leasehold::{Error, ErrorCode, Locks};
use test_support::{Case, Setup, cases, connect, everything_said, granted, key, locks, request, soon, with_option};

use crate::Store;

pub(crate) const CASES: &[Case] = cases![
    a_password_lets_in_and_is_never_shown,
    nobody_at_the_address_is_an_error_that_passes,
    a_server_that_never_answers_is_given_up_in_time,
    a_subscription_has_a_deadline,
];

pub(crate) const BY_SOCKET: &[Case] = cases![a_unix_socket_leads_to_the_same_locks];

const SECRET: &str = "hunter2secret";

/// Why a URL does not lead to locks: said with a hint, and without the password.
pub(crate) async fn refused(url: &str) -> Error {
    let error = soon("a refusal", Locks::connect(url)).await.unwrap_err();
    let said = everything_said(&error);
    assert!(error.hint().is_some() && !error.outcome_unknown(), "{said}");
    assert!(!said.contains(SECRET), "{said}");
    error
}

async fn a_password_lets_in_and_is_never_shown(store: Store) {
    let server = store.server_with(&Setup { password: Some(SECRET), ..Setup::default() });
    let locks = locks(&server.url()).await;
    let guard = locks.lock("order:42").acquire().await.unwrap();
    let shown = format!("{locks:?} {:?} {:#?} {guard:?}", locks.backend(), locks.backend());
    assert!(shown.contains(server.shown()) && !shown.contains(SECRET), "{shown}");
    for wrong in server.wrong_credentials(SECRET) {
        let error = refused(&wrong).await;
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
        assert!(!error.is_retryable());
    }
}

async fn a_unix_socket_leads_to_the_same_locks(store: Store) {
    let server = store.server();
    granted(&*connect(&server.url()).await, &request("order:42")).await;
    for url in server.socket_urls() {
        let store = connect(&url).await;
        assert!(store.is_locked(&key("order:42")).await.unwrap(), "{url}");
        let mine = request("order:43");
        granted(&*store, &mine).await;
        store.release(&mine.lock_id).await.unwrap();
    }
    assert_eq!(refused(&server.missing_socket_url()).await.code(), ErrorCode::ServiceUnavailable);
}

async fn nobody_at_the_address_is_an_error_that_passes(store: Store) {
    let server = store.server();
    let url = server.url_at(server.server().address(), Some(SECRET));
    server.server().kill();
    for url in [url.clone(), url.replace("127.0.0.1", "no-such-host.invalid")] {
        let error = refused(&url).await;
        assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error:?}");
        assert!(error.is_retryable(), "{error:?}");
    }
}

async fn a_server_that_never_answers_is_given_up_in_time(store: Store) {
    let server = store.server();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let impatient = |address| with_option(&server.url_at(address, Some(SECRET)), "timeout=0.3s");
    let (silent, paused) = (impatient(listener.local_addr().unwrap()), impatient(server.server().address()));
    server.server().pause();
    for url in [silent, paused] {
        let started = Instant::now();
        let error = refused(&url).await;
        assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error:?}");
        let took = started.elapsed();
        assert!((Duration::from_millis(300)..Duration::from_secs(4)).contains(&took), "{took:?}");
    }
    // An address that is kept for documentation: packets are dropped, or refused on the way.
    let started = Instant::now();
    let error = refused(&impatient("192.0.2.1:1".parse().unwrap())).await;
    assert!(error.is_retryable(), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(4));
}

async fn a_subscription_has_a_deadline(store: Store) {
    let server = store.server();
    let proxy = test_servers::Proxy::start(server.server().address());
    let store = connect(&with_option(&server.url_at(proxy.address(), None), "timeout=1s")).await;
    proxy.stall_all();
    let later = async |name: &str, millis| {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        // The deadline is measured by the same clock, which a busy machine does not hurry. Whoever
        // listens already may say yes, and tell later that something was missed.
        let key = key(name);
        tokio::time::timeout(Duration::from_millis(1500), store.subscribe(Topic::Freed(&key))).await.is_ok()
    };
    let in_time = tokio::join!(later("a", 0), later("b", 50), later("c", 100));
    assert_eq!(in_time, (true, true, true), "with a timeout of 1 s");
}
