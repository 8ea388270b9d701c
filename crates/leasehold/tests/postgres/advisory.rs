//! Others who hold on to the advisory lock of a key: it decides who may take the lock, and ends
//! nobody's.

use std::time::Duration;

use leasehold::backend::{Backend, Extend};
use leasehold::postgres::Postgres;
use leasehold::{ErrorCode, Guard, LockState, Locks};
use test_support::postgres::{Acquiring, session, stuck};
use test_support::{eventually, granted, held, request, soon, ttl};

use crate::support::{connect, server};

/// How an application locks something of its own that happens to have the name of a key.
fn take(key: &str) -> String {
    format!("BEGIN; SELECT pg_advisory_xact_lock(hashtext('{key}'))")
}

async fn renewed(guards: &[Guard]) {
    for round in 0..3 {
        let before: Vec<_> = guards.iter().map(|guard| guard.expires_at()).collect();
        let later = || guards.iter().zip(&before).all(|(guard, before)| guard.expires_at() > *before);
        eventually(&format!("renewal {round}"), async || later()).await;
        assert!(guards.iter().all(|guard| guard.state() == LockState::Held));
    }
}

#[tokio::test]
async fn a_lock_is_renewed_and_waited_for_whoever_holds_the_advisory_lock_of_its_key() {
    let server = server().await;
    let locks = Locks::connect(&server.url()).await.unwrap();
    let other = Locks::connect(&server.url()).await.unwrap();
    let mut guards = Vec::new();
    for key in ["order:41", "order:42", "order:43"] {
        guards.push(locks.lock(key).ttl(Duration::from_secs(5)).acquire().await.unwrap());
    }
    // An application, and two contenders of the other library that stopped inside their acquire.
    let application = session(&server).await;
    application.batch_execute(&take("order:41")).await.unwrap();
    let mut contenders = Vec::new();
    for (key, steps) in [("order:42", 2), ("order:43", 3)] {
        let mut contender = Acquiring::new(&server, key).await;
        contender.advance(steps).await;
        contenders.push(contender);
    }
    let waiting = tokio::spawn(other.lock("order:41").wait_forever().acquire());
    renewed(&guards).await;
    assert!(!waiting.is_finished());
    for contender in &mut contenders {
        assert_eq!(contender.finish().await, None, "the lock is held");
    }
    let fence = guards[0].fence();
    for guard in guards {
        guard.release().await.unwrap();
    }
    application.batch_execute("COMMIT").await.unwrap();
    let next = soon("the waiting one", waiting).await.unwrap().unwrap();
    assert!(next.fence() > fence);
    next.release().await.unwrap();
}

#[tokio::test]
async fn whoever_is_refused_waits_for_nobody() {
    let server = server().await;
    let store = connect(&server).await;
    let mine = request("order:42");
    let grant = granted(&store, &mine).await;
    let application = session(&server).await;
    application.batch_execute(&take("order:42")).await.unwrap();
    let contention = held(&store, &request("order:42")).await;
    assert_eq!(contention.expires_at, grant.expires_at);
    assert!(matches!(store.extend(&mine.lock_id, ttl(60_000)).await.unwrap(), Extend::Extended { .. }));
    store.release(&mine.lock_id).await.unwrap();
    assert_eq!(stuck(&server), 0);
    application.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test]
async fn an_error_names_what_was_waited_for_and_who_has_it() {
    let server = server().await;
    let url = format!("{}?options=-c%20lock_timeout%3D200ms", server.url());
    let store = Postgres::connect(&url).await.unwrap();
    let row = "BEGIN; SELECT FROM syncguard_locks WHERE key = 'order:42' FOR UPDATE";
    for (obstacle, named) in [(take("order:42").as_str(), "advisory lock"), (row, "row")] {
        let mine = request("order:42");
        granted(&store, &mine).await;
        let other = session(&server).await;
        other.batch_execute(obstacle).await.unwrap();
        let pid: i32 = other.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        let mut errors = vec![store.force_release(&mine.key, None).await.unwrap_err()];
        if obstacle == row {
            errors.push(store.release(&mine.lock_id).await.unwrap_err());
            errors.push(store.extend(&mine.lock_id, ttl(60_000)).await.unwrap_err());
        }
        other.batch_execute("COMMIT").await.unwrap();
        // Dead, so that an acquire wants to take it over.
        server.sql("UPDATE syncguard_locks SET expires_at_ms = 1");
        other.batch_execute(obstacle).await.unwrap();
        errors.push(store.acquire(&request("order:42")).await.unwrap_err());
        other.batch_execute("COMMIT").await.unwrap();
        for error in errors {
            assert_eq!((error.code(), error.outcome_unknown()), (ErrorCode::ServiceUnavailable, false), "{error:?}");
            let said = error.to_string();
            assert!(said.contains(named) && !said.contains("order:42"), "{said}");
            assert!(said.contains(&format!("process {pid}")) && said.contains("\"session\""), "{said}");
            assert!(error.hint().is_some_and(|hint| hint.contains(&pid.to_string())), "{error:?}");
            assert!(error.operation().is_some(), "{error:?}");
        }
        store.force_release(&mine.key, None).await.unwrap();
        server.sql("DELETE FROM syncguard_locks");
    }
}
