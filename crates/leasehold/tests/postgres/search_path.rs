//! The other library follows the search path, and we do not: it is noticed when that leads to two
//! places.

use leasehold::postgres::Postgres;
use leasehold::{ErrorCode, Locks};
use test_servers::Postgres as Server;
use test_support::postgres::TABLES;
use test_support::{check, complaints};

use crate::support::{connect, server};

/// A database whose search path starts with a schema of its own.
fn with_path(server: &Server) {
    server.sql("CREATE SCHEMA app; ALTER DATABASE postgres SET search_path = app, public");
}

#[tokio::test]
async fn tables_of_the_other_library_in_another_schema_are_noticed_and_named() {
    let server = server().await;
    with_path(&server);
    connect(&server).await;
    server.sql(&TABLES.replace("syncguard_", "app.syncguard_").replace("idx_app.", "idx_"));
    let url = server.url();
    for error in [Postgres::connect(&url).await.map(drop), Locks::migrate(&url).await.map(drop)] {
        let error = error.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
        assert!(error.hint().unwrap().contains("?schema=app"), "{error:?}");
    }
    let error = Locks::examine(&url).await.unwrap_err();
    assert!(error.hint().unwrap().contains("?schema=app"), "{error:?}");
    // Whoever chose knows what it does. An examination says so all the same.
    let shared = Postgres::connect(&format!("{url}?schema=app")).await.unwrap();
    shared.migrate().await.unwrap();
    assert_eq!(complaints(&shared.examine().await.unwrap()), []);
    let options = leasehold::postgres::PostgresOptions::default().with_schema("public");
    Postgres::connect_with(&url, options).await.unwrap();
    let apart = Postgres::connect(&format!("{url}?schema=public")).await.unwrap();
    let checks = apart.examine().await.unwrap();
    assert_eq!(complaints(&checks), []);
    assert!(check(&checks, "tables").detail.contains("in the schema app"), "{checks:?}");
}

#[tokio::test]
async fn a_migration_says_beforehand_whom_it_disturbs_and_who_would_not_find_the_tables() {
    let server = Server::start();
    let warnings = async || Locks::migration_warnings(&server.url()).await.unwrap();
    assert_eq!(warnings().await, [""; 0]);
    server.sql(TABLES);
    let said = warnings().await;
    assert!(said.len() == 1 && said[0].contains("public.syncguard_locks") && said[0].contains("restart"), "{said:?}");
    Locks::migrate(&server.url()).await.unwrap();
    assert_eq!(warnings().await, [""; 0], "it is done");
    server.sql("DROP TABLE syncguard_locks, syncguard_fence_counters");
    with_path(&server);
    let said = warnings().await;
    assert!(said.len() == 1 && said[0].contains("?schema=app"), "{said:?}");
    let chosen = Locks::migration_warnings(&format!("{}?schema=public", server.url())).await.unwrap();
    assert_eq!(chosen, [""; 0]);
}
