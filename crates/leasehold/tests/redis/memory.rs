//! What a lock costs the server.

use leasehold::{Holder, LockId};
use test_servers::Redis as Server;

use test_support::redis::{HELD, Other, exists};
use test_support::{granted, request};

use crate::support::connect;

const LOCKS: u64 = 1000;

/// A key of 20 bytes.
fn name(number: u64) -> String {
    format!("order:{number:014}")
}

/// The bytes that each of many locks takes: record, index, fence counter and its name in the set of
/// held locks.
async fn each(server: &Server, mut acquire: impl AsyncFnMut(u64)) -> u64 {
    acquire(LOCKS).await;
    let shared = u64::from(exists(server, HELD));
    let before = server.used_memory();
    for number in 0..LOCKS {
        acquire(number).await;
    }
    let each = (server.used_memory() - before) / LOCKS;
    assert_eq!(server.cli(&["DBSIZE"]), ((LOCKS + 1) * 3 + shared).to_string());
    each
}

/// What the server says that the lock, its index and its fence counter take.
#[tokio::test]
async fn the_three_entries_of_a_live_lock_take_less_than_600_bytes() {
    let server = Server::start();
    let store = connect(&server).await;
    let holder = Holder::new("web-production-12/payment-worker-3").unwrap();
    granted(&store, &request(&name(1)).with_holder(holder)).await;
    let names = server.cli(&["KEYS", "*"]);
    let of_lock: Vec<_> = names.lines().filter(|name| *name != HELD).collect();
    assert_eq!(of_lock.len(), 3);
    let bytes: u64 =
        of_lock.into_iter().map(|name| server.cli(&["MEMORY", "USAGE", name]).parse::<u64>().unwrap()).sum();
    println!("{bytes} bytes for the entries of a lock with a key of 20 bytes");
    assert!(bytes < 600, "{bytes} bytes");
}

#[tokio::test]
async fn a_live_lock_takes_little_more_of_the_server_than_one_of_the_other_library() {
    let (server, for_others) = (Server::start(), Server::start());
    let store = connect(&server).await;
    let holder = Holder::new("db-1/nightly-report").unwrap();
    let ours = each(&server, async |number| {
        granted(&store, &request(&name(number)).with_holder(holder.clone())).await;
    });
    let ours = ours.await;
    let theirs = each(&for_others, async |number| {
        Other(&for_others).acquire(&name(number), &LockId::random().unwrap(), 60_000).unwrap();
    });
    let theirs = theirs.await;
    println!("{ours} bytes for each of our locks with a key of 20 bytes, {theirs} for one of the other library");
    // The record has the holder's name, and the set of held locks has that of the lock. What else we write the layout
    // asks for.
    assert!(ours < 750, "{ours} bytes");
    assert!(ours < theirs + 150, "{ours} bytes, and {theirs} of the other library");
}
