//! What is not a lock, under the name of one, is an error and is left alone.

use leasehold::backend::{Backend, LookupBy, Release};
use leasehold::{Error, ErrorCode, ListRequest};
use test_servers::Redis as Server;
use test_support::redis::{index_of, snapshot};
use test_support::{everything_said, granted, key, request, stealing, ttl};

use crate::support::connect;

const LOCK: &str = "syncguard:order:42";

async fn every_use_of_the_key(store: &dyn Backend) -> [Option<Error>; 5] {
    let key = key("order:42");
    [
        store.acquire(&request("order:42")).await.err(),
        store.acquire(&stealing("order:42", 0)).await.err(),
        store.is_locked(&key).await.err(),
        store.lookup(LookupBy::Key(&key)).await.err(),
        store.force_release(&key, None).await.err(),
    ]
}

#[tokio::test]
async fn text_that_is_no_record_is_an_error_that_changes_nothing() {
    let server = Server::start();
    let store = connect(&server).await;
    for text in [
        "secret",
        "",
        "12",
        "[]",
        "{}",
        "null",
        "\"secret\"",
        r#"{"lockId":"secret"}"#,
        r#"{"lockId":7,"expiresAtMs":99999999999999,"acquiredAtMs":1,"key":"order:42","fence":"000000000000001"}"#,
        r#"{"lockId":"abcdefghijklmnopqrstuv","expiresAtMs":"soon","acquiredAtMs":1,"key":"order:42","fence":"000000000000001"}"#,
        r#"{"lockId":"abcdefghijklmnopqrstuv","expiresAtMs":99999999999999"#,
        r#"{"lockId":"abcdefghijklmnopqrstuv","expiresAtMs":NaN,"acquiredAtMs":1,"key":"order:42","fence":"000000000000001"}"#,
        r#"{"lockId":"abcdefghijklmnopqrstuv","expiresAtMs":-Infinity,"acquiredAtMs":1,"key":"order:42","fence":"000000000000001"}"#,
        r#"{"lockId":"abcdefghijklmnopqrstuv","expiresAtMs":5,"acquiredAtMs":1,"key":"order:42","fence":"000000000000001","expiresAtMs":99999999999999}"#,
        r#"{"lockId":"abcdefghijklmnopqrstuv","expiresAtMs":5,"acquiredAtMs":1,"key":"order:42","fence":"000000000000001","expires\u0041tMs":99999999999999}"#,
        r#"{"key":"order:42","expiresAtMs":99999999999999,"acquiredAtMs":1,"fence":"000000000000001","expiresAtMs" : 5,"lockId":"abcdefghijklmnopqrstuv"}"#,
        r#"{"lockId":"abcdefghijklmnopqrstuv","expiresAtMs":5,"acquiredAtMs":1,"key":"order:42","fence":"000000000000001","lockId":"bbcdefghijklmnopqrstuv"}"#,
    ] {
        server.cli(&["SET", LOCK, text]);
        let before = snapshot(&server);
        for (use_of_it, error) in every_use_of_the_key(&store).await.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("use {use_of_it} of {text} works"));
            assert_eq!(error.code(), ErrorCode::Internal, "{text}");
            assert!(error.to_string().contains("is not a lock"), "{error}");
            assert!(error.hint().is_some() && !error.outcome_unknown());
            assert!(!everything_said(&error).contains("secret"), "{error:?}");
        }
        assert_eq!(snapshot(&server), before, "{text}");
    }
}

#[tokio::test]
async fn notes_inside_a_record_may_have_any_names_and_braces() {
    let server = Server::start();
    let store = connect(&server).await;
    for notes in [
        r#""metadata":{"expiresAtMs":99999999999999,"lockId":"x","list":[{"lockId":1},{"expiresAtMs":2}]}"#,
        r#""holder":"\"expiresAtMs\":7,{[\"lockId\":8","more":"lockId","and":"expiresAtMs""#,
        r#""metadata":{"text":"}]}\\","expiresAtMs":[]},"holder":"\u0061\u0022\\u0022""#,
    ] {
        // Over, so that the next may have it.
        for record in [
            format!(
                r#"{{"lockId":"abcdefghijklmnopqrstuv","expiresAtMs":5,"acquiredAtMs":1,"key":"order:42","fence":"000000000000001",{notes}}}"#
            ),
            format!(
                r#"{{{notes},"fence":"000000000000001","expiresAtMs":5,"acquiredAtMs":1,"key":"order:42","lockId":"abcdefghijklmnopqrstuv"}}"#
            ),
        ] {
            serde_json::from_str::<serde_json::Value>(&record).unwrap();
            server.cli(&["SET", LOCK, &record]);
            let wanted = request("order:42");
            granted(&store, &wanted).await;
            store.release(&wanted.lock_id).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_value_of_another_type_is_an_error_that_changes_nothing() {
    let server = Server::start();
    let store = connect(&server).await;
    for make in [&["RPUSH", LOCK, "a"][..], &["SADD", LOCK, "a"], &["HSET", LOCK, "a", "b"]] {
        server.cli(&["DEL", LOCK]);
        assert_eq!(server.cli(make), "1");
        let before = snapshot(&server);
        for error in every_use_of_the_key(&store).await {
            let error = error.unwrap();
            assert_eq!((error.code(), error.outcome_unknown()), (ErrorCode::Internal, false), "{make:?}");
        }
        assert_eq!(snapshot(&server), before, "{make:?}");
    }
}

#[tokio::test]
async fn an_index_that_leads_to_no_lock_of_its_id_releases_and_extends_nothing() {
    let server = Server::start();
    let store = connect(&server).await;
    let (mine, somebody) = (request("mine"), request("theirs"));
    granted(&store, &somebody).await;
    server.cli(&["SET", "syncguard:order:42", "garbage"]);
    for leads_to in ["syncguard:theirs", "syncguard:nothing", "syncguard:order:42", ""] {
        server.cli(&["SET", &index_of(&mine.lock_id), leads_to]);
        let before = snapshot(&server);
        assert!(!matches!(store.release(&mine.lock_id).await, Ok(Release::Released)), "{leads_to}");
        assert!(!matches!(
            store.extend(&mine.lock_id, ttl(1000)).await,
            Ok(leasehold::backend::Extend::Extended { .. })
        ));
        assert!(!matches!(store.lookup(LookupBy::Id(&mine.lock_id)).await, Ok(Some(_))));
        assert_eq!(snapshot(&server), before, "{leads_to}");
    }
    server.cli(&["DEL", &index_of(&mine.lock_id)]);
    server.cli(&["RPUSH", &index_of(&mine.lock_id), "a"]);
    let before = snapshot(&server);
    assert_eq!(store.release(&mine.lock_id).await.unwrap_err().code(), ErrorCode::Internal);
    assert_eq!(store.extend(&mine.lock_id, ttl(1000)).await.unwrap_err().code(), ErrorCode::Internal);
    assert_eq!(store.acquire(&mine).await.unwrap_err().code(), ErrorCode::Internal);
    assert_eq!(snapshot(&server), before);
}

#[tokio::test]
async fn a_listing_passes_over_whatever_is_not_a_lock() {
    let server = Server::start();
    let store = connect(&server).await;
    let held = request("order:1");
    granted(&store, &held).await;
    for (name, text) in [("order:2", "garbage"), ("order:3", "{}"), ("order:4", "{\"lockId\":\"x\"}")] {
        server.cli(&["SET", &format!("syncguard:{name}"), text]);
    }
    server.cli(&["RPUSH", "syncguard:order:5", "a"]);
    // A copy of a record under the name of another lock.
    server.cli(&["COPY", "syncguard:order:1", "syncguard:order:6"]);
    let page = store.list(&ListRequest::new("order:")).await.unwrap();
    let keys: Vec<_> = page.records.iter().map(|record| record.key.as_str()).collect();
    assert_eq!((keys, page.next), (vec!["order:1"], None));
}

#[tokio::test]
async fn a_record_with_unusable_parts_is_not_ended_by_a_forced_release_that_fails() {
    let server = Server::start();
    let store = connect(&server).await;
    let record = r#"{"lockId":"abcdefghijklmnopqrstuv","expiresAtMs":99999999999999,"acquiredAtMs":1,"key":"order:42","fence":"7"}"#;
    server.cli(&["SET", LOCK, record]);
    let before = snapshot(&server);
    assert_eq!(store.force_release(&key("order:42"), None).await.unwrap_err().code(), ErrorCode::Internal);
    assert_eq!(snapshot(&server), before);
}
