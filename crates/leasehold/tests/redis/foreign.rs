//! Records that the other library wrote keep what only it understands.

use leasehold::LockId;
use leasehold::backend::{Backend, Extend};
use serde_json::json;
use test_servers::Redis as Server;
use test_support::redis::{get, index_of, json, now, pttl};
use test_support::ttl;

use crate::support::connect;

#[tokio::test]
async fn fields_we_do_not_know_survive_our_extend_to_the_letter() {
    let server = Server::start();
    let store = connect(&server).await;
    let id = LockId::random().unwrap();
    let expiry = now(&server) + 30_000;
    let fields = |rest: &str| {
        format!(
            r#"{{"fence":"000000000000001",{rest},"expiresAtMs": {expiry} ,"key":"order:42","acquiredAtMs":5,"lockId":"{}"}}"#,
            id.expose()
        )
    };
    for rest in [
        r#""metadata":{"lines":[],"none":{},"deep":[[],[[]],{"a":[]}]}"#,
        r#""metadata":{"big":9007199254740993,"bigger":123456789012345678901234567890,"small":0.1000000000000000055}"#,
        r#""metadata":{"text":"\u00e9\/ \"expiresAtMs\":5 é 日本"},"appVersion":"1.10","nothing":null"#,
        r#""holder":"db-1/report","owner":{"pid":7,"tags":["a","b"]},"flag":true"#,
    ] {
        let raw = fields(rest);
        server.cli(&["SET", "syncguard:order:42", &raw]);
        server.cli(&["SET", &index_of(&id), "syncguard:order:42"]);
        let Extend::Extended { expires_at } = store.extend(&id, ttl(60_000)).await.unwrap() else {
            panic!("not extended: {raw}");
        };
        let unspaced = |text: &str| text.replace(": ", ":").replace(" ,", ",");
        let expected = raw.replace(&expiry.to_string(), &expires_at.as_millis().to_string());
        assert_eq!(unspaced(&get(&server, "syncguard:order:42")), unspaced(&expected));
        for name in ["syncguard:order:42", &index_of(&id)] {
            assert!((30_000..=61_000).contains(&pttl(&server, name)), "{name}");
        }
    }
}

#[tokio::test]
async fn notes_about_an_expiry_are_not_taken_for_the_expiry() {
    let server = Server::start();
    let store = connect(&server).await;
    let id = LockId::random().unwrap();
    let record = |expiry: u64| {
        json!({
            "aNote": { "expiresAtMs": 5 }, "acquiredAtMs": 5, "expiresAtMs": expiry, "fence": "000000000000001",
            "key": "order:42", "lockId": id.expose(), "metadata": { "expiresAtMs": 7, "lines": ["a"] },
        })
    };
    server.cli(&["SET", "syncguard:order:42", &record(now(&server) + 30_000).to_string()]);
    server.cli(&["SET", &index_of(&id), "syncguard:order:42"]);
    let Extend::Extended { expires_at } = store.extend(&id, ttl(60_000)).await.unwrap() else { panic!("not extended") };
    assert_eq!(json(&server, "syncguard:order:42"), record(expires_at.as_millis()));
}
