//! The stand-in for Firestore does what the documentation of its handle says.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use test_servers::{Firestore, FirestoreFault, FirestoreRole};

fn fields() -> Value {
    json!({"count": {"integerValue": "1"}})
}

#[test]
fn answers_and_has_a_url() {
    let firestore = Firestore::start();
    assert_eq!(firestore.url(), format!("firestore://{}?emulator=127.0.0.1:{}", firestore.project(), firestore.port()));
    assert_ne!(firestore.project(), Firestore::start().project());
    TcpStream::connect(firestore.address()).unwrap();
    assert!(firestore.documents().is_empty());
}

#[test]
fn documents_are_set_shown_and_deleted() {
    let firestore = Firestore::start();
    firestore.set_document("locks/one", &fields());
    firestore.set_document("locks/two", &fields());
    assert_eq!(firestore.documents().into_keys().collect::<Vec<_>>(), ["locks/one", "locks/two"]);
    assert_eq!(firestore.document("locks/one").unwrap().fields, fields());
    firestore.delete_document("locks/one");
    assert_eq!(firestore.document("locks/one"), None);
    assert_eq!(firestore.counts().writes, 0);
}

#[test]
fn a_durable_server_has_its_documents_after_it_was_killed() {
    let firestore = Firestore::builder().durable().start();
    firestore.set_document("locks/one", &fields());
    let before = firestore.documents();
    firestore.kill();
    firestore.restart();
    assert_eq!(firestore.documents(), before);
}

#[test]
fn another_server_has_lost_them() {
    let firestore = Firestore::start();
    firestore.set_document("locks/one", &fields());
    firestore.kill();
    firestore.restart();
    assert!(firestore.documents().is_empty());
}

#[test]
fn the_clock_can_be_moved() {
    let firestore = Firestore::start();
    firestore.set_clock_offset(3_600_000);
    let ahead = firestore.now().duration_since(SystemTime::now()).unwrap();
    assert!(ahead > Duration::from_secs(3590) && ahead < Duration::from_secs(3610), "{ahead:?}");
}

#[test]
fn nothing_listens_or_is_open_at_first() {
    let firestore = Firestore::start();
    assert_eq!((firestore.connections(), firestore.streams(), firestore.transactions()), (0, 0, 0));
    assert!(firestore.listened_documents().is_empty() && firestore.listened_collections().is_empty());
    assert_eq!(firestore.close_streams("UNAVAILABLE"), 0);
    assert_eq!(firestore.close_connections(1.0), 0);
    assert_eq!(firestore.take_counts(), firestore.counts());
}

/// Asks for a token as a client library does.
fn token(firestore: &Firestore, role: FirestoreRole) -> String {
    let account: Value = serde_json::from_slice(&std::fs::read(firestore.service_account(role)).unwrap()).unwrap();
    let claims = match account["client_email"].as_str().unwrap().split('@').next().unwrap() {
        "writer" => "eyJpc3MiOiJ3cml0ZXJAcCJ9",
        _ => "eyJpc3MiOiJzdHJhbmdlckBwIn0",
    };
    let address = account["token_uri"].as_str().unwrap().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address.strip_suffix("/token").unwrap()).unwrap();
    let body = format!("grant_type=x&assertion=x.{claims}.x");
    write!(stream, "POST /token HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn service_accounts_get_tokens_and_strangers_do_not() {
    let firestore = Firestore::builder().tls().credentials().start();
    let url = firestore.url();
    let directory = firestore.directory().display();
    assert!(url.starts_with(&format!("firestore://{}?endpoint=127.0.0.1:", firestore.project())), "{url}");
    assert!(url.contains("/ca.crt&") && url.ends_with(&format!("&credentials={directory}/writer.json")), "{url}");
    assert!(token(&firestore, FirestoreRole::Writer).starts_with("HTTP/1.1 200 OK"));
    assert!(token(&firestore, FirestoreRole::Stranger).contains("invalid_grant"));
    assert_eq!(firestore.calls("Token"), 2);

    firestore.inject(FirestoreFault::status("UNAVAILABLE").on("Token").times(1));
    assert!(token(&firestore, FirestoreRole::Writer).starts_with("HTTP/1.1 503"));
    assert!(token(&firestore, FirestoreRole::Writer).starts_with("HTTP/1.1 200"));
    assert_eq!(firestore.fault_hits(), 1);
    firestore.clear_faults();
}
