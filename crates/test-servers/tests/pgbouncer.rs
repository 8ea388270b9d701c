//! PgBouncer pools connections to a server.

#![allow(clippy::unwrap_used)]

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use test_servers::{PgBouncer, Postgres, Server, eventually};

fn psql(url: &str, sql: &str) -> Command {
    let mut command = Command::new("psql");
    command.args(["-X", "-A", "-t", "-q", "-w", "-d", url, "-c", sql]).stdin(Stdio::null());
    command
}

fn ask(url: &str, sql: &str) -> Result<String, String> {
    let output = psql(url, sql).output().expect("psql is missing: apt-get install postgresql-client");
    let text = |bytes| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn sleeper(pgbouncer: &PgBouncer) -> Child {
    psql(&pgbouncer.url(), "SELECT pg_sleep(600)").stderr(Stdio::null()).spawn().unwrap()
}

/// A column of the pool for the superuser and the database of the same name.
fn pool(pgbouncer: &PgBouncer, column: &str) -> String {
    let pools = pgbouncer.show("pools");
    let pool = pools.iter().find(|pool| pool["database"] == "postgres" && pool["user"] == "postgres");
    pool.map(|pool| pool[column].clone()).unwrap_or_default()
}

#[test]
fn clients_share_connections_by_transaction() {
    let postgres = Postgres::start();
    let pgbouncer = PgBouncer::builder(&postgres, "transaction").pool_size(1).start();
    let backend = ask(&pgbouncer.url(), "SELECT pg_backend_pid()").unwrap();
    assert_eq!(ask(&pgbouncer.url(), "SELECT pg_backend_pid()").unwrap(), backend);
    assert_eq!(pool(&pgbouncer, "pool_mode"), "transaction");
}

#[test]
fn a_client_more_than_the_pool_has_connections_waits() {
    let postgres = Postgres::start();
    let pgbouncer = PgBouncer::builder(&postgres, "transaction").pool_size(2).start();
    let mut clients = [sleeper(&pgbouncer), sleeper(&pgbouncer), sleeper(&pgbouncer)];
    eventually("two to work and one to wait", || {
        pool(&pgbouncer, "sv_active") == "2" && pool(&pgbouncer, "cl_waiting") == "1"
    });
    pgbouncer.kill();
    for client in &mut clients {
        assert!(!client.wait().unwrap().success());
    }
}

#[test]
fn settings_of_a_client_do_not_keep_it_out() {
    let postgres = Postgres::start();
    let pgbouncer = PgBouncer::start(&postgres, "transaction");
    let url = format!("{}?options=-csearch_path%3Dnowhere", pgbouncer.url());
    assert_eq!(ask(&url, "SHOW search_path").unwrap(), "\"$user\", public");
}

#[test]
fn users_are_shown_to_the_server_as_who_they_are() {
    let postgres = Postgres::builder().password("secret").start();
    postgres.sql("CREATE ROLE tenant LOGIN PASSWORD 'hidden'");
    let pgbouncer = PgBouncer::start(&postgres, "session");
    assert_eq!(ask(&pgbouncer.url(), "SELECT current_user").unwrap(), "postgres");
    assert_eq!(ask(&pgbouncer.url_as("tenant"), "SELECT current_user").unwrap(), "tenant");
    assert!(ask(&pgbouncer.url_as("stranger"), "SELECT current_user").is_err());
}

#[test]
fn extra_settings_are_heard() {
    let postgres = Postgres::start();
    let pgbouncer = PgBouncer::builder(&postgres, "transaction").setting("query_timeout", "1").start();
    let error = ask(&pgbouncer.url(), "SELECT pg_sleep(600)").unwrap_err();
    assert!(error.contains("query timeout"), "{error}");
}

#[test]
fn comes_back_at_the_same_address() {
    let postgres = Postgres::start();
    let pgbouncer = PgBouncer::start(&postgres, "transaction");
    let (address, pid) = (pgbouncer.address(), pgbouncer.pid());
    pgbouncer.pause();
    pgbouncer.resume();
    assert_eq!(ask(&pgbouncer.url(), "SELECT 1").unwrap(), "1");
    for end in [Server::kill, Server::stop] {
        end(&pgbouncer);
        assert!(TcpStream::connect(address).is_err());
        pgbouncer.restart();
        assert_ne!(pgbouncer.pid(), pid);
        assert_eq!(ask(&pgbouncer.url(), "SELECT 1").unwrap(), "1");
    }
}

#[test]
fn drop_ends_even_a_paused_one() {
    let postgres = Postgres::start();
    let pgbouncer = PgBouncer::start(&postgres, "transaction");
    let (pid, address) = (pgbouncer.pid(), pgbouncer.address());
    pgbouncer.pause();
    drop(pgbouncer);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(TcpStream::connect(address).is_err());
    assert_eq!(postgres.sql("SELECT 1"), "1");
}

#[test]
#[should_panic(expected = "no_such_mode")]
fn one_that_does_not_start_shows_why() {
    let postgres = Postgres::start();
    let _ = PgBouncer::start(&postgres, "no_such_mode");
}
