use std::process::Command;

use leasehold::backend::{AcquireRequest, Event, Subscription};
use leasehold::{Holder, Metadata, Ttl};
use leasehold_conformance::remote::Peer;
use serde_json::json;
use test_support::soon;

/// Set to the name of a store, it makes this program serve that store instead of testing anything.
pub(super) const SERVE: &str = "LEASEHOLD_CONFORMANCE_SERVE";

pub(super) fn serving(store: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(SERVE, store);
    command
}

pub(super) async fn peer(store: &str) -> Peer {
    Peer::spawn(serving(store)).await.unwrap()
}

pub(super) fn request(name: &str) -> AcquireRequest {
    test_support::request(name)
        .with_holder(Holder::new("here").unwrap())
        .with_metadata(Metadata::new(json!({"fraction": 0.1, "list": [1, null]})).unwrap())
        .with_ttl(Ttl::MAX)
}

pub(super) async fn next(subscription: &mut Subscription) -> Option<Event> {
    soon("an event or the end", subscription.next()).await
}
