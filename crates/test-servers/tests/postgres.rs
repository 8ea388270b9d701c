//! One server does what its documentation says.

#![allow(clippy::unwrap_used)]

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use shared_memory::{has_shared_memory, shared_memory};
use test_servers::{Certificates, DEADLINE, Postgres, Proxy, eventually, is_alive};

mod shared_memory;

const BUSY: &str = "SELECT count(*) FROM generate_series(1, 1000000000000)";

/// A client that comes by TCP, as those of users do.
fn psql(url: &str) -> Command {
    let mut command = Command::new("psql");
    command.args(["-X", "-A", "-t", "-q", "-w", "-v", "ON_ERROR_STOP=1", "-d", url]).stdin(Stdio::null());
    command
}

fn ask(url: &str, sql: &str) -> Result<String, String> {
    let output = psql(url).args(["-c", sql]).output().expect("psql is missing: apt-get install postgresql-client");
    let text = |bytes| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// A client that has a connection for as long as it is let.
fn sleeper(postgres: &Postgres) -> Child {
    let before = connections(postgres);
    let child = psql(&postgres.url()).args(["-c", "SELECT pg_sleep(600)"]).stderr(Stdio::null()).spawn().unwrap();
    eventually("the sleeper to connect", || connections(postgres) > before);
    child
}

fn connections(postgres: &Postgres) -> usize {
    postgres.sql("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(6%'").parse::<usize>().unwrap() - 1
}

#[test]
fn answers_on_its_port_and_its_socket() {
    let postgres = Postgres::start();
    assert_eq!(postgres.url(), format!("postgres://postgres@127.0.0.1:{}/postgres", postgres.port()));
    assert_eq!(ask(&postgres.url(), "SELECT inet_server_port()").unwrap(), postgres.port().to_string());
    assert_eq!(postgres.sql("SELECT inet_server_port() IS NULL"), "t");
}

#[test]
fn shows_rows_and_errors_as_text() {
    let postgres = Postgres::start();
    assert_eq!(postgres.sql("CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'x'), (2, NULL)"), "");
    assert_eq!(postgres.sql("VACUUM t; SELECT * FROM t ORDER BY a; SELECT 3"), "1|x\n2|\n3");
    let error = postgres.try_sql("SELECT 1; SELECT nonsense; DROP TABLE t").unwrap_err();
    assert!(error.contains("column \"nonsense\" does not exist"), "{error}");
    assert_eq!(postgres.try_sql("SELECT count(*) FROM t").unwrap(), "2");
}

#[test]
#[should_panic(expected = "column \"nonsense\" does not exist")]
fn an_error_that_nobody_expects_is_a_panic() {
    Postgres::start().sql("SELECT nonsense");
}

#[test]
fn other_users_are_who_they_say() {
    let postgres = Postgres::start();
    postgres.sql("CREATE ROLE tenant LOGIN");
    assert_eq!(postgres.sql_as("tenant", "SELECT current_user"), "tenant");
    assert_eq!(ask(&postgres.url_as("tenant", ""), "SELECT current_user").unwrap(), "tenant");
}

#[test]
fn is_as_durable_as_users_have_it_unless_told_otherwise() {
    let durability = "SELECT current_setting('fsync'), current_setting('synchronous_commit'),
        current_setting('full_page_writes'), current_setting('wal_level')";
    assert_eq!(Postgres::start().sql(durability), "on|on|on|replica");
    let settings = [("fsync", "off"), ("application_name", "it's"), ("synchronous_commit", "off")];
    let postgres = Postgres::with(&settings);
    assert_eq!(postgres.sql(durability), "off|off|on|replica");
    postgres.sql("ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf()");
    eventually("the new setting", || postgres.sql("SHOW fsync") == "on");
}

#[test]
fn counts_statements() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE counted (a int)");
    assert_eq!(postgres.calls("INSERT INTO counted%"), 0);
    postgres.sql("INSERT INTO counted VALUES (1); INSERT INTO counted VALUES (2)");
    assert_eq!(postgres.calls("INSERT INTO counted VALUES ($1)"), 2);
    postgres.sql("SELECT pg_stat_statements_reset()");
    assert_eq!(postgres.calls("INSERT INTO counted%"), 0);
}

#[test]
fn demands_the_password_of_those_who_come_by_tcp() {
    let postgres = Postgres::builder().password("secret").start();
    assert_eq!(postgres.url(), format!("postgres://postgres:secret@127.0.0.1:{}/postgres", postgres.port()));
    assert_eq!(ask(&postgres.url(), "SELECT 1").unwrap(), "1");
    assert!(ask(&postgres.url_as("postgres", "wrong"), "SELECT 1").unwrap_err().contains("authentication failed"));
    assert!(ask(&postgres.url_as("postgres", ""), "SELECT 1").unwrap_err().contains("no password supplied"));
    assert_eq!(postgres.sql("SELECT left(rolpassword, 13) FROM pg_authid WHERE rolname = 'postgres'"), "SCRAM-SHA-256");
}

#[test]
fn speaks_tls_to_those_who_trust_its_authority() {
    let postgres = Postgres::builder().tls().password("secret").start();
    let ssl = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(ask(&postgres.tls_url("verify-full"), ssl).unwrap(), "t");
    assert_eq!(ask(&format!("{}?sslmode=disable", postgres.url()), ssl).unwrap(), "f");
    let stranger = Certificates::generate();
    let distrusting = format!("{}?sslmode=verify-full&sslrootcert={}", postgres.url(), stranger.ca_file().display());
    let error = ask(&distrusting, ssl).unwrap_err();
    assert!(error.contains("SSL error"), "{error}");
    postgres.restart();
    assert_eq!(ask(&postgres.tls_url("verify-full"), ssl).unwrap(), "t");
}

#[test]
fn every_process_is_silent_while_paused() {
    let postgres = Postgres::start();
    let mut client = psql(&postgres.url()).args(["-c", "SELECT pg_sleep(0.5), 'done'"]).spawn().unwrap();
    eventually("the client to connect", || {
        postgres.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1"
    });
    postgres.pause();
    for pid in postgres.pids() {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, state) = stat.rsplit_once(") ").unwrap();
        assert!(state.starts_with('T'), "{stat}");
    }
    TcpStream::connect(postgres.address()).unwrap();
    // Longer than the client's statement takes.
    sleep(Duration::from_secs(1));
    assert!(client.try_wait().unwrap().is_none());
    postgres.resume();
    assert!(client.wait().unwrap().success());
    assert_eq!(postgres.sql("SELECT 1"), "1");
}

#[test]
fn a_killed_server_is_gone_and_comes_back_with_what_was_committed() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
    let address = postgres.address();
    // One that does not look up from its work, and so does not notice that the others are dead.
    let mut busy = psql(&postgres.url()).args(["-c", BUSY]).stderr(Stdio::null()).spawn().unwrap();
    let running = format!("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = '{BUSY}'");
    eventually("the statement to run", || postgres.sql(&running) == "1");
    let pids = postgres.pids();
    postgres.pause();
    postgres.kill();
    assert!(!busy.wait().unwrap().success());
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
    assert!(TcpStream::connect(address).is_err());
    postgres.restart();
    assert_eq!(postgres.address(), address);
    assert!(!pids.contains(&postgres.pid()));
    assert_eq!(postgres.sql("SELECT a FROM t"), "1");
    assert!(postgres.log().contains("automatic recovery in progress"));
}

#[test]
fn restarts_end_connections_and_keep_data() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
    let mut client = sleeper(&postgres);
    postgres.restart();
    assert!(!client.wait().unwrap().success());
    assert_eq!(postgres.sql("SELECT a FROM t"), "1");
    assert!(!postgres.log().contains("automatic recovery in progress"));

    let mut client = sleeper(&postgres);
    postgres.pause();
    postgres.restart_immediate();
    assert!(!client.wait().unwrap().success());
    assert_eq!(postgres.sql("SELECT a FROM t"), "1");
    assert!(postgres.log().contains("automatic recovery in progress"));
}

#[test]
fn terminates_the_connections_that_are_meant() {
    let postgres = Postgres::start();
    assert_eq!(postgres.terminate_backends("true"), 0);
    let (mut one, mut other) = (sleeper(&postgres), sleeper(&postgres));
    assert_eq!(postgres.terminate_backends("application_name = 'somebody else'"), 0);
    assert_eq!(postgres.terminate_backends("application_name = 'psql'"), 2);
    assert!(!one.wait().unwrap().success() && !other.wait().unwrap().success());
    assert_eq!(postgres.sql("SELECT 1"), "1");
}

#[test]
fn a_proxy_cuts_after_a_statement_that_took_effect() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE t (a int)");
    let proxy = Proxy::start(postgres.address());
    let rule = proxy.cut_after("INSERT");
    let url = format!("postgres://postgres@{}/postgres?sslmode=disable", proxy.address());
    assert_eq!(ask(&url, "SELECT 1").unwrap(), "1");
    assert!(ask(&url, "INSERT INTO t VALUES (1)").is_err());
    assert!(rule.wait_fired(DEADLINE));
    assert_eq!(postgres.sql("SELECT a FROM t"), "1");
}

#[test]
fn drop_ends_even_a_paused_server() {
    let postgres = Postgres::start();
    let mut client = sleeper(&postgres);
    let (pids, address, directory) = (postgres.pids(), postgres.address(), postgres.socket_dir().to_owned());
    let memory = shared_memory(&directory).unwrap();
    assert!(pids.len() > 5 && has_shared_memory(&memory));
    postgres.pause();
    drop(postgres);
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
    assert!(TcpStream::connect(address).is_err());
    assert!(!directory.exists());
    assert!(!has_shared_memory(&memory));
    assert!(!client.wait().unwrap().success());
}

#[test]
#[should_panic(expected = "unrecognized configuration parameter \"no_such_setting\"")]
fn a_server_that_does_not_start_shows_why() {
    let _ = Postgres::with(&[("no_such_setting", "yes")]);
}
