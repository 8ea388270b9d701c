//! What a user of the server must be allowed, and no more.

use leasehold::backend::{Backend, Line, Mode};
use leasehold::postgres::Postgres;
use leasehold::{ErrorCode, Verdict};
use test_servers::Postgres as Server;
use test_support::postgres::GRANTS;
use test_support::{check, everything_said, granted, key, request, ttl};

/// A server whose tables belong to one user and are used by another.
async fn two_users() -> (Server, Postgres) {
    let server = Server::builder().password("hunter2secret").start();
    let app = Postgres::connect(&test_support::postgres::two_users(&server, "hunter2secret")).await.unwrap();
    (server, app)
}

#[tokio::test]
async fn they_are_not_enough_for_anything_else() {
    let (server, store) = two_users().await;
    let checks = store.examine().await.unwrap();
    assert!(check(&checks, "permissions").detail.contains("cannot be deleted"), "{checks:?}");
    granted(&store, &request("order:42")).await;
    server.sql("UPDATE app.syncguard_locks SET expires_at_ms = 1");
    assert_eq!(store.sweep().await.unwrap(), 1, "dead rows may be removed");
    granted(&store, &request("order:42")).await;
    for forbidden in [
        "DELETE FROM app.syncguard_fence_counters",
        "TRUNCATE app.syncguard_fence_counters",
        "TRUNCATE app.syncguard_locks",
        "DROP TABLE app.syncguard_locks",
        "TRUNCATE app.syncguard_locks_grants",
        "DROP TABLE app.syncguard_locks_line",
        "ALTER TABLE app.syncguard_locks DROP COLUMN details",
        "CREATE TABLE app.other ()",
        "CREATE OR REPLACE FUNCTION app.syncguard_locks_release_v2(released_id text) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
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

/// The first error of an acquire, an extend and a release, alone, shared and in line.
async fn first_error(store: &Postgres) -> leasehold::Error {
    let use_it = async {
        let held = request("order:42");
        for held in [held.clone(), held.clone().with_mode(Mode::Shared)] {
            let _ = store.acquire(&held).await?;
            store.extend(&held.lock_id, ttl(60_000)).await?;
            store.release(&held.lock_id).await?;
        }
        let _ = store.acquire(&held).await?;
        let waits = request("order:42").with_line(Line::Join { lease: ttl(60_000) });
        for _ in 0..2 {
            let _ = store.acquire(&waits).await?;
        }
        store.release(&waits.lock_id).await
    };
    use_it.await.expect_err("everything is allowed")
}

#[tokio::test]
async fn each_that_is_missing_is_an_error_and_named_by_an_examination() {
    let (server, store) = two_users().await;
    for grant in GRANTS {
        server.sql("DELETE FROM app.syncguard_locks; DELETE FROM app.syncguard_locks_line");
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
        } else if on.ends_with("grants") {
            "the table of grants"
        } else if on.ends_with("line") {
            "the table of those in line"
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
        let signature = server.sql(&format!("SELECT 'app.syncguard_locks_{function}_v2'::regproc::oid::regprocedure"));
        server.sql_as("keeper", &format!("REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC"));
        let error = match function {
            "force_release" => store.force_release(&key("order:42"), None).await.unwrap_err(),
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
