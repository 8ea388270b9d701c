//! A URL with several hosts leads to the one that accepts writes, and tells each only its own
//! password.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use leasehold::ErrorCode;
use leasehold::backend::Backend;
use leasehold::postgres::Postgres;
use test_servers::Postgres as Server;
use test_support::postgres::{number, ours};
use test_support::{eventually, granted, request, soon};

use crate::support::server;

/// One URL for several servers, in this order.
fn together(servers: &[&Server], query: &str) -> String {
    let addresses: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
    format!("postgres://postgres@{}/postgres?{query}", addresses.join(","))
}

/// Has every new transaction refuse to write, in sessions that are open too, or not any more.
fn set_read_only(server: &Server, on: bool) {
    server.sql(&format!("ALTER SYSTEM SET default_transaction_read_only = {on}"));
    server.sql("SELECT pg_reload_conf()");
    while server.sql("SHOW default_transaction_read_only") != if on { "on" } else { "off" } {}
}

fn locks_in(server: &Server) -> u64 {
    number(server, "SELECT count(*) FROM syncguard_locks")
}

#[tokio::test]
async fn the_server_that_accepts_writes_is_used_wherever_it_stands_in_the_url() {
    let (standby, primary) = (server().await, server().await);
    set_read_only(&standby, true);
    for servers in [[&standby, &primary], [&primary, &standby]] {
        let store = Postgres::connect(&together(&servers, "")).await.unwrap();
        granted(&store, &request(&format!("order:{}", locks_in(&primary)))).await;
    }
    assert_eq!((locks_in(&standby), locks_in(&primary)), (0, 2));
    set_read_only(&primary, true);
    let error = soon("an error", Postgres::connect(&together(&[&standby, &primary], ""))).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error:?}");
    assert!(error.is_retryable() && error.to_string().contains("read-only"), "{error:?}");
    // Whoever says so gets any of them.
    Postgres::connect(&together(&[&standby, &primary], "target_session_attrs=any")).await.unwrap();
}

#[tokio::test]
async fn a_connection_to_a_server_that_stopped_accepting_writes_is_not_used_again() {
    let (old, new) = (server().await, server().await);
    set_read_only(&new, true);
    let store = Postgres::connect(&together(&[&old, &new], "wake_ups=off")).await.unwrap();
    granted(&store, &request("order:1")).await;
    assert_eq!((locks_in(&old), locks_in(&new)), (1, 0));
    set_read_only(&new, false);
    set_read_only(&old, true);
    granted(&store, &request("order:2")).await;
    assert_eq!((locks_in(&old), locks_in(&new)), (1, 1), "in one call, on the server that accepts it");
    eventually("it is closed", async || ours(&old, "true") == 0).await;
    set_read_only(&new, true);
    let error = soon("an error", store.acquire(&request("order:3"))).await.unwrap_err();
    assert_eq!((error.code(), error.outcome_unknown()), (ErrorCode::ServiceUnavailable, false), "{error:?}");
    set_read_only(&old, false);
    granted(&store, &request("order:3")).await;
    assert_eq!((locks_in(&old), locks_in(&new)), (2, 1));
}

#[tokio::test]
async fn a_host_that_is_silent_leaves_time_for_the_next() {
    let (silent, primary) = (server().await, server().await);
    silent.pause();
    let store = soon("a connection", Postgres::connect(&together(&[&silent, &primary], "timeout=6s"))).await.unwrap();
    granted(&store, &request("order:42")).await;
    assert_eq!(locks_in(&primary), 1);
}

#[tokio::test]
async fn each_host_is_told_its_own_password_and_no_other() {
    let (one, two) = (Server::builder().password("first").start(), Server::builder().password("second").start());
    let file = tempfile::NamedTempFile::new().unwrap();
    let line = |server: &Server, password| format!("127.0.0.1:{}:*:postgres:{password}\n", server.port());
    std::fs::write(file.path(), line(&one, "first") + &line(&two, "second")).unwrap();
    let passfile = format!("passfile={}", file.path().display());
    set_read_only(&one, true);
    Postgres::connect(&together(&[&one, &two], &passfile)).await.unwrap();
    // As long as others may read it, it is of no use.
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = soon("a refusal", Postgres::connect(&together(&[&one, &two], &passfile))).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
    assert!(error.hint().unwrap().contains("chmod 600"), "{error:?}");
}

#[tokio::test]
async fn a_pipe_is_no_password_file_and_nobody_waits_for_it() {
    let server = Server::builder().password("secret").start();
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pgpass");
    assert!(std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status().unwrap().success());
    let url = together(&[&server], &format!("passfile={}", pipe.display()));
    let error = soon("a refusal", Postgres::connect(&url)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
    assert!(error.hint().unwrap().contains("regular file"), "{error:?}");
}

#[tokio::test]
async fn an_at_sign_in_an_option_leads_where_psql_goes() {
    let server = Server::builder().password("p@ss").start();
    let url = format!("postgres://{}/postgres?user=postgres&password=p@ss", server.address());
    Postgres::connect(&url).await.unwrap();
    assert!(psql(&url, Path::new("/nowhere")));
}

/// Whether `psql` can connect, with a password file.
fn psql(url: &str, file: &Path) -> bool {
    let mut command = std::process::Command::new("psql");
    command.args(["-X", "-w", "-c", "SELECT 1", url]).env("PGPASSFILE", file).output().unwrap().status.success()
}

/// A colon that is not escaped ends the password, as in the server's own clients.
#[tokio::test]
async fn a_password_file_means_the_same_to_us_and_to_psql() {
    let server = Server::builder().password("a:b\\c").start();
    let file = tempfile::NamedTempFile::new().unwrap();
    for (entry, good) in [
        ("*:*:*:*:a\\:b\\\\c", true),
        ("*:*:*:*:a\\:b\\\\c:ignored", true),
        ("\\*:*:*:*:a\\:b\\\\c", false),
        ("*:*:*:*:a:b\\\\c", false),
        ("# *:*:*:*:wrong\n127.0.0.1:*:postgres:postgres:a\\:b\\\\c\r\n*:*:*:*:wrong", true),
    ] {
        std::fs::write(file.path(), entry).unwrap();
        let ours = Postgres::connect(&together(&[&server], &format!("passfile={}", file.path().display()))).await;
        assert_eq!(
            (ours.is_ok(), psql(&together(&[&server], ""), file.path())),
            (good, good),
            "{entry}: {:?}",
            ours.err()
        );
    }
}
