//! Tables that the other library made are as good as ours.

use leasehold::backend::{Backend, Release};
use test_support::postgres::{TABLES, row, write};
use test_support::{granted, held, request, ttl};

use crate::support::migrated;

#[tokio::test]
async fn locks_in_tables_of_the_other_library_are_locks_like_ours() {
    let server = test_servers::Postgres::start();
    server.sql(TABLES);
    let store = migrated(&server).await;
    let foreign = write(&server, "order:42", 5_000, 30_000);
    assert_eq!(held(&store, &request("order:42")).await.holder, None);
    let before = row(&server, "order:42");
    store.extend(&foreign.id, ttl(90_000)).await.unwrap();
    let expires_at = foreign.expires_at.to_string();
    let (start, end) = before.split_once(&expires_at).unwrap();
    let extended = row(&server, "order:42");
    assert!(extended.starts_with(start) && extended.ends_with(end) && extended != before, "{extended}");
    assert_eq!(store.release(&foreign.id).await.unwrap(), Release::Released);
    assert_eq!(row(&server, "order:42"), "");
    assert!(granted(&store, &request("order:42")).await.fence.get() > foreign.fence);
}
