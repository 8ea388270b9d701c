//! Programs of several versions share a database, and a function that somebody changed does not go
//! unnoticed.

use crate::support::{connect, migrated, server};
use leasehold::backend::{Backend, Release};
use leasehold::{ErrorCode, Locks, Verdict};
use test_servers::Postgres as Server;
use test_support::{check, complaints, granted, request};

/// Every function of ours with its definition, owner and rights; `name` is a pattern.
fn functions(server: &Server, name: &str) -> String {
    server.sql(&format!(
        "SELECT pg_get_functiondef(oid), proowner::regrole, proacl FROM pg_proc
        WHERE proname ~ '{name}' AND pronamespace = 'public'::regnamespace ORDER BY proname"
    ))
}

/// What another version of the library would run: other names, and other bodies.
fn migration_of_version(version: u32, migration: &str) -> String {
    migration
        .replace("_v2", &format!("_v{version}"))
        .replace("functions, version 2.", &format!("functions, version {version}."))
        .replace("newest <= 2 ", &format!("newest <= {version} "))
        .replace("BEGIN\n", &format!("BEGIN\n  -- As version {version} has it.\n"))
}

#[tokio::test]
async fn an_older_version_migrates_where_a_newer_one_has_dropped_a_public_function() {
    let server = Server::start();
    let store = connect(&server).await;
    server.sql(&migration_of_version(3, &store.migration()));
    server.sql("DROP FUNCTION leasehold_holder(text)");
    store.migrate().await.unwrap();
    assert!(functions(&server, "_v2$").contains("acquire"));
    granted(&store, &request("order:42")).await;
}

#[tokio::test]
async fn versions_live_side_by_side_and_the_newest_public_functions_stay() {
    let server = Server::start();
    let store = connect(&server).await;
    let other = |version| migration_of_version(version, &store.migration());
    server.sql(&other(0));
    let old = functions(&server, "_v0$");
    assert!(old.contains("As version 0") && functions(&server, "^leasehold_").contains("version 0."));

    store.migrate().await.unwrap();
    assert_eq!(functions(&server, "_v0$"), old, "the old ones stay for those who use them");
    let public = functions(&server, "^leasehold_");
    assert!(public.contains("version 2.") && !public.contains("version 0"), "{public}");
    assert_eq!(complaints(&store.examine().await.unwrap()), []);
    let mine = functions(&server, "_v2$");

    server.sql(&other(3));
    let new = functions(&server, "_v3$");
    assert_eq!(functions(&server, "_v2$"), mine, "nor does a newer version touch ours");
    let newest = functions(&server, "^leasehold_");
    assert!(newest.contains("version 3.") && !newest.contains("version 2."), "{newest}");
    store.migrate().await.unwrap();
    server.sql(&other(0));
    assert_eq!(functions(&server, "^leasehold_"), newest, "an older version puts none of its own in their place");
    assert_eq!(functions(&server, "_v3$"), new);
    let checks = store.examine().await.unwrap();
    assert_eq!(complaints(&checks), [], "{checks:?}");
    assert!(check(&checks, "functions").detail.contains("newer"), "{checks:?}");

    // They exclude each other.
    let held = request("order:42");
    granted(&store, &held).await;
    for version in [0, 2, 3] {
        let acquire = format!(
            "SELECT granted FROM syncguard_locks_acquire_v{version}('order:42', 'i', 1000, 'order:42', 'fence:order:42', '{{}}', NULL, NULL, NULL, 'x', 1, 'i', NULL)"
        );
        assert_eq!(server.sql(&acquire), "f", "version {version}");
    }
    assert_eq!(server.sql("SELECT granted FROM leasehold_acquire('order:42')"), "f");
}

/// A function with a part of its definition replaced.
fn changed(server: &Server, function: &str, old: &str, new: &str) {
    let definition = server.sql(&format!("SELECT pg_get_functiondef('{function}'::regproc)"));
    assert!(definition.contains(old), "{definition}");
    server.sql(&definition.replace(old, new));
}

#[tokio::test]
async fn whatever_was_changed_of_a_function_is_found_and_mended() {
    let server = server().await;
    server.sql("CREATE ROLE stranger");
    let store = connect(&server).await;
    let good = functions(&server, "leasehold|syncguard");
    type Change = fn(&Server);
    let changes: [(&str, Change); 10] = [
        ("syncguard_locks_acquire_v2", |server| {
            changed(server, "syncguard_locks_acquire_v2", "now_us / 1000 - 1000", "now_us / 1000 - 0");
        }),
        ("syncguard_locks_extend_v2", |server| {
            server.sql("ALTER FUNCTION syncguard_locks_extend_v2 SECURITY DEFINER");
        }),
        ("syncguard_locks_release_v2", |server| {
            server.sql("ALTER FUNCTION syncguard_locks_release_v2 SET synchronous_commit = off");
        }),
        ("syncguard_locks_tell_freed_v2", |server| {
            server.sql("ALTER FUNCTION syncguard_locks_tell_freed_v2 STABLE");
        }),
        ("syncguard_locks_release_v2", |server| {
            server.sql("ALTER FUNCTION syncguard_locks_release_v2 STRICT");
        }),
        ("leasehold_release", |server| {
            server.sql("CREATE OR REPLACE FUNCTION leasehold_release(lock_id text) RETURNS boolean LANGUAGE sql AS 'SELECT true'");
        }),
        ("leasehold_acquire", |server| changed(server, "leasehold_acquire", "DEFAULT 30", "DEFAULT 3000")),
        ("leasehold_holder", |server| {
            server.sql("ALTER FUNCTION leasehold_holder RESET search_path");
        }),
        ("leasehold_extend", |server| {
            changed(server, "leasehold_extend", "functions, version 2.", "functions, version 99.");
            server.sql("ALTER FUNCTION leasehold_extend OWNER TO stranger");
        }),
        ("leasehold_extend", |server| {
            server.sql("ALTER FUNCTION leasehold_extend OWNER TO stranger");
        }),
    ];
    for (function, change) in changes {
        change(&server);
        let checks = store.examine().await.unwrap();
        let found = check(&checks, "functions");
        assert_eq!(found.verdict, Verdict::Fail, "{function}: {found:?}");
        assert!(found.detail.contains(function) && found.detail.contains("leasehold migrate"), "{found:?}");
        assert_eq!(complaints(&checks), [("functions", Verdict::Fail)]);
        store.migrate().await.unwrap();
        assert_eq!(complaints(&store.examine().await.unwrap()), [], "{function}");
        assert_eq!(functions(&server, "leasehold|syncguard"), good, "{function}");
    }
}

#[tokio::test]
async fn a_namesake_that_could_be_called_instead_is_found() {
    let server = server().await;
    server.sql("CREATE FUNCTION leasehold_acquire(key text) RETURNS text LANGUAGE sql AS 'SELECT key'");
    let checks = connect(&server).await.examine().await.unwrap();
    let found = check(&checks, "functions");
    assert!(found.verdict == Verdict::Fail && found.detail.contains("other arguments"), "{found:?}");
    server.sql("DROP FUNCTION leasehold_acquire(text)");
    assert_eq!(complaints(&connect(&server).await.examine().await.unwrap()), []);
}

#[tokio::test]
async fn nobody_gets_a_lock_from_a_function_that_was_changed() {
    let server = server().await;
    let before = connect(&server).await;
    let held = request("order:42");
    granted(&before, &held).await;
    changed(&server, "syncguard_locks_acquire_v2", "now_us / 1000 - 1000", "now_us / 1000 - 0");
    let store = connect(&server).await;
    let error = store.acquire(&request("order:43")).await.unwrap_err();
    assert_eq!((error.code(), error.outcome_unknown()), (ErrorCode::InvalidArgument, false), "{error:?}");
    assert!(error.hint().unwrap().contains("leasehold migrate"), "{error:?}");
    assert!(Locks::connect(&server.url()).await.unwrap().lock("order:43").try_acquire().await.is_err());
    // What is held can be looked at and given back.
    assert!(store.is_locked(&held.key).await.unwrap());
    assert_eq!(store.release(&held.lock_id).await.unwrap(), Release::Released);
    // The handle needs no restart.
    Locks::migrate(&server.url()).await.unwrap();
    granted(&store, &request("order:43")).await;
}

#[tokio::test]
async fn settings_of_a_session_do_not_make_functions_look_changed() {
    let server = server().await;
    server.sql("ALTER ROLE postgres SET quote_all_identifiers = on; ALTER ROLE postgres SET search_path = nowhere");
    let store = connect(&server).await;
    granted(&store, &request("order:42")).await;
    assert_eq!(complaints(&store.examine().await.unwrap()), []);
}

#[tokio::test]
async fn a_changed_public_function_stops_nobody_who_does_not_call_it() {
    let server = server().await;
    changed(&server, "leasehold_acquire", "DEFAULT 30", "DEFAULT 3000");
    granted(&connect(&server).await, &request("order:42")).await;
}

#[tokio::test]
async fn to_compare_the_functions_costs_a_handle_one_statement_when_it_is_made() {
    let server = server().await;
    let url = format!("{}?wake_ups=off", server.url());
    server.sql("SELECT pg_stat_statements_reset()");
    let store = leasehold::postgres::Postgres::connect(&url).await.unwrap();
    let calls = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'";
    assert_eq!(server.sql(calls), "1");
    granted(&store, &request("order:42")).await;
    assert_eq!(server.sql(calls), "2");
}

#[tokio::test]
async fn other_tables_in_the_same_schema_leave_the_public_functions_alone() {
    let server = server().await;
    let public = functions(&server, "^leasehold_");
    let url = format!("{}?locks_table=mine&fences_table=numbers", server.url());
    Locks::migrate(&url).await.unwrap();
    assert_eq!(functions(&server, "^leasehold_"), public);
    assert_eq!(server.sql("SELECT granted FROM leasehold_acquire('order:42')"), "t");
    assert_eq!(server.sql("SELECT (SELECT count(*) FROM syncguard_locks), (SELECT count(*) FROM mine)"), "1|0");
    let other = leasehold::postgres::Postgres::connect(&url).await.unwrap();
    let checks = other.examine().await.unwrap();
    assert_eq!(complaints(&checks), [], "{checks:?}");
    assert!(check(&checks, "functions").detail.contains("none for SQL clients"), "{checks:?}");
    granted(&other, &request("order:42")).await;
}

#[tokio::test]
async fn tables_in_another_schema_have_public_functions_of_their_own() {
    let server = server().await;
    let url = format!("{}?schema=Billing", server.url());
    Locks::migrate(&url).await.unwrap();
    let other = leasehold::postgres::Postgres::connect(&url).await.unwrap();
    assert_eq!(complaints(&other.examine().await.unwrap()), []);
    let acquire = |schema: &str| server.sql(&format!("SELECT granted FROM {schema}.leasehold_acquire('order:42')"));
    assert_eq!(
        (acquire("\"Billing\""), acquire("public"), acquire("\"Billing\"")),
        ("t".into(), "t".into(), "f".into())
    );
    assert!(other.is_locked(&request("order:42").key).await.unwrap());
    drop(migrated(&server).await);
}
