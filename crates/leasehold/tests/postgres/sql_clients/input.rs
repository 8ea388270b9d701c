//! What cannot be done is refused, with a reason that a program and a person understand.

use leasehold::{Metadata, Ttl};
use serde_json::{Value, json};
use test_servers::Postgres as Server;
use tokio_postgres::{Client, NoTls};

use super::{acquire, try_acquire};
use crate::support::{connect, server};
use test_support::postgres::{number, session};

/// Calls that must be refused with this SQLSTATE, a message and a hint that repeat nothing of what
/// was given.
async fn refused(client: &Client, call: &str, state: &str) {
    let error = client.query(&format!("SELECT {call}"), &[]).await.expect_err(call);
    let error = error.as_db_error().unwrap_or_else(|| panic!("{call}: {error:?}"));
    assert_eq!(error.code().code(), state, "{call}: {error:?}");
    if state.starts_with("LH") || state == "0A000" {
        assert!(error.hint().is_some_and(|hint| hint.len() > 10), "{call}: {error:?}");
        assert!(!error.message().contains("secret") && !error.hint().unwrap().contains("secret"), "{error:?}");
        assert_eq!(error.detail(), None);
    }
}

#[tokio::test]
async fn bad_input_is_refused_with_a_state_of_its_own_and_a_hint() {
    let server = server().await;
    let client = session(&server).await;
    let id = "AAAAAAAAAAAAAAAAAAAAAA";
    for (state, arguments) in [
        ("LH010", "''"),
        ("LH010", "NULL"),
        ("LH010", "repeat('k', 513)"),
        ("LH010", "repeat('k', 5000)"),
        ("LH010", "repeat('\u{e9}', 257)"),
        // 512 bytes or fewer as they are given, and more once they are normalised.
        ("LH010", "repeat('\u{958}', 170)"),
        ("LH011", "'k', 0"),
        ("LH011", "'k', -1"),
        ("LH011", "'k', 0.0009"),
        ("LH011", "'k', 'NaN'"),
        ("LH011", "'k', 'Infinity'"),
        ("LH011", "'k', '-Infinity'"),
        ("LH011", "'k', 315360000.01"),
        ("LH011", "'k', NULL"),
        ("LH012", "'k', lock_id => ''"),
        ("LH012", "'k', lock_id => 'secret'"),
        ("LH012", "'k', lock_id => 'AAAAAAAAAAAAAAAAAAAAA'"),
        ("LH012", "'k', lock_id => 'AAAAAAAAAAAAAAAAAAAAAAA'"),
        ("LH012", "'k', lock_id => 'AAAAAAAAAAAAAAAAAAAAA='"),
        ("LH012", "'k', lock_id => 'AAAAAAAAAAAAAAAAAAAAA\u{e9}'"),
        ("LH012", "'k', lock_id => E'AAAAAAAAAAAAAAAAAAAAA\\n'"),
        ("LH013", "'k', holder => ''"),
        ("LH013", "'k', holder => E'two\\nlines'"),
        ("LH013", "'k', holder => 'a\u{85}b'"),
        ("LH013", "'k', holder => 'a\u{9f}b'"),
        ("LH013", "'k', holder => 'a\u{7f}b'"),
        ("LH013", "'k', holder => repeat('secret', 43)"),
        ("LH013", "'k', holder => repeat('\u{e9}', 128)"),
        ("LH014", "'k', metadata => '[1]'"),
        ("LH014", "'k', metadata => 'null'"),
        ("LH014", "'k', metadata => '1'"),
        ("LH014", "'k', metadata => '{\"a\": [1, -1e400]}'"),
        ("LH014", "'k', metadata => jsonb_build_object('a', repeat('s', 4090))"),
        ("22P02", "'k', metadata => 'secret'"),
        ("22P02", "'k', 'secret'"),
    ] {
        refused(&client, &format!("leasehold_acquire({arguments})"), state).await;
    }
    for (state, call) in [
        ("LH012", "leasehold_release(NULL)".to_owned()),
        ("LH012", "leasehold_release('secret')".to_owned()),
        ("LH012", "leasehold_extend('secret', 1)".to_owned()),
        ("LH012", "leasehold_extend(NULL, 1)".to_owned()),
        ("LH011", format!("leasehold_extend('{id}', 0)")),
        ("LH011", format!("leasehold_extend('{id}', 'NaN')")),
        ("LH011", format!("leasehold_extend('{id}', NULL)")),
        ("LH010", "leasehold_holder('')".to_owned()),
        ("LH010", "leasehold_holder(NULL)".to_owned()),
        ("LH010", "leasehold_holder(repeat('k', 513))".to_owned()),
    ] {
        refused(&client, &call, state).await;
    }
    assert_eq!(number(&server, "SELECT count(*) FROM syncguard_locks"), 0, "nothing was left behind");
    assert_eq!(number(&server, "SELECT count(*) FROM syncguard_fence_counters"), 0);
}

#[tokio::test]
async fn what_is_just_within_the_limits_is_taken() {
    let server = server().await;
    let client = session(&server).await;
    for arguments in [
        "repeat('k', 512)",
        "repeat('\u{e9}', 256)",
        "E'tab\\tand\\nline'",
        "'a', 0.001",
        "'b', 315360000",
        "'c', lock_id => '-_AAAAAAAAAAAAAAAAAAAA'",
        "'d', holder => repeat('h', 255)",
        "'g', holder => 'caf\u{e9} \u{a0}\u{2028}'",
        "'e', metadata => NULL",
        // 4096 bytes as the server writes them.
        "'f', metadata => jsonb_build_object('a', repeat('m', 4087))",
    ] {
        assert!(acquire(&client, arguments).await.granted, "{arguments}");
    }
    let ttl = |key: &str| {
        number(&server, &format!("SELECT expires_at_ms - acquired_at_ms FROM syncguard_locks WHERE key = '{key}'"))
    };
    assert_eq!((ttl("a"), ttl("b"), ttl("d")), (1, Ttl::MAX.as_millis(), Ttl::default().as_millis()));
}

/// An object with `levels` of nesting, itself included, of objects and arrays in turn.
fn nested(levels: usize) -> Value {
    let inner = if levels.is_multiple_of(2) { json!([]) } else { json!({}) };
    (1..levels)
        .fold(inner, |inner, level| if (levels - level) % 2 == 1 { json!({ "a": inner }) } else { json!([inner]) })
}

#[tokio::test]
async fn metadata_may_be_nested_as_deep_as_the_library_allows() {
    let server = server().await;
    let client = session(&server).await;
    for levels in [1, 2, 31, 32, 33, 34, 500] {
        let value = nested(levels);
        assert!(value.is_object());
        let expected = Metadata::new(value.clone()).is_ok();
        assert_eq!(expected, levels <= 32);
        let outcome = try_acquire(&client, &format!("'k{levels}', metadata => '{value}'")).await;
        assert_eq!(outcome.is_ok(), expected, "{levels}: {outcome:?}");
        if let Err(error) = outcome {
            assert_eq!(error.code().unwrap().code(), "LH014");
        }
    }
}

#[tokio::test]
async fn two_spellings_of_a_key_are_one_key() {
    let server = server().await;
    let (store, client) = (connect(&server).await, session(&server).await);
    acquire(&client, "'cafe\u{301}', holder => 'me'").await;
    assert!(!acquire(&client, "'caf\u{e9}'").await.granted);
    assert_eq!(server.sql("SELECT key = user_key, octet_length(key) FROM syncguard_locks"), "t|5");
    assert_eq!(server.sql("SELECT held_by FROM leasehold_holder('cafe\u{301}')"), "me");
    let held = test_support::held(&store, &test_support::request("caf\u{e9}")).await;
    assert_eq!(held.holder.unwrap().as_str(), "me");
}

#[tokio::test]
async fn arguments_may_be_named_and_left_out_whatever_the_settings_of_the_session() {
    let server = server().await;
    let client = session(&server).await;
    client
        .batch_execute("SET search_path = ''; SET standard_conforming_strings = off; SET escape_string_warning = on")
        .await
        .unwrap();
    let call = "SELECT granted, lock_id FROM public.leasehold_acquire(lock_id => 'AAAAAAAAAAAAAAAAAAAAAA', key => 'k', metadata => '{}', holder => 'me', ttl_seconds => 5)";
    let row = client.query_one(call, &[]).await.unwrap();
    assert_eq!((row.get::<_, bool>(0), row.get::<_, &str>(1)), (true, "AAAAAAAAAAAAAAAAAAAAAA"));
    let holder: String =
        client.query_one("SELECT held_by FROM public.leasehold_holder(key => 'k')", &[]).await.unwrap().get(0);
    assert_eq!(holder, "me");
    let call = "SELECT public.leasehold_extend(ttl_seconds => 5, lock_id => 'AAAAAAAAAAAAAAAAAAAAAA') > now()";
    assert!(client.query_one(call, &[]).await.unwrap().get::<_, bool>(0));
    let call = "SELECT public.leasehold_release(lock_id => 'AAAAAAAAAAAAAAAAAAAAAA')";
    assert!(client.query_one(call, &[]).await.unwrap().get::<_, bool>(0));
    // One function for each name, as those want who call by name.
    let names = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'leasehold%'";
    assert_eq!(number(&server, names), 4);
    let columns = "SELECT string_agg(column_name || ' ' || data_type, ', ' ORDER BY ordinal_position)
        FROM information_schema.columns WHERE table_name = 'answer'";
    server.sql("CREATE TABLE answer AS SELECT * FROM leasehold_acquire('k')");
    let expected = "granted boolean, lock_id text, fence text, expires_at timestamp with time zone, held_by text, \
        held_since timestamp with time zone";
    assert_eq!(server.sql(columns), expected);
}

#[tokio::test]
async fn a_database_of_another_encoding_takes_keys_of_ascii() {
    let server = Server::start();
    for encoding in ["LATIN1", "SQL_ASCII", "EUC_JP"] {
        let name = encoding.to_lowercase();
        server.sql(&format!("CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"));
        let url = format!("postgres://postgres@{}/{name}", server.address());
        let store = leasehold::postgres::Postgres::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let mine = acquire(&client, "'order:42', holder => 'me'").await;
        assert!(mine.granted && !acquire(&client, "'order:42'").await.granted, "{encoding}");
        refused(&client, "leasehold_acquire('caf\u{e9}')", "0A000").await;
        test_support::held(&store, &test_support::request("order:42")).await;
        assert_eq!(test_support::complaints(&store.examine().await.unwrap()), [], "{encoding}");
    }
}
