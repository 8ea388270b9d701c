//! What we write is what the other library reads.

use leasehold::backend::Backend;
use leasehold::{Holder, Metadata};
use serde_json::{Value, json};
use test_servers::Postgres as Server;
use test_support::postgres::now;
use test_support::{granted, held, id, request};

use crate::support::{connect, server};

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
    let record = store.lookup(leasehold::backend::LookupBy::Id(&theirs)).await.unwrap().unwrap();
    assert_eq!((record.holder, record.metadata.is_empty()), (None, true));
    // Nor may the holder that it names come back and take the lock for its own.
    let mut same_holder = request("order:42");
    same_holder.holder = mine.holder;
    same_holder.steal = leasehold::Steal::NEVER.with_same_holder();
    assert_eq!(held(&store, &same_holder).await.holder, None);
    server.sql(&format!(
        "UPDATE syncguard_locks SET details = jsonb_set(details, '{{lockId}}', '\"{}\"')",
        theirs.expose()
    ));
    granted(&store, &same_holder).await;
}
