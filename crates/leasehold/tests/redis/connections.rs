//! Ways to a server, and what is said when there is none.

use leasehold::backend::Backend;
use leasehold::redis::{Redis, RedisOptions};
use leasehold::{Error, ErrorCode, Locks};
use test_servers::Redis as Server;
use test_support::redis::exists;
use test_support::{everything_said, granted, key, request};

use crate::support::connect;

const SECRET: &str = "hunter2secret";

async fn refused(url: &str) -> Error {
    let error = Redis::connect(url).await.unwrap_err();
    assert!(error.hint().is_some(), "{error:?}");
    assert!(!everything_said(&error).contains(SECRET), "{}", everything_said(&error));
    error
}

#[tokio::test]
async fn a_unix_socket_takes_a_password_a_database_and_a_prefix() {
    let server = Server::builder().password(SECRET).start();
    granted(&connect(&server).await, &request("order:42")).await;
    let path = server.socket();
    let path = path.display();
    for url in [format!("unix://{path}?pass={SECRET}"), format!("unix:{path}?pass={SECRET}&db=0&user=default")] {
        let store = Redis::connect(&url).await.unwrap();
        assert!(store.is_locked(&key("order:42")).await.unwrap());
        granted(&store, &request(&url.replace(SECRET, ""))).await;
    }
    let store = Redis::connect(&format!("unix://{path}?pass={SECRET}&db=3&prefix=app")).await.unwrap();
    granted(&store, &request("order:42")).await;
    assert!(!exists(&server, "app:order:42"), "it is in database 3");
    assert_eq!(refused(&format!("unix://{path}?pass=wrong-{SECRET}")).await.code(), ErrorCode::AuthFailed);
    assert_eq!(refused(&format!("unix://{path}")).await.code(), ErrorCode::AuthFailed);
}

#[tokio::test]
async fn other_names_of_the_scheme_and_of_the_user_are_the_same() {
    let server = Server::builder().password(SECRET).start();
    let url = server.url().replace("redis://", "valkey://default");
    granted(&Redis::connect(&url).await.unwrap(), &request("order:42")).await;
    assert!(connect(&server).await.is_locked(&key("order:42")).await.unwrap());
    assert!(Locks::connect(&url).await.unwrap().is_locked(&key("order:42")).await.unwrap());
}

#[tokio::test]
async fn the_first_of_several_hosts_that_answers_is_used() {
    let (dead, hung, server) = (Server::start(), Server::start(), Server::start());
    dead.kill();
    hung.pause();
    let address = |server: &Server| format!("127.0.0.1:{}", server.port());
    let url = format!("redis://{},{},{}?timeout=1.5s", address(&dead), address(&hung), address(&server));
    let store = Redis::connect(&url).await.unwrap();
    granted(&store, &request("order:42")).await;
    assert!(exists(&server, "syncguard:order:42"));
    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    let mut found = store.is_locked(&key("order:42")).await;
    if found.as_ref().is_err_and(Error::is_retryable) {
        found = store.is_locked(&key("order:42")).await;
    }
    assert!(found.unwrap(), "and again after the connection was lost");
    server.kill();
    assert!(refused(&url).await.is_retryable());
}

#[tokio::test]
async fn what_the_url_says_goes_before_the_options() {
    let server = Server::start();
    let options = RedisOptions::default().with_prefix("mine");
    let store = Redis::connect_with(&server.url(), options.clone()).await.unwrap();
    granted(&store, &request("order:42")).await;
    assert!(exists(&server, "mine:order:42"));
    let store = Redis::connect_with(&format!("{}?prefix=yours", server.url()), options).await.unwrap();
    granted(&store, &request("order:42")).await;
    assert!(exists(&server, "yours:order:42"));
}

#[tokio::test]
async fn options_do_not_show_the_password_of_the_sentinels() {
    let options = RedisOptions::default().with_sentinel_password(SECRET);
    assert!(!format!("{options:?}").contains(SECRET), "{options:?}");
}

#[tokio::test]
async fn of_several_hosts_a_replica_is_left_for_the_primary() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let url = format!("redis://{},{}", replica.address(), primary.address());
    let store = Redis::connect(&url).await.unwrap();
    let error = store.acquire(&request("order:42")).await.unwrap_err();
    assert_eq!((error.code(), error.outcome_unknown()), (ErrorCode::ServiceUnavailable, false));
    granted(&store, &request("order:42")).await;
    assert!(exists(&primary, "syncguard:order:42"));
}

#[tokio::test]
async fn a_server_that_is_no_sentinel_is_a_wrong_url() {
    let server = Server::start();
    let error = refused(&format!("redis+sentinel://{}/mymaster", server.address())).await;
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
}
