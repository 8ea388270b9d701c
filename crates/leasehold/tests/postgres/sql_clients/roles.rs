//! Who may call what, and with whose rights.

use crate::support::connect;
use leasehold::backend::Backend;
use leasehold::postgres::Postgres;
use leasehold::{ErrorCode, Locks, Verdict};
use test_servers::Postgres as Server;
use test_support::{check, complaints, held, request};

const CALLS: [&str; 4] = [
    "SELECT granted FROM app.leasehold_acquire('order:42', lock_id => 'AAAAAAAAAAAAAAAAAAAAAA')",
    "SELECT leasehold_extend > now() FROM app.leasehold_extend('AAAAAAAAAAAAAAAAAAAAAA', 30)",
    "SELECT count(*) = 1 FROM app.leasehold_holder('order:42')",
    "SELECT app.leasehold_release('AAAAAAAAAAAAAAAAAAAAAA')",
];

/// A server whose tables belong to `keeper`, and where `client` may look into their schema.
async fn server() -> Server {
    let server = Server::start();
    server.sql("CREATE ROLE keeper LOGIN; CREATE ROLE client LOGIN; GRANT CREATE ON DATABASE postgres TO keeper");
    Locks::migrate(&url(&server, "keeper")).await.unwrap();
    server.sql_as("keeper", "GRANT USAGE ON SCHEMA app TO client");
    server
}

fn url(server: &Server, user: &str) -> String {
    format!("{}?schema=app", server.url_as(user, ""))
}

fn try_as(server: &Server, user: &str, sql: &str) -> Result<String, String> {
    server.try_sql(&format!("SET SESSION AUTHORIZATION {user}; {sql}"))
}

#[tokio::test]
async fn at_first_nobody_but_the_owner_may_call_them_whatever_is_granted_by_default() {
    let server = Server::start();
    server.sql("CREATE ROLE keeper LOGIN; CREATE ROLE client LOGIN; CREATE SCHEMA app AUTHORIZATION keeper");
    server.sql("ALTER DEFAULT PRIVILEGES FOR ROLE keeper IN SCHEMA app GRANT EXECUTE ON FUNCTIONS TO client");
    Locks::migrate(&url(&server, "keeper")).await.unwrap();
    server.sql_as("keeper", "GRANT USAGE ON SCHEMA app TO client");
    for call in CALLS {
        let outcome = try_as(&server, "client", call);
        assert!(outcome.as_ref().is_err_and(|error| error.contains("permission denied for function")), "{outcome:?}");
        assert_eq!(server.sql_as("keeper", call), "t", "{call}");
    }
}

#[tokio::test]
async fn to_execute_them_is_all_that_a_client_needs_and_all_it_gets() {
    let server = server().await;
    server.sql_as("keeper", "
        GRANT EXECUTE ON FUNCTION app.leasehold_acquire, app.leasehold_release, app.leasehold_extend, app.leasehold_holder
        TO client");
    for call in CALLS {
        assert_eq!(try_as(&server, "client", call).as_deref(), Ok("t"), "{call}");
    }
    server.sql_as("keeper", "SELECT app.leasehold_acquire('order:42')");
    for forbidden in [
        "SELECT lock_id FROM app.syncguard_locks",
        "DELETE FROM app.syncguard_locks",
        "UPDATE app.syncguard_fence_counters SET fence = 1",
        "SELECT * FROM app.syncguard_locks_force_release_v2('order:42', NULL)",
        "SELECT app.syncguard_locks_release_v2('AAAAAAAAAAAAAAAAAAAAAA')",
        "SELECT app.syncguard_locks_acquire_v2('order:42', 'x', 1, 'order:42', 'fence:order:42', '{}', NULL, 0, NULL, 'x', 1, 'i', NULL)",
    ] {
        let outcome = try_as(&server, "client", forbidden);
        assert!(outcome.as_ref().is_err_and(|error| error.contains("permission denied")), "{forbidden}: {outcome:?}");
    }
    let outcome = try_as(&server, "client", "ALTER FUNCTION app.leasehold_release RESET search_path");
    assert!(outcome.is_err_and(|error| error.contains("must be owner")));
    held(&Postgres::connect(&url(&server, "postgres")).await.unwrap(), &request("order:42")).await;
}

#[tokio::test]
async fn to_migrate_again_keeps_what_was_granted_and_what_was_taken_away() {
    let server = server().await;
    server.sql_as("keeper", "GRANT EXECUTE ON FUNCTION app.leasehold_acquire TO client");
    server.sql_as("keeper", "GRANT EXECUTE ON FUNCTION app.leasehold_holder TO PUBLIC");
    let rights = || {
        server.sql("SELECT proname, proowner::regrole, proacl FROM pg_proc WHERE proname LIKE 'leasehold%' ORDER BY 1")
    };
    let before = rights();
    Locks::migrate(&url(&server, "keeper")).await.unwrap();
    Locks::migrate(&url(&server, "postgres")).await.unwrap();
    assert_eq!(rights(), before);
    assert!(try_as(&server, "client", CALLS[0]).is_ok() && try_as(&server, "client", CALLS[3]).is_err());
}

#[tokio::test]
async fn functions_belong_to_the_owner_of_the_tables_whoever_migrates() {
    let server = Server::start();
    server.sql("CREATE ROLE keeper LOGIN; CREATE ROLE deployer LOGIN IN ROLE keeper; CREATE ROLE client LOGIN");
    server.sql("CREATE SCHEMA app AUTHORIZATION keeper");
    // The tables are those of another program, of a user who is not the one that migrates.
    server.sql_as("keeper", &format!("SET search_path = app; {}", test_support::postgres::TABLES));
    for user in ["deployer", "postgres"] {
        let store = Postgres::connect(&url(&server, user)).await.unwrap();
        store.migrate().await.unwrap();
        let owners = "SELECT DISTINCT proowner::regrole FROM pg_proc WHERE pronamespace = 'app'::regnamespace";
        assert_eq!(server.sql(owners), "keeper", "{user}");
        assert_eq!(complaints(&store.examine().await.unwrap()), []);
        server.sql("DO $$ DECLARE f regprocedure; BEGIN
            FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'app'::regnamespace LOOP EXECUTE 'DROP FUNCTION ' || f; END LOOP;
        END $$");
    }
    // Whoever may only use the tables cannot migrate.
    server.sql_as(
        "keeper",
        "GRANT USAGE, CREATE ON SCHEMA app TO client; GRANT ALL ON ALL TABLES IN SCHEMA app TO client",
    );
    let error = Locks::migrate(&url(&server, "client")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
    assert_eq!(
        server.sql("SELECT count(*) FROM pg_proc WHERE pronamespace = 'app'::regnamespace"),
        "0",
        "all or nothing"
    );
}

/// On servers before 15 everybody may create objects in the schema `public`.
#[tokio::test]
async fn what_a_stranger_put_into_the_schema_first_is_taken_from_him_or_refused() {
    let server = Server::start();
    server
        .sql("CREATE ROLE stranger LOGIN; CREATE ROLE keeper LOGIN; GRANT CREATE ON SCHEMA public TO stranger, keeper");
    let release = "(lock_id text) RETURNS boolean LANGUAGE sql AS 'SELECT true'";
    server.sql_as("stranger", &format!("CREATE FUNCTION leasehold_release{release}"));
    let outcome = Locks::migrate(&server.url_as("keeper", "")).await;
    assert_eq!(outcome.unwrap_err().code(), ErrorCode::AuthFailed, "an ordinary user cannot take it over");
    // A superuser can, and leaves the stranger no right to it.
    let store = connect(&server).await;
    store.migrate().await.unwrap();
    assert_eq!(complaints(&store.examine().await.unwrap()), []);
    let mine = server.sql("SELECT proowner::regrole, proacl FROM pg_proc WHERE proname = 'leasehold_release'");
    assert_eq!(mine, "postgres|{postgres=X/postgres}");
    let outcome = try_as(&server, "stranger", &format!("CREATE OR REPLACE FUNCTION leasehold_release{release}"));
    assert!(outcome.as_ref().is_err_and(|error| error.contains("must be owner")), "{outcome:?}");
    // A function with another result cannot be replaced.
    let other = Server::start();
    other.sql("CREATE FUNCTION leasehold_release(lock_id text) RETURNS integer LANGUAGE sql AS 'SELECT 1'");
    let error = connect(&other).await.migrate().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
    assert!(error.hint().unwrap().contains("drop"), "{error:?}");
}

/// Everything that a caller could be made to run instead of what we wrote: operators and functions
/// that fit the types better than the server's own, in a schema that is searched before all others.
const TRAPS: &str = "
CREATE FUNCTION sprung() RETURNS text LANGUAGE plpgsql AS $$
  BEGIN RAISE EXCEPTION 'a trap was sprung as %', current_user; END $$;
CREATE FUNCTION trap(numeric, integer) RETURNS numeric LANGUAGE sql AS 'SELECT sprung()::numeric';
CREATE OPERATOR * (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = trap);
CREATE OPERATOR - (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = trap);
CREATE FUNCTION trap(bigint, numeric) RETURNS boolean LANGUAGE sql AS 'SELECT sprung()::boolean';
CREATE OPERATOR < (LEFTARG = bigint, RIGHTARG = numeric, FUNCTION = trap);
CREATE OPERATOR > (LEFTARG = bigint, RIGHTARG = numeric, FUNCTION = trap);
CREATE FUNCTION trap(bigint, integer) RETURNS bigint LANGUAGE sql AS 'SELECT sprung()::bigint';
CREATE OPERATOR / (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = trap);
CREATE FUNCTION trap(text, text) RETURNS text LANGUAGE sql AS 'SELECT sprung()';
CREATE OPERATOR || (LEFTARG = text, RIGHTARG = text, FUNCTION = trap);
CREATE FUNCTION trap(text, name) RETURNS text LANGUAGE sql AS 'SELECT sprung()';
CREATE OPERATOR || (LEFTARG = text, RIGHTARG = name, FUNCTION = trap);
CREATE FUNCTION trap(double precision, integer) RETURNS double precision LANGUAGE sql AS 'SELECT sprung()::double precision';
CREATE OPERATOR * (LEFTARG = double precision, RIGHTARG = integer, FUNCTION = trap);
CREATE OPERATOR / (LEFTARG = double precision, RIGHTARG = integer, FUNCTION = trap);
CREATE FUNCTION hashtext(text) RETURNS integer LANGUAGE sql AS 'SELECT sprung()::integer';
CREATE FUNCTION \"normalize\"(text) RETURNS text LANGUAGE sql AS 'SELECT sprung()';
CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT sprung()::timestamptz';
CREATE FUNCTION round(double precision) RETURNS double precision LANGUAGE sql AS 'SELECT sprung()::double precision';
CREATE FUNCTION \"left\"(text, integer) RETURNS text LANGUAGE sql AS 'SELECT sprung()';
";

#[tokio::test]
async fn nothing_of_a_strangers_is_run_with_the_rights_of_the_owner_or_of_a_caller() {
    let server = server().await;
    server.sql(
        "CREATE ROLE stranger LOGIN; CREATE SCHEMA traps AUTHORIZATION stranger; GRANT USAGE ON SCHEMA traps TO PUBLIC",
    );
    server.sql_as("stranger", &format!("SET search_path = traps; {TRAPS}"));
    server.sql_as("keeper", "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA app TO client");
    // Whoever calls the functions for SQL clients decides where names are looked for, and yet finds
    // nothing there.
    for call in CALLS {
        let outcome = try_as(&server, "client", &format!("SET search_path = traps, pg_catalog; {call}"));
        assert_eq!(outcome.as_deref(), Ok("t"), "{call}");
    }
    // A program of the library, where the schema is searched after the server's own, as `public`
    // is.
    server.sql("ALTER ROLE postgres SET search_path = traps");
    let store = Postgres::connect(&url(&server, "postgres")).await.unwrap();
    store.migrate().await.unwrap();
    let mine = request("order:42");
    test_support::granted(&store, &mine).await;
    store.extend(&mine.lock_id, mine.ttl).await.unwrap();
    assert!(store.is_locked(&mine.key).await.unwrap());
    assert_eq!(store.list(&leasehold::ListRequest::new("")).await.unwrap().records.len(), 1);
    store.force_release(&mine.key, None).await.unwrap();
    store.release(&mine.lock_id).await.unwrap();
    store.sweep().await.unwrap();
    let checks = store.examine().await.unwrap();
    assert_eq!(check(&checks, "functions").verdict, Verdict::Ok, "{checks:?}");
    assert_eq!(complaints(&checks), []);
}

#[tokio::test]
async fn tables_whose_rows_are_kept_from_others_are_no_obstacle() {
    let server = server().await;
    server.sql_as(
        "keeper",
        "
        ALTER TABLE app.syncguard_locks ENABLE ROW LEVEL SECURITY;
        ALTER TABLE app.syncguard_fence_counters ENABLE ROW LEVEL SECURITY;
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA app TO client",
    );
    for call in CALLS {
        assert_eq!(try_as(&server, "client", call).as_deref(), Ok("t"), "{call}");
    }
}
