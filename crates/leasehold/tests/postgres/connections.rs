//! What keeps one out of a database, and how many connections there are.

use std::io::{Read, Write};
use std::net::TcpListener;

use leasehold::backend::Backend;
use leasehold::postgres::Postgres;
use leasehold::{Error, ErrorCode};
use test_servers::Postgres as Server;
use test_support::postgres::number;
use test_support::{eventually, everything_said, granted, request, soon};

use crate::support::{migrated, server};

const SECRET: &str = "hunter2secret";

async fn refused(url: &str) -> Error {
    let error = soon("a refusal", Postgres::connect(url)).await.unwrap_err();
    let said = everything_said(&error);
    assert!(error.hint().is_some() && !error.outcome_unknown(), "{said}");
    assert!(!said.contains(SECRET), "{said}");
    error
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_another_error_than_a_server_that_does_not() {
    let server = Server::builder().password(SECRET).start();
    let url = format!("postgres://postgres:{SECRET}@{}/nothing", server.address());
    assert_eq!(refused(&url).await.code(), ErrorCode::InvalidArgument);
    server.kill();
    let error = refused(&url).await;
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error:?}");
    assert!(error.to_string().contains("no server answers"), "{error:?}");
}

#[tokio::test]
async fn a_url_that_is_wrong_is_refused_without_repeating_it() {
    for wrong in [
        "postgres://me:hunter2secret@host:port/db",
        "postgres://me:hunter2secret@host/db?sslmode=hunter2secret",
        "postgres://me:hunter2secret@host/db?hunter2secret",
        "postgres://me:hunter2secret@host/db?hunter2secret=1",
        "postgres://me:hunter2secret@host/db?connect_timeout=hunter2secret",
        "postgres://me:hunter2secret@host/db?pool_size=hunter2secret",
        "postgres://me:hunter2secret%ff@host/db?sslmode=odd",
        "postgres://me:hunter2secret@host/db?password=hunter2secret&port=hunter2secret",
    ] {
        let error = refused(wrong).await;
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{wrong}: {error:?}");
    }
}

#[tokio::test]
async fn a_server_of_another_kind_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    for sslmode in ["disable", "prefer", "require"] {
        let url = format!("postgres://postgres:{SECRET}@127.0.0.1:{port}/postgres?timeout=2s&sslmode={sslmode}");
        let error = refused(&url).await;
        let expected = [ErrorCode::Internal, ErrorCode::ServiceUnavailable, ErrorCode::AuthFailed];
        assert!(expected.contains(&error.code()), "{sslmode}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_room_for_more_asks_to_slow_down() {
    let server = Server::with(&[("max_connections", "8"), ("superuser_reserved_connections", "1")]);
    let store = migrated(&server).await;
    server.sql("CREATE ROLE app LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO app");
    let app = Postgres::connect(&format!("{}?pool_size=2", server.url_as("app", ""))).await.unwrap();
    app.is_locked(&request("order:42").key).await.unwrap();
    server.terminate_backends("usename = 'app'");
    let mut others = Vec::new();
    let app_url = server.url_as("app", "");
    while let Ok((client, connection)) = tokio_postgres::connect(&app_url, tokio_postgres::NoTls).await {
        others.push((client, tokio::spawn(connection)));
    }
    // What was lost may show first as a lost connection.
    let error = loop {
        let error = app.acquire(&request("order:42")).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        if error.code() == ErrorCode::RateLimited {
            break error;
        }
    };
    assert!(error.hint().unwrap().contains("max_connections") && !error.outcome_unknown(), "{error:?}");
    drop((others, store));
    eventually("there is room", async || {
        number(&server, "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'") == 0
    })
    .await;
    granted(&app, &request("order:42")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_has_no_more_connections_than_it_may_and_leaves_none_behind() {
    let server = server().await;
    let store =
        std::sync::Arc::new(Postgres::connect(&format!("{}?pool_size=3&wake_ups=off", server.url())).await.unwrap());
    let ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'";
    let tasks: Vec<_> = (0..30)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { granted(&*store, &request(&format!("order:{number}"))).await })
        })
        .collect();
    for task in tasks {
        soon("a grant", task).await.unwrap();
    }
    let open = number(&server, ours);
    assert!(open <= 3, "{open} connections");
    drop(store);
    eventually("all is closed", async || number(&server, ours) == 0).await;
}
