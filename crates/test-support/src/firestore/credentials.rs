//! Key files of service accounts, good ones and others.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use test_servers::{Firestore, FirestoreRole};

use super::token_server;

/// The key file of an account that may write. A server that does not ask who we are gets one as
/// well, for URLs that demand TLS of it.
pub(super) fn key_file(server: &Firestore) -> PathBuf {
    if server.demands_credentials() {
        return server.service_account(FirestoreRole::Writer);
    }
    let other = Firestore::builder().credentials().start();
    let mut account = read(&other.service_account(FirestoreRole::Writer));
    account["token_uri"] = json!(format!("http://{}/token", token_server::address()));
    write(server.directory(), "anybody.json", &account)
}

/// Key files with which nobody gets in. One has the secret where its private key should be.
pub(super) fn useless(server: &Firestore, secret: &str) -> Vec<PathBuf> {
    let mut account = read(&server.service_account(FirestoreRole::Writer));
    account["private_key"] = json!(secret);
    let no_key = write(server.directory(), "no-key.json", &account);
    let garbage = server.directory().join("garbage.json");
    std::fs::write(&garbage, secret).unwrap();
    let [nobody, stranger] = [FirestoreRole::Nobody, FirestoreRole::Stranger].map(|role| server.service_account(role));
    vec![nobody, stranger, no_key, garbage, server.directory().join("missing.json")]
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn write(directory: &Path, name: &str, account: &Value) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, account.to_string()).unwrap();
    path
}
