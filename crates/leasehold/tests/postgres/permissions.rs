//! What a user of the server must be allowed, and no more.

use std::time::Duration;

use leasehold::{
    Backend, ErrorCode, Event, Extend, ForceRelease, ListRequest, Locks, LookupBy, Postgres, Release, Topic, Verdict,
};
use test_servers::Postgres as Server;

use crate::support::{check, eventually, everything_said, granted, key, number, request, soon, stealing, ttl};

/// Everything that locks need.
const GRANTS: [&str; 8] = [
    "USAGE ON SCHEMA app",
    "SELECT ON app.syncguard_locks",
    "INSERT ON app.syncguard_locks",
    "UPDATE ON app.syncguard_locks",
    "DELETE ON app.syncguard_locks",
    "SELECT ON app.syncguard_fence_counters",
    "INSERT ON app.syncguard_fence_counters",
    "UPDATE ON app.syncguard_fence_counters",
];

/// A server whose tables belong to one user and are used by another.
async fn two_users() -> (Server, Postgres) {
    let server = Server::builder().password("hunter2secret").start();
    server.sql("CREATE ROLE keeper LOGIN PASSWORD 'keeper'; CREATE ROLE app LOGIN PASSWORD 'hunter2secret'");
    server.sql("GRANT CREATE ON DATABASE postgres TO keeper");
    let keeper = Postgres::connect(&format!("{}?schema=app", server.url_as("keeper", "keeper"))).await.unwrap();
    keeper.migrate().await.unwrap();
    for grant in GRANTS {
        server.sql_as("keeper", &format!("GRANT {grant} TO app"));
    }
    let app = Postgres::connect(&format!("{}?schema=app", server.url_as("app", "hunter2secret"))).await.unwrap();
    (server, app)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_least_permissions_are_enough_for_everything() {
    let (server, store) = two_users().await;
    let mut freed = store.subscribe(Topic::Freed(&key("order:42"))).await.unwrap();
    let mut taken = store.subscribe(Topic::Taken).await.unwrap();
    let held = request("order:42");
    granted(&store, &held).await;
    assert!(matches!(store.extend(&held.lock_id, ttl(60_000)).await.unwrap(), Extend::Extended { .. }));
    assert!(store.is_locked(&held.key).await.unwrap());
    assert!(store.lookup(LookupBy::Id(&held.lock_id)).await.unwrap().is_some());
    assert_eq!(store.list(&ListRequest::new("")).await.unwrap().records.len(), 1);
    assert_eq!(store.release(&held.lock_id).await.unwrap(), Release::Released);
    assert_eq!(soon("the news", freed.next()).await, Some(Event::Freed));
    granted(&store, &held).await;
    let thief = stealing("order:42", 1);
    eventually("it is old enough", || number(&server, "SELECT count(*) FROM app.syncguard_locks") == 1).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    granted(&store, &thief).await;
    assert!(matches!(soon("the news", taken.next()).await, Some(Event::Taken { .. })));
    assert!(matches!(store.force_release(&held.key).await.unwrap(), ForceRelease::Released(_)));
    granted(&store, &held).await;
    server.sql("UPDATE app.syncguard_locks SET expires_at_ms = 1");
    assert_eq!(store.sweep().await.unwrap(), 1);
    let checks = store.examine().await.unwrap();
    assert_eq!(check(&checks, "permissions").verdict, Verdict::Ok);
    assert!(check(&checks, "permissions").detail.contains("cannot be deleted"), "{checks:?}");

    let locks = Locks::new(store);
    let guard = locks.lock("guarded").ttl(Duration::from_millis(900)).acquire().await.unwrap();
    let first = guard.expires_at();
    eventually("a renewal", || guard.expires_at() > first).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn they_are_not_enough_for_anything_else() {
    let (server, store) = two_users().await;
    granted(&store, &request("order:42")).await;
    for forbidden in [
        "DELETE FROM app.syncguard_fence_counters",
        "TRUNCATE app.syncguard_fence_counters",
        "TRUNCATE app.syncguard_locks",
        "DROP TABLE app.syncguard_locks",
        "ALTER TABLE app.syncguard_locks DROP COLUMN details",
        "CREATE TABLE app.other ()",
        "CREATE OR REPLACE FUNCTION app.syncguard_locks_release(released_id text) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    ] {
        let outcome = server.try_sql(&format!("SET ROLE app; {forbidden}"));
        assert!(
            outcome.as_ref().is_err_and(|error| error.contains("denied") || error.contains("owner")),
            "{outcome:?}"
        );
    }
    let error = store.migrate().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
    // A user who may delete fences is told that nobody should.
    server.sql_as("keeper", "GRANT DELETE ON app.syncguard_fence_counters TO app");
    let checks = store.examine().await.unwrap();
    let found = check(&checks, "permissions");
    assert!(found.verdict == Verdict::Ok && found.detail.contains("more than needed"), "{found:?}");
}

/// The first error of an acquire, an extend and a release.
async fn first_error(store: &Postgres) -> leasehold::Error {
    let use_it = async {
        let held = request("order:42");
        let _ = store.acquire(&held).await?;
        store.extend(&held.lock_id, ttl(60_000)).await?;
        store.release(&held.lock_id).await
    };
    use_it.await.expect_err("everything is allowed")
}

#[tokio::test]
async fn each_that_is_missing_is_an_error_and_named_by_an_examination() {
    let (server, store) = two_users().await;
    for grant in GRANTS {
        server.sql("DELETE FROM app.syncguard_locks");
        server.sql_as("keeper", &format!("REVOKE {grant} FROM app"));
        let error = first_error(&store).await;
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{grant}: {error:?}");
        assert!(error.hint().unwrap().contains("leasehold doctor") && !error.outcome_unknown(), "{grant}: {error:?}");
        assert!(!everything_said(&error).contains("hunter2secret"));
        let checks = store.examine().await.unwrap();
        let found = check(&checks, "permissions");
        assert_eq!(found.verdict, Verdict::Fail, "{grant}: {found:?}");
        let (what, on) = grant.split_once(" ON ").unwrap();
        let place = if on.starts_with("SCHEMA") {
            "the schema"
        } else if on.ends_with("locks") {
            "the table of locks"
        } else {
            "the table of fences"
        };
        assert_eq!(found.detail, format!("missing: {what} on {place}"), "{grant}");
        server.sql_as("keeper", &format!("GRANT {grant} TO app"));
    }
    assert_eq!(check(&store.examine().await.unwrap(), "permissions").verdict, Verdict::Ok);
}

#[tokio::test]
async fn functions_that_may_not_be_run_are_an_error_and_named_by_an_examination() {
    let (server, store) = two_users().await;
    for function in ["acquire", "release", "extend", "force_release"] {
        let signature = server.sql(&format!("SELECT 'app.syncguard_locks_{function}'::regproc::oid::regprocedure"));
        server.sql_as("keeper", &format!("REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC"));
        let error = match function {
            "force_release" => store.force_release(&key("order:42")).await.unwrap_err(),
            _ => first_error(&store).await,
        };
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{function}: {error:?}");
        let checks = store.examine().await.unwrap();
        let found = check(&checks, "permissions");
        assert_eq!((found.verdict, found.detail.contains("EXECUTE")), (Verdict::Fail, true), "{function}: {found:?}");
        server.sql_as("keeper", &format!("GRANT EXECUTE ON FUNCTION {signature} TO PUBLIC"));
        server.sql("DELETE FROM app.syncguard_locks");
    }
}
