//! How many connections a handle needs, and that a lock is not lost for want of one.

use std::time::Duration;

use leasehold::{LockState, Locks};
use test_servers::Postgres as Server;
use test_support::postgres::{LISTENING, ours};
use test_support::{eventually, locks, soon};
use tokio_postgres::{Client, NoTls};

use crate::support::{migrated, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_has_one_connection_and_who_holds_has_two() {
    let server = server().await;
    let holder = locks(&server.url()).await;
    let guard = holder.lock("order:42").ttl(Duration::from_secs(3)).acquire().await.unwrap();
    let first = guard.expires_at();
    eventually("it is renewed", async || guard.expires_at() > first).await;
    eventually("those who hold have two", async || ours(&server, "true") == 2).await;
    let handles: Vec<Locks> = [locks(&server.url()).await, locks(&server.url()).await].into();
    let waiting: Vec<_> = handles
        .iter()
        .map(|handle| {
            let handle = handle.clone();
            tokio::spawn(async move {
                let guard = handle.lock("order:42").wait_forever().acquire().await?;
                guard.release().await
            })
        })
        .collect();
    eventually("each of them listens", async || ours(&server, LISTENING) == 3).await;
    eventually("those who wait have one", async || ours(&server, "true") == 4).await;
    guard.release().await.unwrap();
    for waiter in waiting {
        soon("the lock", waiter).await.unwrap().unwrap();
    }
}

/// Takes every connection that the server has for `app`.
async fn crowd(server: &Server) -> Vec<Client> {
    let mut others = Vec::new();
    while let Ok((client, connection)) = tokio_postgres::connect(&server.url_as("app", ""), NoTls).await {
        tokio::spawn(connection);
        others.push(client);
    }
    others
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_kept_although_the_server_has_no_room_for_another_connection() {
    let server = Server::with(&[("max_connections", "9"), ("superuser_reserved_connections", "3")]);
    migrated(&server).await;
    server.sql("CREATE ROLE app LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO app");
    let handle = locks(&server.url_as("app", "")).await;
    let guard = handle.lock("order:42").ttl(Duration::from_secs(4)).acquire().await.unwrap();
    eventually("it listens", async || ours(&server, LISTENING) == 1).await;
    server.terminate_backends(&format!("application_name = 'leasehold' AND NOT {LISTENING}"));
    let _others = crowd(&server).await;
    for _ in 0..2 {
        let last = guard.expires_at();
        eventually("it is renewed", async || guard.expires_at() > last || guard.state() == LockState::Lost).await;
        assert_eq!(guard.state(), LockState::Held);
    }
}
