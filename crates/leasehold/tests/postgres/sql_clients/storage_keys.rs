//! The names of rows are those that every program derives.

use crate::support::server;
use leasehold::Key;
use leasehold::backend::StorageKeys;
use serde_json::Value;
use test_support::postgres::session;

fn vectors(section: &str) -> Vec<Value> {
    let vectors: Value = serde_json::from_str(include_str!("../../data/storage-keys.json")).unwrap();
    vectors[section].as_array().unwrap().clone()
}

/// The server has no prefix. What is reserved of the limit is the same as a lower one.
#[tokio::test]
async fn every_vector_without_a_prefix_is_reproduced() {
    let server = server().await;
    let client = session(&server).await;
    let derive = "SELECT name, syncguard_locks_storage_key_v2('fence:' || name, $2)
        FROM syncguard_locks_storage_key_v2(syncguard_locks_check_key_v2($1), $2) AS name";
    let (mut compared, mut hashed) = (0, 0);
    for vector in vectors("storage").iter().filter(|vector| vector["prefix"] == "") {
        let size = |field: &str| i32::try_from(vector[field].as_i64().unwrap()).unwrap();
        let key = vector["key"].as_str().unwrap();
        let row = client.query_one(derive, &[&key, &(size("limit") - size("reserve"))]).await.unwrap();
        let (name, fence): (String, String) = (row.get(0), row.get(1));
        assert_eq!(
            (Some(name.as_str()), Some(fence.as_str())),
            (vector["storageKey"].as_str(), vector["fenceKey"].as_str()),
            "{vector}"
        );
        compared += 1;
        hashed += u32::from(name.len() == 22 && key.len() > 22);
    }
    assert!(compared >= 85 && hashed >= 4, "{compared} compared, {hashed} of them hashed");
}

#[tokio::test]
async fn every_vector_of_keys_and_lock_ids_is_judged_alike() {
    let server = server().await;
    let client = session(&server).await;
    for vector in vectors("keys").iter().filter(|vector| !vector["key"].as_str().unwrap().contains('\0')) {
        let key = vector["key"].as_str().unwrap();
        let outcome = client.query_one("SELECT octet_length(syncguard_locks_check_key_v2($1))", &[&key]).await;
        assert_eq!(outcome.is_ok(), vector["valid"].as_bool().unwrap(), "{vector}");
        if let Ok(row) = outcome {
            assert_eq!(Some(i64::from(row.get::<_, i32>(0))), vector["normalizedBytes"].as_i64(), "{vector}");
        }
    }
    for vector in vectors("lockIds") {
        let outcome = client.query("SELECT syncguard_locks_check_lock_id_v2($1)", &[&vector["lockId"].as_str()]).await;
        assert_eq!(outcome.is_ok(), vector["valid"].as_bool().unwrap(), "{vector}");
    }
}

/// Longer than any key, so that only a call of the function itself gets there: the limit is the
/// library's all the same.
#[tokio::test]
async fn long_names_are_hashed_as_the_library_hashes_them() {
    let server = server().await;
    let client = session(&server).await;
    let names = StorageKeys::new("", 1700, 0).unwrap();
    for length in [1, 511, 1694, 1695, 1699, 1700, 1701, 5000] {
        for letter in ["k", "\u{e9}"] {
            let plain = letter.repeat(length);
            let derive = "SELECT syncguard_locks_storage_key_v2($1, 1700)";
            let name: String = client.query_one(derive, &[&plain]).await.unwrap().get(0);
            assert_eq!(name, names.name(&plain).unwrap(), "{length} of {letter}");
        }
    }
    assert!(server.sql("SELECT prosrc FROM pg_proc WHERE proname = 'leasehold_acquire'").contains(", 1700)"));
    assert!(Key::MAX_BYTES + "fence:".len() < 1700);
}

#[tokio::test]
async fn unusual_texts_are_normalised_alike() {
    let server = server().await;
    let client = session(&server).await;
    // Composed of two or three, Hangul, marks in the wrong order, compatibility forms that stay,
    // beyond 16 bits.
    for text in [
        "e\u{301}",
        "\u{1e9}\u{301}",
        "\u{1112}\u{1161}\u{11ab}",
        "q\u{307}\u{323}",
        "q\u{323}\u{307}",
        "\u{fb01}\u{2460}",
        "\u{212b}\u{2126}",
        "\u{1d15e}",
        "\u{958}",
        "\u{301}alone",
        "=\u{338}",
        "\u{1f600}",
        "\u{1100}\u{1161}\u{1161}",
        "a\u{327}\u{301}\u{323}",
        "\u{7f}\t\u{80}",
    ] {
        let normal: String =
            client.query_one("SELECT syncguard_locks_check_key_v2($1)", &[&text]).await.unwrap().get(0);
        assert_eq!(normal, Key::new(text).unwrap().as_str(), "{text:?}");
    }
}
