//! What we write is what the other library reads.

use leasehold::{Backend, Extend, Holder, Metadata, Release};
use serde_json::{Value, json};
use test_servers::Postgres as Server;

use crate::support::{connect, granted, held, id, now, request, row, server, ttl};

/// The columns of a table, in their order, with what they are and whether they must have a value.
fn columns(server: &Server, table: &str) -> String {
    server.sql(&format!(
        "SELECT column_name, data_type, is_nullable FROM information_schema.columns
        WHERE table_schema = 'public' AND table_name = '{table}' ORDER BY ordinal_position"
    ))
}

#[tokio::test]
async fn the_tables_are_the_shared_ones_and_one_column_of_ours() {
    let server = server().await;
    let locks = "key|text|NO\nlock_id|text|NO\nexpires_at_ms|bigint|NO\nacquired_at_ms|bigint|NO\nfence|text|NO\n\
        user_key|text|NO\ndetails|jsonb|YES";
    assert_eq!(columns(&server, "syncguard_locks"), locks);
    let counters = "fence_key|text|NO\nfence|bigint|NO\nkey_debug|text|YES";
    assert_eq!(columns(&server, "syncguard_fence_counters"), counters);
    let unique = "SELECT indisunique FROM pg_index WHERE indexrelid = 'idx_syncguard_locks_lock_id'::regclass";
    assert_eq!(server.sql(unique), "t");
}

#[tokio::test]
async fn a_lock_is_one_row_of_each_table_as_the_other_library_writes_them() {
    let server = server().await;
    let store = connect(&server).await;
    for name in ["order:42", "caf\u{e9} 'x' \\ \"y\"", "fence:order:42", &"k".repeat(512)] {
        server.sql("TRUNCATE syncguard_locks, syncguard_fence_counters");
        let mut mine = request(name);
        mine.holder = Holder::new("db-1/report").unwrap();
        mine.metadata = Metadata::new(json!({ "order": "A-17\u{0}" })).unwrap();
        let before = now(&server);
        let grant = granted(&store, &mine).await;
        let after = now(&server);
        let (since, until, fence) = (grant.acquired_at.as_millis(), grant.expires_at.as_millis(), grant.fence);
        assert!((before..=after).contains(&since) && until == since + 30_000, "{grant:?}");
        let row: Value = serde_json::from_str(&server.sql("SELECT row_to_json(l) FROM syncguard_locks AS l")).unwrap();
        let details = json!({
            "lockId": mine.lock_id.expose(), "holder": "db-1/report", "metadata": mine.metadata.to_json(),
        });
        let expected = json!({
            "key": name, "lock_id": mine.lock_id.expose(), "expires_at_ms": until, "acquired_at_ms": since,
            "fence": fence.to_string(), "user_key": name, "details": details,
        });
        assert_eq!((row, fence.to_string().len()), (expected, 15));
        let counter = server.sql("SELECT row_to_json(f) FROM syncguard_fence_counters AS f");
        let expected = json!({ "fence_key": format!("fence:{name}"), "fence": fence.get(), "key_debug": name });
        assert_eq!(serde_json::from_str::<Value>(&counter).unwrap(), expected);
    }
}

#[tokio::test]
async fn an_extend_changes_the_expiry_alone_and_a_release_removes_the_row_alone() {
    let server = server().await;
    let store = connect(&server).await;
    let mine = request("order:42");
    let grant = granted(&store, &mine).await;
    let before = row(&server, "order:42");
    let Extend::Extended { expires_at } = store.extend(&mine.lock_id, ttl(90_000)).await.unwrap() else {
        panic!("not extended");
    };
    let expected = before.replace(&grant.expires_at.as_millis().to_string(), &expires_at.as_millis().to_string());
    assert_eq!(row(&server, "order:42"), expected);
    assert_ne!(before, expected);
    let counter = || server.sql("SELECT * FROM syncguard_fence_counters");
    let counted = counter();
    assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released);
    assert_eq!((row(&server, "order:42"), counter()), (String::new(), counted));
}

#[tokio::test]
async fn details_of_another_lock_id_are_nobodys() {
    let server = server().await;
    let store = connect(&server).await;
    let mut mine = request("order:42");
    mine.holder = Holder::new("db-1/report").unwrap();
    mine.metadata = Metadata::new(json!({ "order": "A-17" })).unwrap();
    granted(&store, &mine).await;
    assert_eq!(held(&store, &request("order:42")).await.holder, Some(mine.holder.clone()));
    // The other library takes the key over, and leaves the column that it does not know.
    let theirs = id();
    server.sql(&format!("UPDATE syncguard_locks SET lock_id = '{}'", theirs.expose()));
    assert_eq!(held(&store, &request("order:42")).await.holder, None);
    let record = store.lookup(leasehold::LookupBy::Id(&theirs)).await.unwrap().unwrap();
    assert_eq!((record.holder, record.metadata.is_empty()), (None, true));
    // Nor may the holder that it names come back and take the lock for its own.
    let mut heir = request("order:42");
    heir.holder = mine.holder;
    heir.steal = leasehold::Steal::NEVER.from_same_holder();
    assert_eq!(held(&store, &heir).await.holder, None);
    server.sql(&format!(
        "UPDATE syncguard_locks SET details = jsonb_set(details, '{{lockId}}', '\"{}\"')",
        theirs.expose()
    ));
    granted(&store, &heir).await;
}
