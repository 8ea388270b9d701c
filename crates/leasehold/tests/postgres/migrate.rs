//! Tables are made once, by whoever comes first, and taken as they are afterwards.

use leasehold::backend::{Backend, Mode};
use leasehold::postgres::Postgres;
use leasehold::{ErrorCode, Locks};
use test_servers::Postgres as Server;

use test_support::postgres::{TABLES, number, session, stuck};
use test_support::{eventually, granted, held, request, soon};

use crate::support::{connect, migrated, server};

/// Everything in the schemas of users: tables, columns, indexes, their options, and functions with
/// their sources.
fn schema(server: &Server) -> String {
    server.sql(
        "SELECT 'column', c.oid::regclass, attname, atttypid::regtype, attnotnull, pg_get_expr(adbin, adrelid)
        FROM pg_class AS c JOIN pg_attribute ON attrelid = c.oid AND attnum > 0 AND NOT attisdropped
          LEFT JOIN pg_attrdef ON adrelid = c.oid AND adnum = attnum
        WHERE relkind = 'r' AND relnamespace::regnamespace::text !~ '^(pg_|information_schema)'
        ORDER BY 2, attnum;
        SELECT 'options', oid::regclass, reloptions FROM pg_class
        WHERE relkind = 'r' AND relnamespace::regnamespace::text !~ '^(pg_|information_schema)' ORDER BY 2;
        SELECT 'index', indexdef FROM pg_indexes WHERE schemaname !~ '^(pg_|information_schema)' ORDER BY 2;
        SELECT 'function', pg_get_functiondef(oid) FROM pg_proc
        WHERE proname ~ 'lock|mine' AND pronamespace::regnamespace::text !~ '^(pg_|information_schema)' ORDER BY proname;",
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_at_once_make_the_tables_once() {
    let server = Server::start();
    let migrations: Vec<_> = (0..10)
        .map(|_| {
            let url = server.url();
            tokio::spawn(async move { Locks::migrate(&url).await })
        })
        .collect();
    for migration in migrations {
        soon("a migration", migration).await.unwrap().unwrap();
    }
    let made = schema(&server);
    assert_eq!(made.lines().filter(|line| line.starts_with("index|")).count(), 9, "{made}");
    granted(&connect(&server).await, &request("order:42")).await;
}

#[tokio::test]
async fn a_migration_waits_for_one_that_is_under_way() {
    let server = Server::start();
    let store = std::sync::Arc::new(connect(&server).await);
    let first = session(&server).await;
    first.batch_execute(&store.migration().replace("COMMIT;", "")).await.unwrap();
    let second = tokio::spawn({
        let store = store.clone();
        async move { store.migrate().await }
    });
    eventually("it waits", async || stuck(&server) == 1).await;
    first.batch_execute("COMMIT").await.unwrap();
    soon("a migration", second).await.unwrap().unwrap();
    granted(&*store, &request("order:42")).await;
}

#[tokio::test]
async fn to_migrate_again_changes_nothing_and_keeps_every_lock() {
    let server = server().await;
    let store = connect(&server).await;
    let mine = request("order:42");
    let grant = granted(&store, &mine).await;
    let rows = || server.sql("SELECT * FROM syncguard_locks; SELECT * FROM syncguard_fence_counters");
    let before = (schema(&server), rows());
    store.migrate().await.unwrap();
    assert_eq!((schema(&server), rows()), before);
    assert_eq!(granted(&store, &mine).await, grant);
}

#[tokio::test]
async fn to_migrate_again_waits_for_nobody_who_uses_the_tables_and_stops_nobody() {
    let server = server().await;
    let store = connect(&server).await;
    granted(&store, &request("order:42")).await;
    let busy = session(&server).await;
    busy.batch_execute("BEGIN; UPDATE syncguard_locks SET expires_at_ms = expires_at_ms + 1").await.unwrap();
    soon("a migration", store.migrate()).await.unwrap();
    busy.batch_execute("COMMIT").await.unwrap();
    // And a migration that takes long keeps nobody from other keys.
    let slow = session(&server).await;
    let migration = store.migration().replace("COMMIT;", "");
    slow.batch_execute(&migration).await.unwrap();
    soon("an acquire", granted(&store, &request("order:43"))).await;
    slow.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test]
async fn tables_of_the_other_library_get_one_column_that_may_be_empty_and_keep_their_rows() {
    let server = Server::start();
    server.sql(TABLES);
    let foreign = test_support::postgres::write(&server, "order:42", 5_000, 60_000);
    let columns = "key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key";
    let rows = || server.sql(&format!("SELECT {columns} FROM syncguard_locks; SELECT * FROM syncguard_fence_counters"));
    let tables = || -> Vec<String> {
        let schema = schema(&server);
        schema.lines().filter(|line| !line.starts_with("function|")).map(str::to_owned).collect()
    };
    let ours = |line: &str| line.contains("syncguard_locks_grants") || line.contains("syncguard_locks_line");
    let pick = |lines: &[String], kind: &str| -> Vec<String> {
        lines.iter().filter(|line| line.starts_with(kind) && !ours(line)).cloned().collect()
    };
    let (before, kept) = (tables(), rows());
    let store = migrated(&server).await;
    let after = tables();
    let mut expected = pick(&before, "column|");
    let place = expected.iter().position(|line| line.contains("user_key")).unwrap() + 1;
    expected.insert(place, "column|syncguard_locks|details|jsonb|f|".to_owned());
    assert_eq!(pick(&after, "column|"), expected);
    assert_eq!(pick(&after, "index|"), pick(&before, "index|"), "no index twice");
    assert_eq!(pick(&after, "options|"), pick(&before, "options|"));
    assert_eq!((rows(), server.sql("SELECT count(details) FROM syncguard_locks")), (kept, "0".to_owned()));
    assert_eq!(held(&store, &request("order:42")).await.expires_at.as_millis(), foreign.expires_at);
}

#[tokio::test]
async fn the_other_library_finds_everything_that_it_would_make() {
    let server = server().await;
    let before = schema(&server);
    server.sql(&TABLES.replace("TABLE ", "TABLE IF NOT EXISTS ").replace("INDEX ", "INDEX IF NOT EXISTS "));
    assert_eq!(schema(&server), before);
}

#[tokio::test]
async fn new_tables_belong_to_the_owner_of_the_old_ones_whoever_makes_them() {
    let server = Server::start();
    server.sql("CREATE ROLE \"Keeper\" LOGIN; GRANT CREATE ON DATABASE postgres TO \"Keeper\"");
    let url = format!("{}?schema=app", server.url_as("Keeper", ""));
    Locks::migrate(&url).await.unwrap();
    server.sql("DROP TABLE app.syncguard_locks_grants, app.syncguard_locks_line");
    Locks::migrate(&format!("{}?schema=app", server.url())).await.unwrap();
    let owners = "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'app'";
    assert_eq!(server.sql(owners), "Keeper");
    granted(&Postgres::connect(&url).await.unwrap(), &request("order:42").with_mode(Mode::Shared)).await;
}

#[tokio::test]
async fn schemas_and_tables_of_other_names_are_made_and_keep_apart() {
    let server = server().await;
    let (store, plain) = (format!("{}?schema=App&locks_table=Mine&fences_table=numbers", server.url()), server.url());
    Locks::migrate(&store).await.unwrap();
    let (store, plain) = (Postgres::connect(&store).await.unwrap(), Postgres::connect(&plain).await.unwrap());
    let mut freed = store.subscribe(leasehold::backend::Topic::Freed(&request("order:42").key)).await.unwrap();
    let (mine, theirs) = (request("order:42"), request("order:42"));
    granted(&store, &mine).await;
    granted(&plain, &theirs).await;
    assert_eq!(number(&server, "SELECT count(*) FROM \"App\".\"Mine\""), 1);
    assert_eq!(number(&server, "SELECT count(*) FROM \"App\".numbers"), 1);
    assert_eq!(number(&server, "SELECT count(*) FROM syncguard_locks"), 1);
    plain.release(&theirs.lock_id).await.unwrap();
    assert!(tokio::time::timeout(std::time::Duration::from_millis(100), freed.next()).await.is_err());
    store.release(&mine.lock_id).await.unwrap();
    assert_eq!(soon("the notification", freed.next()).await, Some(leasehold::backend::Event::Freed));
}

#[tokio::test]
async fn names_that_would_need_quoting_are_refused() {
    let server = Server::start();
    for odd in ["a%20b", "a%22b", "a;b", "a.b", "1a", "a-b", "%C3%A4", ""] {
        for option in ["schema", "locks_table", "fences_table"] {
            let url = format!("{}?{option}={odd}", server.url());
            let error = Postgres::connect(&url).await.unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{url}: {error:?}");
            assert_eq!(Postgres::migration_for(&url).unwrap_err().code(), ErrorCode::InvalidArgument, "{url}");
        }
    }
}

#[tokio::test]
async fn what_somebody_else_runs_for_us_makes_the_same() {
    let (ours, theirs) = (Server::start(), Server::start());
    for options in ["", "?schema=app&locks_table=mine&fences_table=numbers"] {
        let store = Postgres::connect(&format!("{}{options}", ours.url())).await.unwrap();
        store.migrate().await.unwrap();
        let url = format!("postgres://nobody@192.0.2.1/nowhere{options}");
        assert_eq!(Postgres::migration_for(&url).unwrap(), store.migration());
        theirs.sql(&store.migration());
        assert!(schema(&ours).contains("_acquire"));
        assert_eq!(schema(&ours), schema(&theirs));
    }
}

#[tokio::test]
async fn missing_tables_are_an_error_that_says_what_to_run() {
    let server = Server::start();
    for (missing, break_it) in [
        ("everything", ""),
        ("a schema", "DROP SCHEMA public CASCADE"),
        ("the functions", "CREATE SCHEMA IF NOT EXISTS public; CREATE TABLE IF NOT EXISTS syncguard_locks ()"),
    ] {
        server.sql(break_it);
        let store = connect(&server).await;
        let error = store.acquire(&request("order:42")).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{missing}: {error:?}");
        assert!(error.hint().unwrap().contains("leasehold migrate") && !error.outcome_unknown(), "{error:?}");
        let error = store.is_locked(&request("order:42").key).await.unwrap_err();
        assert!(error.hint().unwrap().contains("leasehold migrate"), "{missing}: {error:?}");
    }
    let store = connect(&server).await;
    server.sql("DROP TABLE syncguard_locks");
    store.migrate().await.unwrap();
    for table in ["syncguard_fence_counters", "syncguard_locks_grants", "syncguard_locks_line"] {
        server.sql(&format!("DROP TABLE {table}"));
        let error = store.acquire(&request("order:42").with_mode(Mode::Shared)).await.unwrap_err();
        assert!(error.hint().unwrap().contains("leasehold migrate"), "{table}: {error:?}");
        server.sql(&store.migration());
    }
    granted(&store, &request("order:42")).await;
}
