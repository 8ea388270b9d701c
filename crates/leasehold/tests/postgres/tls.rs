//! TLS is as safe as was asked for, and never silently left out.

use leasehold::backend::{Backend, Event, Topic};
use leasehold::postgres::Postgres;
use leasehold::{Error, ErrorCode};
use test_servers::Postgres as Server;
use test_support::{everything_said, granted, request, soon};

async fn refused(url: &str) -> Error {
    let error = soon("a refusal", Postgres::connect(url)).await.unwrap_err();
    assert!(error.hint().is_some_and(|hint| hint.contains("sslmode")), "{error:?}");
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
    assert!(!everything_said(&error).contains("hunter2secret") && !error.is_retryable());
    error
}

fn with_tls() -> Server {
    Server::builder().tls().password("hunter2secret").start()
}

/// Whether the connections of a handle are encrypted: all of them or none.
async fn encrypted(server: &Server, store: &Postgres) -> bool {
    // An idle connection is soon closed, and this one is not.
    let _listening = store.subscribe(Topic::Taken).await.unwrap();
    let query =
        "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'leasehold'";
    match server.sql(query).as_str() {
        "t" => true,
        "f" => false,
        other => panic!("{other}"),
    }
}

/// The URL for a server that goes by another name.
fn elsewhere(server: &Server, sslmode: &str) -> String {
    let url = server.tls_url(sslmode).replace("127.0.0.1", "elsewhere.test");
    format!("{url}&hostaddr=127.0.0.1")
}

#[tokio::test]
async fn each_mode_encrypts_or_does_not() {
    let server = with_tls();
    for (sslmode, encrypts) in
        [("disable", false), ("prefer", true), ("require", true), ("verify-ca", true), ("verify-full", true)]
    {
        let store = Postgres::connect(&server.tls_url(sslmode)).await.unwrap();
        assert_eq!(encrypted(&server, &store).await, encrypts, "{sslmode}");
        drop(store);
        server.terminate_backends("true");
    }
    let store = Postgres::connect(&server.url()).await.unwrap();
    assert!(encrypted(&server, &store).await, "unless told otherwise");
}

#[tokio::test]
async fn every_connection_of_a_handle_is_as_safe_as_the_first() {
    let server = with_tls();
    let store = Postgres::connect(&server.tls_url("verify-full")).await.unwrap();
    store.migrate().await.unwrap();
    let held = request("order:42");
    let mut freed = store.subscribe(Topic::Freed(&held.key)).await.unwrap();
    granted(&store, &held).await;
    store.release(&held.lock_id).await.unwrap();
    assert_eq!(soon("the notification", freed.next()).await, Some(Event::Freed));
    assert!(encrypted(&server, &store).await);
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused_where_that_is_checked() {
    let (server, stranger) = (with_tls(), with_tls());
    let wrong = |sslmode: &str| {
        let ca = stranger.ca_file();
        format!("{}?sslmode={sslmode}&sslrootcert={}", server.url(), ca.display())
    };
    refused(&wrong("verify-ca")).await;
    refused(&wrong("verify-full")).await;
    refused(&wrong("").replace("sslmode=", "")).await;
    // As the server's own clients do: who names an authority wants it to be checked.
    refused(&wrong("require")).await;
    Postgres::connect(&wrong("prefer")).await.unwrap();
    Postgres::connect(&format!("{}?sslmode=require", server.url())).await.unwrap();
    // Nobody's authorities know it.
    refused(&format!("{}?sslmode=verify-full&sslrootcert=system", server.url())).await;
    refused(&format!("{}?sslmode=verify-full", server.url())).await;
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_where_that_is_checked() {
    let server = with_tls();
    refused(&elsewhere(&server, "verify-full")).await;
    for sslmode in ["verify-ca", "require", "prefer"] {
        let store = Postgres::connect(&elsewhere(&server, sslmode)).await.unwrap();
        assert!(encrypted(&server, &store).await, "{sslmode}");
    }
    Postgres::connect(&server.tls_url("verify-full").replace("127.0.0.1", "localhost")).await.unwrap();
}

#[tokio::test]
async fn a_server_without_tls_is_refused_unless_it_was_not_asked_for() {
    let server = Server::builder().password("hunter2secret").start();
    let trusted = with_tls();
    for sslmode in ["require", "verify-ca", "verify-full"] {
        let ca = trusted.ca_file();
        refused(&format!("{}?sslmode={sslmode}&sslrootcert={}", server.url(), ca.display())).await;
    }
    refused(&format!("{}?sslmode=require", server.url())).await;
    // Who names an authority wants it to be checked.
    refused(&format!("{}?sslrootcert={}", server.url(), trusted.ca_file().display())).await;
    for sslmode in ["disable", "prefer"] {
        let store = Postgres::connect(&format!("{}?sslmode={sslmode}", server.url())).await.unwrap();
        assert!(!encrypted(&server, &store).await, "{sslmode}");
    }
}
