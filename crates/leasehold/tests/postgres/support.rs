//! What the tests of this store share.

use leasehold::postgres::Postgres;
use test_servers::Postgres as Server;

/// A server with tables.
pub(crate) async fn server() -> Server {
    let server = Server::start();
    migrated(&server).await;
    server
}

/// Makes the tables, and connects.
pub(crate) async fn migrated(server: &Server) -> Postgres {
    let store = connect(server).await;
    store.migrate().await.unwrap();
    store
}

pub(crate) async fn connect(server: &Server) -> Postgres {
    Postgres::connect(&server.url()).await.unwrap()
}

/// A store that gives up on nothing before the test does.
pub(crate) async fn patient(server: &Server) -> Postgres {
    let options = "timeout=60s&options=-c%20lock_timeout%3D60s";
    Postgres::connect(&format!("{}?{options}", server.url())).await.unwrap()
}
