//! An examination finds what endangers locks, and nothing else.

use leasehold::backend::Backend;
use leasehold::{Check, ErrorCode, Locks, Verdict};
use test_servers::Postgres as Server;
use test_support::postgres::now;
use test_support::{check, complaints, request};

use crate::support::{connect, migrated, server};

async fn examine(server: &Server) -> Vec<Check> {
    connect(server).await.examine().await.unwrap()
}

#[tokio::test]
async fn a_server_is_examined_in_all_its_parts() {
    let server = server().await;
    let written = || server.sql("SELECT n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables ORDER BY relname");
    let before = written();
    let checks = examine(&server).await;
    assert_eq!(complaints(&checks), [], "{checks:#?}");
    let names: Vec<_> = checks.iter().map(|check| check.name).collect();
    let own = ["postgres", "role", "tables", "functions", "permissions"];
    assert_eq!(names, [&own[..], &["persistence", "dead rows", "counters"]].concat());
    let version = server.sql("SHOW server_version");
    assert!(check(&checks, "postgres").detail.contains(&version), "{checks:?}");
    assert_eq!(written(), before, "it leaves nothing behind");
    let by_url = Locks::examine(&server.url()).await.unwrap();
    assert_eq!(check(&by_url, "exclusion").verdict, Verdict::Ok, "{by_url:#?}");
    assert!(checks.iter().all(|own| check(&by_url, own.name).verdict == own.verdict), "{by_url:#?}");
}

#[tokio::test]
async fn an_examination_tells_how_many_keys_were_ever_locked() {
    let server = server().await;
    let lock_once = |from: u32, to: u32| {
        server.sql(&format!(
            "INSERT INTO syncguard_fence_counters SELECT 'fence:' || n, 1, 'k' || n FROM generate_series({from}, {to}) AS n"
        ));
    };
    let told = async || check(&examine(&server).await, "counters").detail.clone();
    server.sql("ALTER TABLE syncguard_fence_counters SET (autovacuum_enabled = off)");
    assert!(told().await.starts_with("0 fence"), "{}", told().await);
    lock_once(1, 1234);
    assert!(told().await.starts_with("1234 fence"), "the server has no estimate yet: {}", told().await);
    lock_once(1235, 10_001);
    assert!(told().await.starts_with("more than 10000 fence"), "{}", told().await);
    server.sql("ANALYZE syncguard_fence_counters");
    assert!(told().await.starts_with("about 10001 fence"), "{}", told().await);
}

#[tokio::test]
async fn missing_tables_or_functions_are_a_failure_that_says_what_to_run() {
    let server = Server::start();
    let store = connect(&server).await;
    for (found_by, break_it) in [
        ("tables", ""),
        ("tables", "DROP TABLE syncguard_fence_counters"),
        ("tables", "DROP TABLE syncguard_locks CASCADE"),
        ("tables", "DROP TABLE syncguard_locks_grants"),
        ("tables", "DROP TABLE syncguard_locks_line"),
        ("functions", "DROP FUNCTION syncguard_locks_release_v2"),
        ("functions", "DROP FUNCTION syncguard_locks_acquire_v2"),
        ("functions", "DROP FUNCTION syncguard_locks_storage_key_v2"),
        ("functions", "DROP FUNCTION leasehold_holder"),
        ("tables", "ALTER TABLE syncguard_locks DROP COLUMN details"),
        ("tables", "DROP SCHEMA public CASCADE"),
    ] {
        if !break_it.is_empty() {
            store.migrate().await.unwrap();
            assert_eq!(complaints(&store.examine().await.unwrap()), []);
            server.sql(break_it);
        }
        let checks = store.examine().await.unwrap();
        let found = check(&checks, found_by);
        assert_eq!(found.verdict, Verdict::Fail, "{break_it}: {found:?}");
        assert!(found.detail.contains("leasehold migrate"), "{break_it}: {found:?}");
    }
}

#[tokio::test]
async fn a_session_that_cannot_write_is_a_failure_and_an_error_that_says_so() {
    let server = server().await;
    server.sql("ALTER SYSTEM SET default_transaction_read_only = on");
    server.sql("SELECT pg_reload_conf()");
    let store = connect(&server).await;
    let checks = store.examine().await.unwrap();
    let found = check(&checks, "role");
    assert!(found.verdict == Verdict::Fail && found.detail.contains("default_transaction_read_only"), "{found:?}");
    let error = store.acquire(&request("order:42")).await.unwrap_err();
    assert_eq!((error.code(), error.outcome_unknown()), (ErrorCode::ServiceUnavailable, false), "{error:?}");
    assert!(error.to_string().contains("read-only") && error.hint().unwrap().contains("primary"), "{error:?}");
    assert!(!store.is_locked(&request("order:42").key).await.unwrap(), "questions are answered");
}

#[tokio::test]
async fn a_server_that_may_forget_what_it_answered_is_a_failure() {
    let server = Server::with(&[("fsync", "off")]);
    let store = migrated(&server).await;
    let checks = store.examine().await.unwrap();
    let found = check(&checks, "persistence");
    assert!(found.verdict == Verdict::Fail && found.detail.contains("fsync"), "{found:?}");
    assert_eq!(complaints(&checks), [("persistence", Verdict::Fail)]);
}

#[tokio::test]
async fn synchronous_commit_is_no_cause_for_complaint_because_it_is_overridden() {
    let server = Server::with(&[("synchronous_commit", "off")]);
    let store = migrated(&server).await;
    assert_eq!(complaints(&store.examine().await.unwrap()), []);
}

#[tokio::test]
async fn many_dead_rows_are_a_warning() {
    let server = server().await;
    let dead = |count: u64| {
        let until = now(&server) - 70_000;
        server.sql(&format!(
            "TRUNCATE syncguard_locks; INSERT INTO syncguard_locks
            SELECT 'k' || n, 'i' || n, {until}, 1, '1', 'k' || n FROM generate_series(1, {count}) AS n"
        ));
    };
    dead(9_999);
    assert_eq!(check(&examine(&server).await, "dead rows").verdict, Verdict::Ok);
    dead(10_000);
    let checks = examine(&server).await;
    let found = check(&checks, "dead rows");
    assert!(found.verdict == Verdict::Warn && found.detail.contains("10000"), "{found:?}");
    assert!(found.detail.contains("sweep"), "{found:?}");
}
