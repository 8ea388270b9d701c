use std::process::Command;
use std::time::Duration;

use leasehold::{Acquire, AcquireRequest, Backend, Event, Grant, Holder, Key, LockId, Metadata, Subscription, Ttl};
use leasehold_conformance::remote::Peer;
use serde_json::json;
use tokio::time::timeout;

/// Set to the name of a store, it makes this program serve that store instead of testing anything.
pub(super) const SERVE: &str = "LEASEHOLD_CONFORMANCE_SERVE";
/// Far more than anything here takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn serving(store: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(SERVE, store);
    command
}

pub(super) async fn peer(store: &str) -> Peer {
    Peer::spawn(serving(store)).await.unwrap()
}

pub(super) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(super) fn request(name: &str) -> AcquireRequest {
    AcquireRequest {
        holder: Holder::new("here").unwrap(),
        metadata: Metadata::new(json!({"fraction": 0.1, "list": [1, null]})).unwrap(),
        ..AcquireRequest::new(key(name), LockId::random().unwrap(), Ttl::MAX)
    }
}

pub(super) async fn granted(store: &Peer, request: &AcquireRequest) -> Grant {
    match store.acquire(request).await.unwrap() {
        Acquire::Granted(grant) => grant,
        Acquire::Held(contention) => panic!("the lock is {contention}"),
    }
}

pub(super) async fn next(subscription: &mut Subscription) -> Option<Event> {
    timeout(PATIENCE, subscription.next()).await.expect("an event or the end comes")
}
