//! Whose certificates are asked for, shown and trusted.

use leasehold::redis::Redis;
use leasehold::{Error, ErrorCode};
use test_servers::Redis as Server;
use test_support::{everything_said, granted, request, soon};

async fn refused(url: &str) -> Error {
    let error = soon("a refusal", Redis::connect(url)).await.unwrap_err();
    assert!(error.hint().is_some(), "{error:?}");
    assert!(!everything_said(&error).contains("hunter2secret"));
    error
}

#[tokio::test]
async fn authorities_of_the_system_are_asked_if_none_is_named() {
    let server = Server::builder().tls().password("hunter2secret").start();
    let error = refused(&server.tls_url()).await;
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
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
async fn a_server_with_tls_on_a_url_without_is_an_error_that_says_so() {
    let server = Server::builder().tls().start();
    let url = format!("redis://:hunter2secret@127.0.0.1:{}?timeout=1s", server.tls_address().port());
    let error = refused(&url).await;
    assert!(error.hint().unwrap().contains("rediss://"), "{error:?}");
}
