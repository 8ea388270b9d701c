//! TLS is trusted or refused, and never silently left out.

use leasehold::{Backend, Error, ErrorCode, Redis};
use test_servers::Redis as Server;

use crate::support::{connect, everything_said, granted, key, request, soon};

async fn refused(url: &str) -> Error {
    let error = soon("a refusal", Redis::connect(url)).await.unwrap_err();
    assert!(error.hint().is_some(), "{error:?}");
    assert!(!everything_said(&error).contains("hunter2secret"));
    error
}

#[tokio::test]
async fn a_server_is_trusted_if_its_authority_is_named() {
    let server = Server::builder().tls().password("hunter2secret").start();
    let ca = server.ca_file();
    for scheme in ["rediss", "valkeys"] {
        let url = format!("{}?ca={}", server.tls_url(), ca.display()).replace("rediss", scheme);
        let store = Redis::connect(&url).await.unwrap();
        let held = request(scheme);
        granted(&store, &held).await;
        assert!(connect(&server).await.is_locked(&key(scheme)).await.unwrap());
        assert!(store.release(&held.lock_id).await.is_ok());
        // The connection for wake-ups and that of the heartbeats are as safe.
        let mut news = store.subscribe(leasehold::Topic::Freed(&held.key)).await.unwrap();
        granted(&store, &held).await;
        store.fork().await.unwrap().release(&held.lock_id).await.unwrap();
        assert_eq!(soon("the news", news.next()).await, Some(leasehold::Event::Freed));
    }
    let named = server.tls_url().replace("127.0.0.1", "localhost");
    Redis::connect(&format!("{named}?ca={}", ca.display())).await.unwrap();
}

#[tokio::test]
async fn a_server_whose_authority_nobody_knows_is_refused() {
    let (server, stranger) =
        (Server::builder().tls().password("hunter2secret").start(), Server::builder().tls().start());
    let error = refused(&server.tls_url()).await;
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
    let error = refused(&format!("{}?ca={}", server.tls_url(), stranger.ca_file().display())).await;
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let server = Server::builder().tls().args(["--bind", "127.0.0.1", "127.0.0.2"]).start();
    let url = format!("{}?ca={}", server.tls_url(), server.ca_file().display());
    Redis::connect(&url).await.unwrap();
    let error = refused(&url.replace("127.0.0.1", "127.0.0.2")).await;
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_a_server_that_wants_one() {
    let (server, stranger) = (Server::builder().mutual_tls().start(), Server::builder().tls().start());
    let with = |server: &Server, of: &Server| {
        let (ca, cert, key) = (server.ca_file(), of.client_cert(), of.client_key());
        format!("{}?ca={}&cert={}&key={}", server.tls_url(), ca.display(), cert.display(), key.display())
    };
    let store = Redis::connect(&with(&server, &server)).await.unwrap();
    granted(&store, &request("order:42")).await;
    let without = format!("{}?ca={}", server.tls_url(), server.ca_file().display());
    for url in [without, with(&server, &stranger)] {
        let error = refused(&url).await;
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
    }
}

#[tokio::test]
async fn a_server_without_tls_on_a_url_with_tls_is_an_error_and_hears_no_password() {
    let server = Server::start();
    server.cli(&["CONFIG", "RESETSTAT"]);
    let url = format!("rediss://:hunter2secret@127.0.0.1:{}?timeout=1", server.port());
    let error = refused(&url).await;
    // The server waits for the end of a line, unless there happens to be one in the noise.
    assert!(matches!(error.code(), ErrorCode::AuthFailed | ErrorCode::NetworkTimeout), "{error:?}");
    assert_eq!((server.calls("hello"), server.calls("auth"), server.calls("evalsha")), (0, 0, 0));
}

#[tokio::test]
async fn a_server_with_tls_on_a_url_without_is_an_error_that_says_so() {
    let server = Server::builder().tls().start();
    let url = format!("redis://:hunter2secret@127.0.0.1:{}?timeout=1", server.tls_address().port());
    let error = refused(&url).await;
    assert!(error.hint().unwrap().contains("rediss://"), "{error:?}");
}

#[tokio::test]
async fn a_certificate_file_that_is_none_is_refused_before_anything_is_sent() {
    let server = Server::builder().tls().start();
    let directory = tempfile::tempdir().unwrap();
    let garbage = directory.path().join("garbage.pem");
    std::fs::write(&garbage, "hunter2secret").unwrap();
    let (garbage, ca) = (garbage.display(), server.ca_file());
    for query in [
        format!("ca={garbage}"),
        format!("ca={}&cert={garbage}&key={garbage}", ca.display()),
        format!("ca={}&cert={}&key={}", ca.display(), server.client_cert().display(), server.client_cert().display()),
        format!("ca={}&cert={}", ca.display(), server.client_cert().display()),
    ] {
        let error = refused(&format!("{}?{query}", server.tls_url())).await;
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{query}: {error:?}");
    }
    assert_eq!(server.calls("hello"), 0);
}
