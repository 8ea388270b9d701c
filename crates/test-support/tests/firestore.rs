//! Suites that need no more than a URL can run on an emulator that runs already.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::json;
use test_servers::Firestore;
use test_support::firestore::EMULATOR;
use test_support::{connect, granted, request, suite};

/// Makes the test the process that uses the emulator.
const CHILD: &str = "LEASEHOLD_TEST_CHILD";

/// The same lock in two stores.
fn lock_twice() {
    suite::block_on(async {
        let store = suite::only("firestore").next().unwrap();
        for running in [store.start(), store.start()] {
            granted(&*connect(&running.url()).await, &request("order:42")).await;
        }
    });
}

#[test]
fn every_start_is_a_project_of_its_own_in_an_emulator_that_runs_already() {
    if std::env::var(CHILD).is_ok() {
        return lock_twice();
    }
    let emulator = Firestore::start();
    // A process of its own, because a process that has threads must not change its environment.
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.env(CHILD, "1").env(EMULATOR, emulator.address().to_string());
    assert!(child.status().unwrap().success());
    let documents = emulator.control(json!({ "command": "documents", "prefix": "projects/" }));
    let names = documents.as_object().unwrap().keys().filter(|name| name.ends_with("/locks/order:42"));
    let projects: BTreeSet<&str> = names.map(|name| name.split('/').nth(1).unwrap()).collect();
    assert_eq!(projects.len(), 2, "{documents}");
    assert!(!projects.contains(emulator.project()));
}
