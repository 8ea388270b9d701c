//! What the tests of this store share.

use std::num::NonZeroU16;

use leasehold::backend::{AcquireRequest, Line, Mode};
use leasehold::postgres::Postgres;
use test_servers::Postgres as Server;
use test_support::{request, ttl};

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

/// One of so many.
pub(crate) fn permit(of: u16) -> Mode {
    Mode::Permit { of: NonZeroU16::new(of).unwrap() }
}

/// A request of a reader.
pub(crate) fn shared(name: &str) -> AcquireRequest {
    request(name).with_mode(Mode::Shared)
}

/// A request that has a place in line for half a minute if it is refused.
pub(crate) fn joining(name: &str) -> AcquireRequest {
    request(name).with_line(Line::Join { lease: ttl(30_000) })
}
