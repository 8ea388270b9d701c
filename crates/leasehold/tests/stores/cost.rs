//! Every operation is one request and one round trip.

use test_servers::Proxy;
use test_support::{Case, cases, connect, every_operation};

use crate::Store;

pub(crate) const CASES: &[Case] =
    cases![every_operation_is_one_request, every_operation_is_one_round_trip_on_the_same_connection];

async fn every_operation_is_one_request(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    // A server that keeps scripts learns them.
    every_operation(&*store, |_| ()).await;
    server.requests();
    every_operation(&*store, |operation| assert_eq!(server.requests(), 1, "{operation}")).await;
}

async fn every_operation_is_one_round_trip_on_the_same_connection(store: Store) {
    let server = store.server();
    let proxy = Proxy::start(server.server().address());
    let store = connect(&server.url_at(proxy.address(), None)).await;
    every_operation(&*store, |_| ()).await;
    let mut before = proxy.counts();
    every_operation(&*store, |operation| {
        let now = proxy.counts();
        assert_eq!(now.chunks_from_client - before.chunks_from_client, 1, "{operation}");
        assert_eq!(now.connections, before.connections, "{operation}");
        before = now;
    })
    .await;
}
