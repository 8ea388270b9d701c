//! What each function does and answers.

use leasehold::backend::{Backend, LookupBy};
use leasehold::{Holder, LockId, Metadata};
use serde_json::{Value, json};
use test_servers::Postgres as Server;

use super::{acquire, extend, release, try_acquire};
use crate::support::{connect, server};
use test_support::postgres::{now, number, row, session};
use test_support::{eventually, granted, held, id, key, request};

#[tokio::test]
async fn a_lock_is_the_record_that_the_library_writes() {
    let server = server().await;
    let (store, client) = (connect(&server).await, session(&server).await);
    let record = || -> Value {
        let row = "SELECT row_to_json(l)::jsonb || jsonb_build_object('counter', row_to_json(f))
            FROM syncguard_locks AS l, syncguard_fence_counters AS f";
        let mut record: Value = serde_json::from_str(&server.sql(row)).unwrap();
        for changing in ["acquired_at_ms", "expires_at_ms", "fence"] {
            record[changing].take();
        }
        record["counter"]["fence"].take();
        record
    };
    for name in ["order:42", "caf\u{e9} \\ \"y\"", &"k".repeat(512), &"\u{e9}".repeat(256)] {
        let mut mine = request(name);
        mine.holder = Holder::new("db-1/report").unwrap();
        mine.metadata = Metadata::new(json!({ "order": "A-17" })).unwrap();
        granted(&store, &mine).await;
        let mut ours = record();
        server.sql("TRUNCATE syncguard_locks, syncguard_fence_counters");
        // As the server writes JSON, which has a space that is of no meaning.
        ours["details"]["metadata"] = json!("{\"order\": \"A-17\"}");
        let metadata = "'{\"order\": \"A-17\"}'";
        let arguments = format!("'{name}', 30, 'db-1/report', {metadata}, '{}'", mine.lock_id.expose());
        acquire(&client, &arguments).await;
        assert_eq!(record(), ours);
        server.sql("TRUNCATE syncguard_locks, syncguard_fence_counters");
    }
    // Nothing is stored where there is nothing to store.
    acquire(&client, "'order:42'").await;
    assert_eq!(server.sql("SELECT details ? 'metadata' FROM syncguard_locks"), "f");
}

#[tokio::test]
async fn a_grant_tells_all_about_itself_and_a_refusal_no_lock_id() {
    let server = server().await;
    let (store, client) = (connect(&server).await, session(&server).await);
    let before = i64::try_from(now(&server)).unwrap();
    let mine = acquire(&client, "'order:42', ttl_seconds => 1.5, holder => 'me', metadata => '{\"a\": 1}'").await;
    let after = i64::try_from(now(&server)).unwrap();
    assert!((before..=after).contains(&mine.held_since) && mine.expires_at == mine.held_since + 1500, "{mine:?}");
    assert_eq!((mine.granted, mine.held_by.as_deref()), (true, Some("me")));
    let record = store.lookup(LookupBy::Key(&key("order:42"))).await.unwrap().unwrap();
    assert_eq!(record.lock_id.expose(), mine.id());
    assert_eq!(record.fence.to_string(), *mine.fence.as_ref().unwrap());
    assert_eq!(i64::try_from(record.expires_at.as_millis()).unwrap(), mine.expires_at);
    assert_eq!(record.holder, Some(Holder::new("me").unwrap()));
    assert_eq!(record.metadata, Metadata::new(json!({"a": 1})).unwrap());

    for arguments in
        ["'order:42'", "'order:42', holder => 'me'", "key => 'order:42', lock_id => 'BBBBBBBBBBBBBBBBBBBBBB'"]
    {
        let other = acquire(&client, arguments).await;
        assert_eq!((other.granted, other.lock_id, other.fence), (false, None, None), "{arguments}");
        assert_eq!((other.held_by.as_deref(), other.held_since), (Some("me"), mine.held_since));
        assert_eq!(other.expires_at, mine.expires_at);
    }
    let everything =
        server.sql("SELECT * FROM leasehold_acquire('order:42'); SELECT * FROM leasehold_holder('order:42')");
    assert!(!everything.contains(mine.id()), "{everything}");
}

#[tokio::test]
async fn the_server_makes_lock_ids_that_cannot_be_guessed() {
    let server = server().await;
    let ids = server.sql("SELECT syncguard_locks_new_lock_id_v2() FROM generate_series(1, 3000)");
    let ids: Vec<&str> = ids.lines().collect();
    let different: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!((ids.len(), different.len()), (3000, 3000));
    assert!(ids.iter().all(|id| id.parse::<LockId>().is_ok() && !id.starts_with('-')));
    // Of 21 characters each of 64 is as likely as another: no bit of a UUID's version shows.
    for place in 0..21 {
        let seen: std::collections::HashSet<_> = ids.iter().map(|id| id.as_bytes()[place]).collect();
        assert!(seen.len() >= 63, "character {place}: {}", seen.len());
    }
    let made = acquire(&session(&server).await, "'order:42'").await;
    assert!(made.id().parse::<LockId>().is_ok());
}

#[tokio::test]
async fn to_acquire_again_with_the_same_lock_id_is_the_same_grant() {
    let server = server().await;
    let client = session(&server).await;
    let arguments = format!("'order:42', 30, 'me', '{{}}', '{}'", id().expose());
    let first = acquire(&client, &arguments).await;
    assert_eq!(acquire(&client, &arguments).await, first);
    assert_eq!(number(&server, "SELECT count(*) FROM syncguard_locks"), 1);
    // One id holds one lock.
    let error = try_acquire(&client, &arguments.replace("order:42", "order:43")).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "LH001");
    assert!(error.hint().is_some() && !format!("{error:?}").contains(first.id()), "{error:?}");
}

#[tokio::test]
async fn a_release_happens_once_and_an_extend_replaces_the_expiry() {
    let server = server().await;
    let client = session(&server).await;
    let mine = acquire(&client, "'order:42', 5").await;
    let before = i64::try_from(now(&server)).unwrap();
    let until = extend(&client, mine.id(), 60.25).await.unwrap();
    let after = i64::try_from(now(&server)).unwrap();
    assert!((before + 60_250..=after + 60_250).contains(&until), "{until}");
    assert_eq!(server.sql("SELECT expires_at_ms FROM syncguard_locks"), until.to_string());
    assert_eq!(extend(&client, id().expose(), 60.0).await, None);
    assert!(!release(&client, id().expose()).await);
    assert!(release(&client, mine.id()).await);
    assert!(!release(&client, mine.id()).await);
    assert_eq!(extend(&client, mine.id(), 60.0).await, None);
    assert_eq!(row(&server, "order:42"), "");
    let next = acquire(&client, "'order:42'").await;
    assert!(next.granted && next.fence > mine.fence, "{next:?} after {mine:?}");
}

#[tokio::test]
async fn a_lock_is_held_until_the_tolerance_is_over_and_then_nobody_extends_it() {
    let server = server().await;
    let client = session(&server).await;
    let expire = |ago: u64| {
        let end = now(&server) - ago;
        server.sql(&format!("UPDATE syncguard_locks SET expires_at_ms = {end}"));
        end
    };
    let mut attempts = 0..10;
    let mine = loop {
        assert!(attempts.next().is_some(), "ten attempts were all too slow");
        let mine = acquire(&client, "'order:42'").await;
        let end = expire(500);
        let again = acquire(&client, "'order:42'").await;
        let holders = server.sql("SELECT count(*) FROM leasehold_holder('order:42')");
        // On a busy machine the tolerance may be over before everybody has looked.
        if now(&server) < end + 1000 {
            assert_eq!((again.granted, holders.as_str()), (false, "1"));
            break mine;
        }
        server.sql("DELETE FROM syncguard_locks");
    };
    expire(1001);
    assert_eq!(server.sql("SELECT count(*) FROM leasehold_holder('order:42')"), "0");
    assert_eq!(extend(&client, mine.id(), 30.0).await, None);
    let next = acquire(&client, "'order:42'").await;
    assert!(next.fence > mine.fence);
    assert!(!release(&client, mine.id()).await, "the id of the one who lost it is of no use");
    expire(1001);
    assert!(!release(&client, next.id()).await);
}

#[tokio::test]
async fn a_holder_is_shown_with_its_metadata_to_whoever_asks() {
    let server = server().await;
    let (store, client) = (connect(&server).await, session(&server).await);
    let shown = |name: &str| {
        server.sql(&format!("SELECT held_by, fence, metadata, held_since < expires_at FROM leasehold_holder('{name}')"))
    };
    assert_eq!(shown("order:42"), "", "free");
    let mine = acquire(&client, "'order:42', 30, 'me', '{\"a\": [1, 2]}'").await;
    assert_eq!(shown("order:42"), format!("me|{}|{{\"a\": [1, 2]}}|t", mine.fence.as_ref().unwrap()));
    let mut ours = request("order:43");
    ours.holder = Holder::new("web-1/app").unwrap();
    let grant = granted(&store, &ours).await;
    assert_eq!(shown("order:43"), format!("web-1/app|{}|{{}}|t", grant.fence));
    // The library can store text that the server's own JSON cannot.
    let mut odd = request("order:44");
    odd.metadata = Metadata::new(json!({ "text": "a\u{0}b" })).unwrap();
    odd.holder = Holder::new("web-1/app").unwrap();
    let grant = granted(&store, &odd).await;
    assert_eq!(shown("order:44"), format!("web-1/app|{}||t", grant.fence));
    // Details of a lock that the other library has taken over are nobody's.
    server.sql("UPDATE syncguard_locks SET lock_id = 'CCCCCCCCCCCCCCCCCCCCCC' WHERE key = 'order:42'");
    assert_eq!(shown("order:42"), format!("|{}|{{}}|t", mine.fence.as_ref().unwrap()));
    assert_eq!(acquire(&client, "'order:42'").await.held_by, None);
    // Whatever another program wrote can be shown.
    server.sql("UPDATE syncguard_locks SET expires_at_ms = 9223372036854775807 WHERE key = 'order:42'");
    assert!(!acquire(&client, "'order:42'").await.granted);
    assert!(shown("order:42").ends_with("|t"));
}

#[tokio::test]
async fn to_look_writes_nothing_and_is_allowed_where_nothing_may_be_written() {
    let server = server().await;
    let client = session(&server).await;
    acquire(&client, "'order:42', holder => 'me'").await;
    client.batch_execute("BEGIN READ ONLY").await.unwrap();
    let held_by: String =
        client.query_one("SELECT held_by FROM leasehold_holder('order:42')", &[]).await.unwrap().get(0);
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(held_by, "me");
    // Which is what PostgREST goes by when it is asked with GET.
    assert_eq!(server.sql("SELECT provolatile FROM pg_proc WHERE proname = 'leasehold_holder'"), "s");
}

#[tokio::test]
async fn a_holder_without_a_name_is_called_by_its_address_and_program() {
    let server = server().await;
    let client = session(&server).await;
    let named = acquire(&client, "'a'").await;
    assert_eq!(named.held_by.as_deref(), Some("127.0.0.1/session"));
    client.batch_execute("SET application_name = ''").await.unwrap();
    assert_eq!(acquire(&client, "'b'").await.held_by.as_deref(), Some("127.0.0.1/postgres"));
    assert_eq!(server.sql("SELECT held_by FROM leasehold_acquire('c')"), "local/test-servers");
    // The user who logged in, not the owner of the function, even if its name is odd.
    server.sql("CREATE ROLE \"odd\nname\" LOGIN; GRANT EXECUTE ON FUNCTION leasehold_acquire TO \"odd\nname\"");
    let held_by = server.sql_as("odd\nname", "SET application_name = ''; SELECT held_by FROM leasehold_acquire('d')");
    assert_eq!(held_by, "local/odd?name");
    assert!(Holder::new(&held_by).is_ok());
}

#[tokio::test]
async fn what_is_answered_is_on_disk_and_waits_for_others_only_so_long() {
    let server = Server::with(&[("synchronous_commit", "off"), ("pg_stat_statements.track", "all")]);
    let store = crate::support::migrated(&server).await;
    let client = session(&server).await;
    for call in [
        "leasehold_acquire('order:42')",
        "leasehold_release('AAAAAAAAAAAAAAAAAAAAAA')",
        "leasehold_extend('AAAAAAAAAAAAAAAAAAAAAA', 1)",
    ] {
        client.batch_execute(&format!("BEGIN; SELECT {call}")).await.unwrap();
        let settings = "SELECT current_setting('synchronous_commit') || ' ' || current_setting('lock_timeout')";
        let settings: String = client.query_one(settings, &[]).await.unwrap().get(0);
        client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(settings, "on 4s", "{call}");
    }
    held(&store, &request("order:42")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_those_who_wait_with_the_library() {
    let server = server().await;
    let client = session(&server).await;
    let mine = acquire(&client, "'order:42', 600").await;
    let locks = leasehold::Locks::connect(&server.url()).await.unwrap();
    let waiting =
        tokio::spawn(async move { locks.lock("order:42").wait(std::time::Duration::from_secs(60)).acquire().await });
    let interested = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    eventually("it waits", async || number(&server, interested) > 0).await;
    let released = std::time::Instant::now();
    assert!(release(&client, mine.id()).await);
    let guard = test_support::soon("the lock", waiting).await.unwrap().unwrap();
    assert!(released.elapsed() < std::time::Duration::from_secs(2), "{:?}", released.elapsed());
    guard.release().await.unwrap();
}
