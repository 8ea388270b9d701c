//! Corners: what is rare, and was wrong once.

use std::sync::Arc;
use std::time::Duration;

use leasehold::backend::{AcquireRequest, Backend, Event, LookupBy, Topic};
use leasehold::postgres::{Postgres, PostgresOptions};
use leasehold::{ErrorCode, ListRequest, LockId, Ttl};
use test_servers::Postgres as Server;
use test_support::postgres::TABLES;
use test_support::{eventually, granted, key, request, soon};
use tokio::task::spawn_blocking;

use crate::support::migrated;

async fn all_pages(store: &Postgres, limit: usize) -> Vec<String> {
    let (mut found, mut request) = (Vec::new(), ListRequest::new("").with_page_size(limit));
    loop {
        let page = store.list(&request).await.unwrap();
        found.extend(page.records.iter().map(|record| record.key.as_str().to_owned()));
        let Some(next) = page.next else { return found };
        request = ListRequest::new("").with_page_size(limit).with_cursor(next);
    }
}

#[tokio::test]
async fn a_row_that_is_no_lock_hides_none_of_the_others() {
    let server = Server::start();
    let store = migrated(&server).await;
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        granted(&store, &request(name)).await;
    }
    server.sql(
        "INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key)
        SELECT k, 'not an id ' || k, 9223372036854775807, 0, 'no fence', k FROM unnest(ARRAY['b1', 'b2', 'b3', 'b4']) AS k",
    );
    for limit in [1, 2, 3, 4, 100] {
        assert_eq!(all_pages(&store, limit).await, ["a", "b", "c", "d", "e", "f", "g"], "pages of {limit}");
    }
}

#[tokio::test]
async fn a_pool_of_no_connections_is_refused() {
    let server = Server::start();
    let options = PostgresOptions::default().with_pool_size(0).with_timeout(Duration::from_secs(1));
    let error = Postgres::connect_with(&server.url(), options).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
}

#[tokio::test]
async fn who_waits_for_many_locks_leaves_the_server_room_for_others() {
    let server = Server::with(&[("max_locks_per_transaction", "10"), ("max_connections", "100")]);
    let store = migrated(&server).await;
    let mut subscriptions = Vec::new();
    for n in 0..4000 {
        let subscribed = store.subscribe(Topic::Freed(&key(&format!("k{n}")))).await;
        subscriptions.push(subscribed.unwrap_or_else(|error| panic!("{n}: {error:?}")));
    }
    server.sql("CREATE TABLE some_table_of_another_program (x int primary key)");
    let last = request("k3999");
    granted(&store, &last).await;
    store.release(&last.lock_id).await.unwrap();
    let heard = soon("the release", subscriptions.last_mut().unwrap().next()).await;
    assert_eq!(heard, Some(Event::Freed));
}

#[tokio::test]
async fn one_id_for_two_keys_at_once_is_one_grant_and_one_refusal() {
    let server = Server::start();
    let store = migrated(&server).await;
    for n in 0..200 {
        let id = LockId::random().unwrap();
        let a = AcquireRequest::new(key(&format!("a{n}")), id, Ttl::default());
        let b = AcquireRequest::new(key(&format!("b{n}")), id, Ttl::default());
        let (a, b) = tokio::join!(store.acquire(&a), store.acquire(&b));
        let errors: Vec<_> = [a, b].into_iter().filter_map(Result::err).map(|e| e.code()).collect();
        assert_eq!(errors, [ErrorCode::InvalidArgument], "{n}");
    }
}

#[tokio::test]
async fn keys_with_quotes_and_backslashes_are_heard_of_whatever_the_settings() {
    for setting in ["on", "off"] {
        let server = Server::with(&[
            ("standard_conforming_strings", setting),
            ("escape_string_warning", "on"),
            ("backslash_quote", "off"),
        ]);
        let store = migrated(&server).await;
        for name in [
            "'",
            "\\",
            "\\'",
            "'\\",
            "a'); SELECT pg_sleep(100); --",
            "\\'); SELECT pg_sleep(100); --",
            "$$",
            "{{locks}}",
            "E'",
            "\u{1}\n\t",
            "\u{10ffff}",
            "%s %I",
            "\\\\''",
            "?",
        ] {
            let wanted = request(name);
            granted(&store, &wanted).await;
            let mut subscription = store.subscribe(Topic::Freed(&key(name))).await.unwrap();
            store.release(&wanted.lock_id).await.unwrap();
            let heard = soon("the release", subscription.next()).await;
            assert_eq!(heard, Some(Event::Freed), "{name}");
        }
        let interested = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
        eventually("nobody waits any more", async || server.sql(interested) == "0").await;
    }
}

#[tokio::test]
async fn numbers_at_their_limits_are_no_trouble() {
    let server = Server::start();
    let store = migrated(&server).await;
    for (until, since) in [(i64::MAX, i64::MIN), (i64::MAX, i64::MAX), (i64::MIN, i64::MIN)] {
        server.sql(&format!(
            "INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key)
            VALUES ('k', 'AAAAAAAAAAAAAAAAAAAAAA', {until}, {since}, '000000000000001', 'k')"
        ));
        let steal = leasehold::Steal::NEVER.with_held_longer_than(Duration::from_millis(1));
        let _ = store.lookup(LookupBy::Key(&key("k"))).await.unwrap();
        let outcome = store.acquire(&request("k")).await;
        assert!(outcome.is_ok(), "{until} {since} {outcome:?}");
        let outcome = store.acquire(&request("k").with_steal(steal)).await;
        assert!(outcome.is_ok(), "{until} {since} {outcome:?}");
        let _ = store.sweep().await.unwrap();
        server.sql("DELETE FROM syncguard_locks");
    }
}

/// As the PostgreSQL manual has it made, with a certificate of version 1.
#[tokio::test]
async fn a_certificate_that_nobody_checks_may_be_of_any_kind() {
    let server = Server::start();
    server.sql(
        "COPY (SELECT 1) TO PROGRAM 'umask 077; cat > /dev/null;
        openssl req -new -nodes -newkey rsa:2048 -subj /CN=localhost -keyout odd.key -out odd.csr 2> /dev/null &&
        openssl x509 -req -in odd.csr -days 9 -signkey odd.key -out odd.crt 2> /dev/null'",
    );
    for (name, value) in [("ssl", "on"), ("ssl_cert_file", "odd.crt"), ("ssl_key_file", "odd.key")] {
        server.sql(&format!("ALTER SYSTEM SET {name} = '{value}'"));
    }
    server.restart();
    for query in ["", "?sslmode=require"] {
        let url = format!("{}{query}", server.url());
        let store = Postgres::connect(&url).await.unwrap_or_else(|error| panic!("{query}: {error:?}"));
        let _listening = store.subscribe(Topic::Taken).await.unwrap();
        let encrypted = "SELECT count(*) > 0 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
            WHERE ssl AND application_name = 'leasehold'";
        assert_eq!(server.sql(encrypted), "t");
    }
    let error = Postgres::connect(&format!("{}?sslrootcert=system", server.url())).await.unwrap_err();
    assert_ne!(error.code(), ErrorCode::Internal, "{error:?}");
}

#[tokio::test]
async fn a_migration_with_nothing_to_do_waits_for_nobody_who_uses_the_locks() {
    let server = Arc::new(Server::start());
    let store = migrated(&server).await;
    let writes = "BEGIN; INSERT INTO syncguard_locks VALUES ('x', 'x', 0, 0, '', 'x'); SELECT pg_sleep(60)";
    let other = spawn_blocking({
        let server = server.clone();
        move || server.try_sql(writes)
    });
    while server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") != "1" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let done = tokio::time::timeout(Duration::from_secs(10), store.migrate()).await;
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    assert!(other.await.unwrap().is_err());
    done.expect("nobody is waited for").unwrap();
}

#[tokio::test]
async fn tables_of_the_other_library_can_be_migrated_while_it_uses_them() {
    let server = Arc::new(Server::start());
    let store = Postgres::connect(&server.url()).await.unwrap();
    server.sql(TABLES);
    // It reads the row, and writes it later in the same transaction.
    let uses = "DO $$ BEGIN FOR n IN 1..60 LOOP
        PERFORM FROM syncguard_locks WHERE key = 'k';
        PERFORM pg_sleep(0.02);
        INSERT INTO syncguard_locks VALUES ('k' || pg_backend_pid(), 'id' || pg_backend_pid(), 0, 0, '', 'k')
            ON CONFLICT (key) DO UPDATE SET expires_at_ms = excluded.expires_at_ms;
        COMMIT;
        END LOOP; END $$";
    let users: Vec<_> =
        (0..4).map(|_| server.clone()).map(|server| spawn_blocking(move || server.try_sql(uses))).collect();
    while server.sql("SELECT count(*) FROM syncguard_locks") != "4" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    store.migrate().await.unwrap();
    for user in users {
        user.await.unwrap().expect("the other library is not disturbed");
    }
}

#[tokio::test]
async fn an_index_that_only_looks_right_is_not_taken_for_it() {
    let server = Server::start();
    server.sql(&TABLES.replace("UNIQUE INDEX", "INDEX"));
    let store = Postgres::connect(&server.url()).await.unwrap();
    let migrated = store.migrate().await;
    let unique =
        server.sql("SELECT count(*) FROM pg_index WHERE indrelid = 'syncguard_locks'::regclass AND indisunique");
    assert!(migrated.is_err() || unique == "2", "{unique}");
}
