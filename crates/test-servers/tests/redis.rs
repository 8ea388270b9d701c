//! One server does what its documentation says.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use test_servers::Redis;

fn ping(mut stream: impl Read + Write) -> std::io::Result<String> {
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 64];
    let length = stream.read(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

fn connect(redis: &Redis) -> TcpStream {
    let stream = TcpStream::connect(redis.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    stream
}

#[test]
fn answers_on_its_port_and_its_socket() {
    let redis = Redis::start();
    assert_eq!(redis.url(), format!("redis://127.0.0.1:{}", redis.port()));
    assert_eq!(ping(connect(&redis)).unwrap(), "+PONG\r\n");
    assert_eq!(ping(UnixStream::connect(redis.socket()).unwrap()).unwrap(), "+PONG\r\n");
}

#[test]
fn shows_values_lists_and_errors_as_text() {
    let redis = Redis::start();
    assert_eq!(redis.cli(&["SET", "key", "two\nlines"]), "OK");
    assert_eq!(redis.cli(&["GET", "key"]), "two\nlines");
    assert_eq!(redis.cli(&["GET", "other"]), "");
    assert_eq!(redis.cli(&["RPUSH", "list", "a", "b"]), "2");
    assert_eq!(redis.cli(&["LRANGE", "list", "0", "-1"]), "a\nb");
    assert!(redis.cli(&["INCR", "key"]).starts_with("ERR value is not an integer"));
}

#[test]
fn takes_arguments() {
    let redis = Redis::with(&["--maxmemory", "2mb", "--save", "3600 1"]);
    assert_eq!(redis.cli(&["CONFIG", "GET", "maxmemory"]), "maxmemory\n2097152");
    assert_eq!(redis.cli(&["CONFIG", "GET", "save"]), "save\n3600 1");
}

#[test]
fn counts_calls_and_memory() {
    let redis = Redis::start();
    assert_eq!(redis.info("commandstats", "cmdstat_incr"), None);
    assert_eq!(redis.calls("incr"), 0);
    redis.cli(&["INCR", "counter"]);
    redis.cli(&["INCR", "counter"]);
    assert!(redis.info("commandstats", "cmdstat_incr").unwrap().starts_with("calls=2,"));
    assert_eq!(redis.calls("incr"), 2);

    let before = redis.used_memory();
    redis.cli(&["SET", "large", &"x".repeat(1_000_000)]);
    assert!(redis.used_memory() > before + 900_000);
}

#[test]
fn demands_the_password() {
    let redis = Redis::builder().password("secret").start();
    assert_eq!(redis.url(), format!("redis://:secret@127.0.0.1:{}", redis.port()));
    assert_eq!(redis.cli(&["PING"]), "PONG");
    assert!(ping(connect(&redis)).unwrap().starts_with("-NOAUTH"));
}

#[test]
fn is_silent_while_paused() {
    let redis = Redis::start();
    redis.pause();
    let mut waiting = connect(&redis);
    assert!(ping(&mut waiting).is_err());
    redis.resume();
    waiting.set_read_timeout(None).unwrap();
    let mut answer = [0; 7];
    waiting.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
}

#[test]
fn a_killed_server_is_gone_and_comes_back_empty_at_the_same_address() {
    let redis = Redis::start();
    redis.cli(&["SET", "key", "value"]);
    let (address, pid) = (redis.address(), redis.pid());
    redis.pause();
    redis.kill();
    assert!(TcpStream::connect(address).is_err());
    redis.restart();
    assert_eq!(redis.address(), address);
    assert_ne!(redis.pid(), pid);
    assert_eq!(redis.cli(&["GET", "key"]), "");
}

#[test]
fn an_append_only_server_comes_back_with_all_it_knew() {
    let redis = Redis::builder().append_only("always").start();
    redis.cli(&["SET", "key", "value"]);
    redis.kill();
    redis.restart();
    assert_eq!(redis.cli(&["GET", "key"]), "value");
    redis.stop();
    redis.restart();
    assert_eq!(redis.cli(&["GET", "key"]), "value");
}

#[test]
fn a_replica_is_ready_when_it_has_caught_up() {
    let primary = Redis::builder().password("secret").start();
    primary.cli(&["SET", "key", "value"]);
    let replica = Redis::builder().replica_of(&primary).start();
    assert_eq!(replica.cli(&["GET", "key"]), "value");
    assert_eq!(replica.info("replication", "role").unwrap(), "slave");
}

#[test]
fn drop_ends_even_a_paused_server() {
    let redis = Redis::start();
    let (pid, address, socket) = (redis.pid(), redis.address(), redis.socket());
    redis.pause();
    drop(redis);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(TcpStream::connect(address).is_err());
    assert!(!socket.parent().unwrap().exists());
}

#[test]
#[should_panic(expected = "Bad directive or wrong number of arguments")]
fn a_server_that_does_not_start_shows_why() {
    let _ = Redis::with(&["--no-such-setting", "yes"]);
}
