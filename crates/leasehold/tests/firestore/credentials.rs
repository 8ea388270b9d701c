//! Who we are, and what becomes of tokens.

use std::time::Duration;

use leasehold::backend::Backend;
use leasehold::{ErrorCode, Locks};
use test_servers::{Firestore, FirestoreFault, FirestoreRole};
use test_support::{connect, eventually, everything_said, granted, locks, request};

fn guarded() -> Firestore {
    Firestore::builder().tls().credentials().start()
}

#[tokio::test]
async fn a_service_account_that_may_write_gets_locks_and_one_token_is_enough() {
    let server = guarded();
    let store = connect(&server.url()).await;
    for number in 0..10 {
        granted(&*store, &request(&format!("order:{number}"))).await;
    }
    assert_eq!(server.calls("Token"), 1);
}

#[tokio::test]
async fn an_account_that_may_only_read_is_told_which_role_is_missing() {
    let server = guarded();
    let store = connect(&server.url()).await;
    let held = request("order:42");
    granted(&*store, &held).await;
    let reader = connect(&server.url_for(FirestoreRole::Reader)).await;
    assert!(reader.is_locked(&held.key).await.unwrap());
    let error = reader.acquire(&request("order:43")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
    assert!(error.hint().unwrap().contains("roles/datastore.user"), "{error:?}");
    let error = Locks::connect(&server.url_for(FirestoreRole::Nobody)).await.unwrap_err();
    assert_eq!((error.code(), error.is_retryable()), (ErrorCode::AuthFailed, false), "{error:?}");
}

#[tokio::test]
async fn credentials_that_are_missing_or_broken_are_told_without_their_content() {
    let server = guarded();
    let address = server.address();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let account = std::fs::read_to_string(server.service_account(FirestoreRole::Writer)).unwrap();
    let mut stranger: serde_json::Value = serde_json::from_str(&account).unwrap();
    stranger["client_email"] = "stranger@example.com".into();
    let half = &account[..account.len() / 2];
    for path in [
        directory.path().join("none"),
        file("empty", ""),
        file("half", half),
        file("other", r#"{"type": "authorized_user", "client_secret": "hunter2secret"}"#),
        file("stranger", &stranger.to_string()),
    ] {
        let ca = server.ca_file();
        let (ca, path) = (ca.display(), path.display());
        let url = format!("firestore://{}?endpoint={address}&ca={ca}&credentials={path}", server.project());
        let error = Locks::connect(&url).await.unwrap_err();
        let said = everything_said(&error);
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{path}: {said}");
        assert!(error.hint().is_some(), "{said}");
        assert!(!said.contains("hunter2secret") && !said.contains("PRIVATE KEY"), "{said}");
    }
}

#[tokio::test]
async fn a_token_that_the_server_takes_no_longer_is_replaced_within_the_same_operation() {
    let server = guarded();
    let store = connect(&server.url()).await;
    let held = request("order:42");
    granted(&*store, &held).await;
    for _ in 0..3 {
        server.expire_tokens();
        store.extend(&held.lock_id, held.ttl).await.unwrap();
    }
    assert_eq!(server.calls("Token"), 4);
}

#[tokio::test]
async fn many_operations_at_once_share_the_token_that_replaces_one_that_is_no_longer_taken() {
    let server = guarded();
    let store = connect(&server.url()).await;
    let held: Vec<_> = (0..24).map(|number| request(&format!("order:{number}"))).collect();
    for request in &held {
        granted(&*store, request).await;
    }
    for _ in 0..3 {
        server.expire_tokens();
        let mut extends = tokio::task::JoinSet::new();
        for request in held.clone() {
            let store = store.clone();
            extends.spawn(async move { store.extend(&request.lock_id, request.ttl).await });
        }
        for answer in extends.join_all().await {
            answer.unwrap();
        }
    }
    assert_eq!(server.calls("Token"), 4);
}

#[tokio::test]
async fn a_guard_and_its_wake_ups_live_on_when_tokens_expire() {
    let server = guarded();
    let (holder, waiter) = (locks(&server.url()).await, locks(&server.url()).await);
    let guard = holder.lock("order:42").ttl(Duration::from_secs(3)).acquire().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.lock("order:42").wait_forever().acquire().await });
    eventually("it waits", async || server.listened_documents() == ["locks/order:42"]).await;
    server.expire_tokens();
    server.close_streams("UNAUTHENTICATED");
    let first = guard.expires_at();
    eventually("it is extended", async || guard.expires_at() > first).await;
    eventually("it waits again", async || server.listened_documents() == ["locks/order:42"]).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_token_endpoint_that_is_slow_or_broken_is_given_up_in_time() {
    let server = guarded();
    for fault in [FirestoreFault::silence(), FirestoreFault::status("UNAVAILABLE")] {
        server.inject(fault.on("Token"));
        let error = Locks::connect(&format!("{}&timeout=1s", server.url())).await.unwrap_err();
        assert!(!error.outcome_unknown() && error.hint().is_some(), "{error:?}");
        server.clear_faults();
    }
    locks(&server.url()).await.lock("order:42").acquire().await.unwrap().release().await.unwrap();
}
