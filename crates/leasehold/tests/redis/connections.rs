//! Ways to a server, and what is said when there is none.

use std::time::{Duration, Instant};

use leasehold::{Backend, Error, ErrorCode, Locks, Redis, RedisOptions};
use test_servers::Redis as Server;

use crate::support::{connect, everything_said, exists, granted, key, request};

const SECRET: &str = "hunter2secret";

async fn refused(url: &str) -> Error {
    let error = Redis::connect(url).await.unwrap_err();
    assert!(error.hint().is_some(), "{error:?}");
    assert!(!everything_said(&error).contains(SECRET), "{}", everything_said(&error));
    error
}

#[tokio::test]
async fn a_unix_socket_leads_to_the_same_locks() {
    let server = Server::builder().password(SECRET).start();
    granted(&connect(&server).await, &request("order:42")).await;
    let path = server.socket().display();
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
    assert_eq!(refused("unix:///no/such/socket").await.code(), ErrorCode::ServiceUnavailable);
}

#[tokio::test]
async fn a_password_is_demanded_and_never_shown() {
    let server = Server::builder().password(SECRET).start();
    let at = |credentials: &str| format!("redis://{credentials}127.0.0.1:{}", server.port());
    let store = Redis::connect(&at(&format!(":{SECRET}@"))).await.unwrap();
    granted(&store, &request("order:42")).await;
    let named = Redis::connect(&at(&format!("default:{SECRET}@"))).await.unwrap();
    assert!(named.is_locked(&key("order:42")).await.unwrap());
    for wrong in [String::new(), format!(":not-{SECRET}@"), format!("nobody:{SECRET}@")] {
        let error = refused(&at(&wrong)).await;
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
        assert!(!error.is_retryable());
    }
    let locks = Locks::new(store);
    let guard = locks.lock("guarded").acquire().await.unwrap();
    let fork = locks.backend().fork().await.unwrap();
    let shown = format!("{locks:?} {:?} {fork:?} {named:?} {guard:?}", locks.backend());
    assert!(!shown.contains(SECRET), "{shown}");
}

#[tokio::test]
async fn a_password_changed_under_a_handle_is_an_authentication_error_once_it_reconnects() {
    let server = Server::builder().password(SECRET).start();
    let store = connect(&server).await;
    granted(&store, &request("order:42")).await;
    // The helper's own connections go on with the old one.
    server.cli(&["ACL", "SETUSER", "app", "on", &format!(">{SECRET}"), "~*", "&*", "+@all"]);
    let app = Redis::connect(&format!("redis://app:{SECRET}@127.0.0.1:{}", server.port())).await.unwrap();
    assert!(app.is_locked(&key("order:42")).await.unwrap());
    server.cli(&["ACL", "SETUSER", "app", "resetpass", ">another"]);
    server.cli(&["CLIENT", "KILL", "USER", "app"]);
    let mut last = app.is_locked(&key("order:42")).await;
    if last.as_ref().is_err_and(Error::is_retryable) {
        last = app.is_locked(&key("order:42")).await;
    }
    let error = last.unwrap_err();
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
    assert!(!everything_said(&error).contains(SECRET));
}

#[tokio::test]
async fn other_names_of_the_scheme_are_the_same() {
    let server = Server::start();
    let url = server.url().replace("redis://", "valkey://");
    granted(&Redis::connect(&url).await.unwrap(), &request("order:42")).await;
    assert!(connect(&server).await.is_locked(&key("order:42")).await.unwrap());
    assert!(Locks::connect(&url).await.unwrap().is_locked(&key("order:42")).await.unwrap());
}

#[tokio::test]
async fn nobody_at_the_address_is_unavailable() {
    let server = Server::start();
    let url = server.url().replace("redis://", &format!("redis://:{SECRET}@"));
    server.kill();
    let error = refused(&url).await;
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error:?}");
    assert!(error.is_retryable() && !error.outcome_unknown());
}

#[tokio::test]
async fn a_host_that_does_not_answer_costs_the_timeout_and_no_more() {
    let server = Server::start();
    server.pause();
    let started = Instant::now();
    let error = refused(&format!("redis://:{SECRET}@127.0.0.1:{}?timeout=0.3", server.port())).await;
    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error:?}");
    let took = started.elapsed();
    assert!((Duration::from_millis(300)..Duration::from_secs(4)).contains(&took), "{took:?}");
    server.resume();
    // An address that is kept for documentation: packets are dropped, or refused on the way.
    let started = Instant::now();
    let error = refused(&format!("redis://:{SECRET}@192.0.2.1?timeout=0.3")).await;
    assert!(error.is_retryable(), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(4));
    let error = refused(&format!("redis://:{SECRET}@no-such-host.invalid?timeout=2")).await;
    assert!(error.is_retryable(), "{error:?}");
}

#[tokio::test]
async fn the_first_of_several_hosts_that_answers_is_used() {
    let (dead, hung, server) = (Server::start(), Server::start(), Server::start());
    dead.kill();
    hung.pause();
    let address = |server: &Server| format!("127.0.0.1:{}", server.port());
    let url = format!("redis://{},{},{}?timeout=1.5", address(&dead), address(&hung), address(&server));
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
    let options = RedisOptions { prefix: "mine".into(), ..RedisOptions::default() };
    let store = Redis::connect_with(&server.url(), options.clone()).await.unwrap();
    granted(&store, &request("order:42")).await;
    assert!(exists(&server, "mine:order:42"));
    let store = Redis::connect_with(&format!("{}?prefix=yours", server.url()), options).await.unwrap();
    granted(&store, &request("order:42")).await;
    assert!(exists(&server, "yours:order:42"));
}

#[tokio::test]
async fn options_do_not_show_the_password_of_the_sentinels() {
    let options = RedisOptions { sentinel_password: Some(SECRET.into()), ..RedisOptions::default() };
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
