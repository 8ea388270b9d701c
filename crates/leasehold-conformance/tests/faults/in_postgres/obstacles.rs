//! Others who hold on to what an operation needs, for longer than a lease lasts or than anybody is
//! willing to wait.

use std::time::Duration;

use leasehold::backend::{Absence, Acquire, AcquireRequest, Extend, Release};
use leasehold::{Error, ErrorCode, Operation, Ttl};
use test_servers::Postgres;
use test_support::postgres::{now, ours, session, stuck};
use test_support::{Case, cases_of_one_store, connect, eventually, grant, key, request, soon};
use tokio_postgres::Client;

use super::server;

pub(crate) const CASES: &[Case] = cases_of_one_store![
    an_extend_that_waits_until_its_lock_is_dead_does_not_revive_it,
    a_release_that_waits_until_its_lock_is_dead_says_so,
    an_acquire_counts_its_time_from_after_whatever_it_waited_for,
    an_acquire_that_waits_for_an_extend_sees_what_it_did,
    limits_of_the_servers_own_are_errors_that_name_them,
    an_operation_that_is_given_up_is_stopped_on_the_server_and_its_connection_is_not_lent_again,
    an_operation_whose_future_is_dropped_is_stopped_on_the_server,
];

const ROW: &str = "SELECT FROM syncguard_locks WHERE key = 'k' FOR UPDATE";
const KEY: &str = "SELECT pg_advisory_xact_lock(hashtext('k'))";

/// A session that holds on to something.
async fn obstacle(server: &Postgres, what: &str) -> Client {
    let session = session(server).await;
    session.batch_execute(&format!("BEGIN; {what}")).await.unwrap();
    session
}

fn brief(name: &str) -> AcquireRequest {
    request(name).with_ttl(Ttl::from_millis(300).unwrap())
}

async fn an_extend_that_waits_until_its_lock_is_dead_does_not_revive_it() {
    let server = server(&[]);
    let store = connect(&server.url()).await;
    for what in [ROW, KEY] {
        let held = brief("k");
        let given = grant(store.acquire(&held).await);
        let blocker = obstacle(&server, what).await;
        let (extend, expiry) = loop {
            let mut expiry = given.expires_at.as_millis();
            if what == KEY {
                // Nobody else waits for the advisory lock than who comes in the last second.
                expiry = now(&server);
                server.sql(&format!("UPDATE syncguard_locks SET expires_at_ms = {expiry}"));
            }
            let extend = tokio::spawn({
                let store = store.clone();
                async move { store.extend(&held.lock_id, Ttl::default()).await.unwrap() }
            });
            eventually("it waits or is too late", async || stuck(&server) == 1 || extend.is_finished()).await;
            if !extend.is_finished() {
                break (extend, expiry);
            }
        };
        eventually("the lock is dead", async || now(&server) > expiry + 1000).await;
        blocker.batch_execute("COMMIT").await.unwrap();
        let extended = soon("the extend", extend).await.unwrap();
        assert_eq!(extended, Extend::Absent(Absence::Expired), "{what}");
        assert!(!store.is_locked(&held.key).await.unwrap());
        assert!(grant(store.acquire(&request("k")).await).fence > given.fence);
        store.force_release(&held.key, None).await.unwrap();
    }
}

async fn a_release_that_waits_until_its_lock_is_dead_says_so() {
    let server = server(&[]);
    let store = connect(&server.url()).await;
    let held = brief("k");
    let given = grant(store.acquire(&held).await);
    let blocker = obstacle(&server, ROW).await;
    let release = tokio::spawn({
        let store = store.clone();
        async move { store.release(&held.lock_id).await.unwrap() }
    });
    eventually("it waits", async || stuck(&server) == 1).await;
    eventually("the lock is dead", async || now(&server) > given.expires_at.as_millis() + 1000).await;
    blocker.batch_execute("COMMIT").await.unwrap();
    assert_eq!(soon("the release", release).await.unwrap(), Release::Absent(Absence::Expired));
}

async fn an_acquire_counts_its_time_from_after_whatever_it_waited_for() {
    let server = server(&[]);
    let store = connect(&server.url()).await;
    for what in [ROW, KEY] {
        // A row of a dead lock, for somebody to hold on to.
        let dead = request("k");
        grant(store.acquire(&dead).await);
        server.sql("UPDATE syncguard_locks SET expires_at_ms = 1");
        let blocker = obstacle(&server, what).await;
        let wanted = brief("k");
        let acquire = tokio::spawn({
            let (store, wanted) = (store.clone(), wanted.clone());
            async move { grant(store.acquire(&wanted).await) }
        });
        eventually("it waits", async || stuck(&server) == 1).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let freed = now(&server);
        blocker.batch_execute("COMMIT").await.unwrap();
        let given = soon("the acquire", acquire).await.unwrap();
        assert!(given.acquired_at.as_millis() >= freed, "{what}: {given:?} {freed}");
        assert!(given.fence.get() >= freed * 10, "{what}: {given:?} {freed}");
        assert_eq!(given.expires_at.as_millis(), given.acquired_at.as_millis() + 300);
        store.release(&wanted.lock_id).await.unwrap();
    }
}

async fn an_acquire_that_waits_for_an_extend_sees_what_it_did() {
    let server = server(&[]);
    let store = connect(&server.url()).await;
    let held = brief("k");
    grant(store.acquire(&held).await);
    let other = session(&server).await;
    other.batch_execute("BEGIN; UPDATE syncguard_locks SET expires_at_ms = expires_at_ms + 60000").await.unwrap();
    eventually("the lock looks dead", async || !store.is_locked(&held.key).await.unwrap()).await;
    let acquire = tokio::spawn({
        let store = store.clone();
        async move { store.acquire(&request("k")).await.unwrap() }
    });
    eventually("it waits", async || stuck(&server) == 1).await;
    other.batch_execute("COMMIT").await.unwrap();
    assert!(matches!(soon("the acquire", acquire).await.unwrap(), Acquire::Held(_)));
}

#[track_caller]
fn assert_error(error: &Error, code: ErrorCode, outcome_unknown: bool, hint: &str) {
    assert_eq!((error.code(), error.outcome_unknown()), (code, outcome_unknown), "{error:?}");
    assert_eq!(error.operation(), Some(Operation::Acquire));
    assert!(error.is_retryable() && error.hint().is_some_and(|text| text.contains(hint)), "{error:?}");
}

async fn limits_of_the_servers_own_are_errors_that_name_them() {
    for (setting, what, code, hint) in [
        ("lock_timeout", KEY, ErrorCode::ServiceUnavailable, "long transaction"),
        ("lock_timeout", ROW, ErrorCode::ServiceUnavailable, "long transaction"),
        ("statement_timeout", KEY, ErrorCode::NetworkTimeout, "statement_timeout"),
        ("statement_timeout", ROW, ErrorCode::NetworkTimeout, "statement_timeout"),
    ] {
        let server = server(&[]);
        let url = format!("{}?options=-c%20{setting}%3D200ms", server.url());
        let store = connect(&url).await;
        grant(store.acquire(&request("k")).await);
        server.sql("UPDATE syncguard_locks SET expires_at_ms = 1");
        let blocker = obstacle(&server, what).await;
        let wanted = request("k");
        let error = soon("an error", store.acquire(&wanted)).await.unwrap_err();
        assert_error(&error, code, false, hint);
        blocker.batch_execute("COMMIT").await.unwrap();
        assert!(!store.is_locked(&key("k")).await.unwrap(), "nothing was done");
        grant(store.acquire(&wanted).await);
    }
}

async fn an_operation_that_is_given_up_is_stopped_on_the_server_and_its_connection_is_not_lent_again() {
    let server = server(&[]);
    let store = connect(&format!("{}?timeout=0.5s&pool_size=1&wake_ups=off", server.url())).await;
    let blocker = obstacle(&server, KEY).await;
    let wanted = request("k");
    let error = soon("an error", store.acquire(&wanted)).await.unwrap_err();
    assert_error(&error, ErrorCode::NetworkTimeout, true, "");
    // While that one may still be busy, another is used.
    grant(store.acquire(&request("other")).await);
    eventually("it is stopped", async || stuck(&server) == 0).await;
    eventually("its connection is closed", async || ours(&server, "true") <= 1).await;
    blocker.batch_execute("COMMIT").await.unwrap();
    assert!(!store.is_locked(&key("k")).await.unwrap(), "what was given up was done all the same");
    grant(store.acquire(&wanted).await);
}

async fn an_operation_whose_future_is_dropped_is_stopped_on_the_server() {
    let server = server(&[]);
    let store = connect(&format!("{}?pool_size=1", server.url())).await;
    let blocker = obstacle(&server, KEY).await;
    let dropped = tokio::spawn({
        let store = store.clone();
        async move { store.acquire(&request("k")).await.map(drop) }
    });
    eventually("it waits", async || stuck(&server) == 1).await;
    dropped.abort();
    eventually("it is stopped", async || stuck(&server) == 0).await;
    grant(soon("another key", store.acquire(&request("other"))).await);
    blocker.batch_execute("COMMIT").await.unwrap();
    assert!(!store.is_locked(&key("k")).await.unwrap());
}
