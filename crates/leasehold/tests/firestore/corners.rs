//! Odd input, and what else could go wrong.

use std::time::Duration;

use leasehold::backend::Backend;
use leasehold::{ErrorCode, ListRequest, Locks};
use test_servers::{Firestore, FirestoreRole};
use test_support::{connect, granted, key, locks, request};

#[tokio::test]
async fn listings_go_page_by_page_through_odd_keys_and_know_their_own_cursors() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let names = [
        "a",
        "a\nb",
        "a/b",
        "a\u{10ffff}",
        "a\u{d7ff}",
        "b",
        "é",
        "a%",
        "A",
        "a:1",
        "a:10",
        "a:2",
        "a\nb\n",
        "a\nb\nZ",
        "1:a",
    ];
    for name in names {
        granted(&*store, &request(name)).await;
    }
    for prefix in ["", "a", "a:", "a\u{10ffff}", "é", "nobody"] {
        for size in [1, 2, 5, 100] {
            let (mut found, mut request) = (Vec::new(), ListRequest::new(prefix).with_page_size(size));
            loop {
                let page = store.list(&request).await.unwrap();
                assert!(page.records.len() <= size);
                found.extend(page.records.into_iter().map(|record| record.key.as_str().to_owned()));
                match page.next {
                    Some(next) => request = request.with_cursor(next),
                    None => break,
                }
            }
            let mut expected: Vec<_> =
                names.iter().filter(|name| name.starts_with(prefix)).map(|&n| n.to_owned()).collect();
            expected.sort();
            assert_eq!(found, expected, "{prefix:?} by {size}");
        }
    }
    for nonsense in ["nonsense", "", ":", "9:a", "x:a", "1:é"] {
        let error = store.list(&ListRequest::new("").with_cursor(nonsense)).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{nonsense}: {error:?}");
    }
}

#[tokio::test]
async fn a_listing_beside_documents_of_strangers_comes_to_an_end() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    for number in 0..3 {
        granted(&*store, &request(&format!("order:{number}"))).await;
        for (name, value) in [("array", "arrayValue"), ("map", "mapValue")] {
            server.set_document(&format!("locks/{name}{number}"), &serde_json::json!({"key": {value: {}}}));
        }
        server.set_document(&format!("locks/bytes{number}"), &serde_json::json!({"key": {"bytesValue": "AAAA"}}));
    }
    let (mut found, mut pages, mut request) = (0, 0, ListRequest::new("").with_page_size(2));
    loop {
        let page = store.list(&request).await.unwrap();
        (found, pages) = (found + page.records.len(), pages + 1);
        match page.next.filter(|_| pages < 20) {
            Some(next) => request = request.with_cursor(next),
            None => break,
        }
    }
    assert_eq!((found, pages), (3, 2));
}

/// Whether another process, with these variables, gets a lock in the store at `url`.
fn gets_a_lock(url: &str, variables: &[(&str, &str)]) -> bool {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "corners::gets_a_lock_in_the_store_that_the_environment_names", "--nocapture"]);
    command.env_remove("FIRESTORE_EMULATOR_HOST").env("TEST_STORE", url).envs(variables.iter().copied());
    command.output().unwrap().status.success()
}

#[tokio::test]
async fn an_emulator_is_found_by_its_variable_unless_the_url_says_otherwise() {
    let server = Firestore::start();
    let emulator = [("FIRESTORE_EMULATOR_HOST", &*server.address().to_string())];
    assert!(gets_a_lock(&format!("firestore://{}", server.project()), &emulator));
    assert_ne!(server.calls("Commit"), 0);
    assert!(!gets_a_lock(&format!("firestore://{}?emulator=127.0.0.1:1&timeout=1s", server.project()), &emulator));
}

#[tokio::test]
async fn credentials_are_found_by_their_variable() {
    let server = Firestore::builder().tls().credentials().start();
    let (address, ca) = (server.address(), server.ca_file());
    let url = format!("firestore://{}?endpoint={address}&ca={}", server.project(), ca.display());
    let writer = server.service_account(FirestoreRole::Writer);
    assert!(gets_a_lock(&url, &[("GOOGLE_APPLICATION_CREDENTIALS", writer.to_str().unwrap())]));
    let nobody = server.service_account(FirestoreRole::Nobody);
    assert!(!gets_a_lock(&url, &[("GOOGLE_APPLICATION_CREDENTIALS", nobody.to_str().unwrap())]));
}

/// Only does something in a process that the tests above start.
#[tokio::test]
async fn gets_a_lock_in_the_store_that_the_environment_names() {
    let Ok(url) = std::env::var("TEST_STORE") else { return };
    let handle = locks(&url).await;
    handle.lock("order:42").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_handle_works_on_after_all_its_connections_were_closed() {
    let server = Firestore::start();
    let handle = locks(&server.url()).await;
    let guard = handle.lock("order:42").ttl(Duration::from_secs(9)).acquire().await.unwrap();
    for _ in 0..5 {
        server.close_connections(1.0);
        guard.extend(Duration::from_secs(9)).await.unwrap();
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn nothing_is_said_of_keys_in_errors_and_debug_output() {
    let server = Firestore::start();
    let handle = locks(&server.url()).await;
    let guard = handle.lock("hunter2secret").acquire().await.unwrap();
    let shown = format!("{handle:?} {:?} {guard:?}", handle.backend());
    assert!(shown.contains("Firestore") && !shown.contains("hunter2secret"), "{shown}");
    guard.release().await.unwrap();
    assert!(!handle.is_locked(&key("hunter2secret")).await.unwrap());
    assert!(Locks::connect("firestore://").await.is_err());
}
