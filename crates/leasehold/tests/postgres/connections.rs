//! Who may come in, what keeps one out, and that nobody is told the password.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use leasehold::{Backend, Error, ErrorCode, Postgres};
use test_servers::Postgres as Server;

use crate::support::{eventually, everything_said, granted, migrated, number, request, server, soon};

const SECRET: &str = "hunter2secret";

async fn refused(url: &str) -> Error {
    let error = soon("a refusal", Postgres::connect(url)).await.unwrap_err();
    let said = everything_said(&error);
    assert!(error.hint().is_some() && !error.outcome_unknown(), "{said}");
    assert!(!said.contains(SECRET), "{said}");
    error
}

#[tokio::test]
async fn a_password_lets_in_and_is_never_shown() {
    let server = Server::builder().password(SECRET).start();
    let store = Postgres::connect(&server.url()).await.unwrap();
    let shown = format!("{store:?} {store:#?}");
    assert!(shown.contains("syncguard_locks") && !shown.contains(SECRET), "{shown}");
    for wrong in [
        server.url_as("postgres", &format!("{SECRET}-but-wrong")),
        server.url_as("nobody", SECRET),
        server.url_as("postgres", ""),
    ] {
        let error = refused(&wrong).await;
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
        assert!(!error.is_retryable());
    }
    let error = refused(&format!("postgres://postgres:{SECRET}@{}/nothing", server.address())).await;
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
}

#[tokio::test]
async fn a_url_that_is_wrong_is_refused_without_repeating_it() {
    for wrong in [
        "postgres://me:hunter2secret@host:port/db",
        "postgres://me:hunter2secret@host/db?sslmode=hunter2secret",
        "postgres://me:hunter2secret@host/db?hunter2secret",
        "postgres://me:hunter2secret@host/db?hunter2secret=1",
        "postgres://me:hunter2secret@host/db?connect_timeout=hunter2secret",
        "postgres://me:hunter2secret@host/db?pool=hunter2secret",
        "postgres://me:hunter2secret%ff@host/db?sslmode=odd",
        "postgres://me:hunter2secret@host/db?password=hunter2secret&port=hunter2secret",
    ] {
        let error = refused(wrong).await;
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{wrong}: {error:?}");
    }
}

#[tokio::test]
async fn the_directory_of_a_unix_socket_is_a_host() {
    let server = server().await;
    let (directory, port) = (server.socket_dir().display().to_string(), server.port());
    let escaped = directory.replace('/', "%2F");
    for url in [
        format!("postgres://postgres@{escaped}:{port}/postgres"),
        format!("postgres:///postgres?host={directory}&port={port}&user=postgres"),
        format!("postgresql:///postgres?host={directory}&port={port}&user=postgres&pool=1&timeout=3"),
    ] {
        let store = Postgres::connect(&url).await.unwrap();
        let held = request("order:42");
        granted(&store, &held).await;
        store.release(&held.lock_id).await.unwrap();
        let local =
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'leasehold' AND client_addr IS NULL";
        assert_eq!(server.sql(local), "t", "{url}");
    }
    let error = refused("postgres:///postgres?host=/nowhere&user=postgres").await;
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error:?}");
}

#[tokio::test]
async fn nobody_at_the_address_is_an_error_that_passes() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = refused(&format!("postgres://postgres:{SECRET}@127.0.0.1:{free}/postgres")).await;
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error:?}");
    assert!(error.is_retryable() && error.to_string().contains("no server answers"), "{error:?}");
    let error = refused(&format!("postgres://postgres:{SECRET}@nowhere.invalid/postgres")).await;
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error:?}");
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let started = Instant::now();
    let error = refused(&format!("postgres://postgres:{SECRET}@127.0.0.1:{port}/postgres?timeout=0.3")).await;
    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error:?}");
    assert!(started.elapsed() >= Duration::from_millis(300));
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
        let url = format!("postgres://postgres:{SECRET}@127.0.0.1:{port}/postgres?timeout=2&sslmode={sslmode}");
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
    let app = Postgres::connect(&format!("{}?pool=2", server.url_as("app", ""))).await.unwrap();
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
    eventually("there is room", || number(&server, "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'") == 0)
        .await;
    granted(&app, &request("order:42")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_has_no_more_connections_than_it_may_and_leaves_none_behind() {
    let server = server().await;
    let store = std::sync::Arc::new(Postgres::connect(&format!("{}?pool=3&wake_ups=off", server.url())).await.unwrap());
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
    assert!((1..=3).contains(&open), "{open} connections");
    drop(store);
    eventually("all is closed", || number(&server, ours) == 0).await;
}
