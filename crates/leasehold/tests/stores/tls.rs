//! TLS is trusted or refused, and never silently left out.

use leasehold::ErrorCode;
use leasehold::backend::{Backend, Event, Topic};
use test_support::{Case, Setup, cases, connect, everything_said, granted, key, request, soon};

use crate::Store;
use crate::connections::refused;

pub(crate) const CASES: &[Case] = cases![
    a_server_is_trusted_if_its_authority_is_named,
    a_server_whose_authority_nobody_knows_is_refused,
    a_server_without_tls_on_a_url_that_demands_it_is_an_error,
    files_that_cannot_be_used_are_refused_before_anything_is_sent,
];

const SECRET: Option<&str> = Some("hunter2secret");
const TLS: Setup = Setup { password: None, tls: true, durable: false };

async fn a_server_is_trusted_if_its_authority_is_named(store: Store) {
    let server = store.server_with(&Setup { password: SECRET, ..TLS });
    for url in server.tls_urls(&server.authority(), SECRET) {
        let store = connect(&url).await;
        let held = request("order:42");
        granted(&*store, &held).await;
        assert!(connect(&server.url()).await.is_locked(&key("order:42")).await.unwrap());
        // The connection for wake-ups and that of the heartbeats are as safe.
        let mut freed = store.subscribe(Topic::Freed(&held.key)).await.unwrap();
        store.release(&held.lock_id).await.unwrap();
        assert_eq!(soon("the notification", freed.next()).await, Some(Event::Freed));
        connect(&url.replace("127.0.0.1", "localhost")).await;
    }
}

async fn a_server_whose_authority_nobody_knows_is_refused(store: Store) {
    let (server, stranger) = (store.server_with(&TLS), store.server_with(&TLS));
    for url in server.tls_urls(&stranger.authority(), SECRET) {
        let error = refused(&url).await;
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
        assert!(!error.is_retryable());
    }
}

async fn a_server_without_tls_on_a_url_that_demands_it_is_an_error(store: Store) {
    let (server, trusted) = (store.server(), store.server_with(&TLS));
    server.requests();
    for url in server.tls_urls(&trusted.authority(), SECRET) {
        let error = refused(&format!("{url}&timeout=1s")).await;
        // A server may wait for the end of a line in what it does not understand.
        assert!(matches!(error.code(), ErrorCode::AuthFailed | ErrorCode::NetworkTimeout), "{error:?}");
    }
    assert_eq!(server.requests(), 0, "nothing was sent in the clear");
}

async fn files_that_cannot_be_used_are_refused_before_anything_is_sent(store: Store) {
    let server = store.server_with(&TLS);
    let garbage = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(garbage.path(), "s3cret, and no certificate").unwrap();
    server.requests();
    for url in server.unusable_tls_urls(garbage.path()) {
        let error = refused(&url).await;
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{url}: {error:?}");
        assert!(!everything_said(&error).contains("s3cret"), "{error:?}");
    }
    assert_eq!(server.requests(), 0);
}
