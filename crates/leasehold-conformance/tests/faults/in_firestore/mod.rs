//! What can go wrong in Firestore alone.

pub(crate) mod orphans;
pub(crate) mod outcomes;

use test_servers::{Firestore, FirestoreFault};

/// Has writes, of one lock and of many, fail at random from now on: some were in the way of others,
/// and of some nobody knows whether they were carried out.
fn trouble(server: &Firestore) {
    let seed = fastrand::u64(..1_000_000);
    println!("the seed of what goes wrong is {seed}");
    let faults = [
        FirestoreFault::status("ABORTED").at_random(0.2, seed),
        FirestoreFault::status("UNAVAILABLE").at_random(0.1, seed + 1),
        FirestoreFault::status("UNAVAILABLE").after().at_random(0.1, seed + 2),
        FirestoreFault::status("DEADLINE_EXCEEDED").after().at_random(0.1, seed + 3),
    ];
    for fault in faults {
        server.inject(fault.clone().on("Commit"));
        server.inject(fault.on("BatchWrite"));
    }
}

/// In either way to keep transactions apart.
fn both() -> [Firestore; 2] {
    [Firestore::start(), Firestore::builder().optimistic().start()]
}
