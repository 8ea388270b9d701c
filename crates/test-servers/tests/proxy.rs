//! The proxy passes bytes, and breaks connections exactly where it is told to.

#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use test_servers::{DEADLINE, Proxy, Redis};

const A_WHILE: Duration = Duration::from_millis(200);

struct Client(TcpStream);

impl Client {
    fn connect(proxy: &Proxy) -> Self {
        let stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self(stream)
    }

    fn send(&mut self, request: &str) {
        self.0.write_all(format!("{request}\r\n").as_bytes()).unwrap();
    }

    fn receive(&mut self) -> std::io::Result<String> {
        let mut reply = [0; 1024];
        let length = self.0.read(&mut reply)?;
        Ok(String::from_utf8_lossy(&reply[..length]).into_owned())
    }

    fn ask(&mut self, request: &str) -> String {
        self.send(request);
        self.receive().unwrap()
    }

    fn is_reset(&mut self) -> bool {
        self.receive().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
    }

    /// Nothing arrives, and the connection is open.
    fn is_silent(&mut self) -> bool {
        self.0.set_read_timeout(Some(A_WHILE)).unwrap();
        let result = self.receive();
        self.0.set_read_timeout(Some(DEADLINE)).unwrap();
        result.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

fn start() -> (Redis, Proxy) {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    (redis, proxy)
}

#[test]
fn passes_bytes_and_counts_them() {
    let (_redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    assert_eq!(client.ask("INCR counter"), ":1\r\n");
    let counts = proxy.counts();
    assert_eq!((counts.connections, counts.chunks_from_client, counts.bytes_from_client), (1, 2, 20));
    assert_eq!((counts.chunks_from_server, counts.bytes_from_server), (2, 11));
    assert_eq!(proxy.open_connections(), 1);
}

#[test]
fn passes_more_than_a_buffer_holds() {
    let (redis, proxy) = start();
    let value = "x".repeat(5_000_000);
    let mut client = Client::connect(&proxy);
    client.send(&format!("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5000000\r\n{value}"));
    assert_eq!(client.receive().unwrap(), "+OK\r\n");
    assert_eq!(redis.cli(&["STRLEN", "key"]), "5000000");
    client.send("GET key");
    let mut reply = vec![0; "$5000000\r\n".len() + value.len() + 2];
    client.0.read_exact(&mut reply).unwrap();
    assert!(reply.starts_with(b"$5000000\r\nxxx") && reply.ends_with(b"xxx\r\n"));
}

#[test]
fn a_client_that_is_done_asking_still_gets_its_answer() {
    let (_redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    client.send("PING");
    client.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.receive().unwrap(), "+PONG\r\n");
    assert_eq!(client.receive().unwrap(), "");
}

#[test]
fn cut_all_resets_every_connection() {
    let (_redis, proxy) = start();
    let mut clients = [Client::connect(&proxy), Client::connect(&proxy)];
    for client in &mut clients {
        assert_eq!(client.ask("PING"), "+PONG\r\n");
    }
    proxy.cut_all();
    assert_eq!(proxy.open_connections(), 0);
    for client in &mut clients {
        assert!(client.is_reset());
    }
    assert_eq!(Client::connect(&proxy).ask("PING"), "+PONG\r\n");
}

#[test]
fn close_all_ends_every_connection_in_order() {
    let (_redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    proxy.close_all();
    assert_eq!(client.receive().unwrap(), "");
}

#[test]
fn refuse_turns_new_clients_away_and_keeps_the_old() {
    let (_redis, proxy) = start();
    let mut old = Client::connect(&proxy);
    assert_eq!(old.ask("PING"), "+PONG\r\n");
    proxy.refuse();
    assert!(Client::connect(&proxy).is_reset());
    assert_eq!(old.ask("PING"), "+PONG\r\n");
    proxy.accept();
    assert_eq!(Client::connect(&proxy).ask("PING"), "+PONG\r\n");
}

#[test]
fn cut_before_keeps_the_request_from_the_server() {
    let (redis, proxy) = start();
    let rule = proxy.cut_before("INCR");
    let mut client = Client::connect(&proxy);
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    assert!(!rule.fired());
    client.send("INCR counter");
    assert!(client.is_reset());
    assert!(rule.wait_fired(DEADLINE));
    assert_eq!(redis.cli(&["GET", "counter"]), "");
    assert_eq!(Client::connect(&proxy).ask("INCR counter"), ":1\r\n");
}

#[test]
fn cut_after_keeps_the_reply_from_the_client() {
    let (redis, proxy) = start();
    let rule = proxy.cut_after(b"INCR");
    let mut client = Client::connect(&proxy);
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    client.send("INCR counter");
    assert!(client.is_reset());
    assert!(rule.wait_fired(DEADLINE));
    assert_eq!(redis.cli(&["GET", "counter"]), "1");
    assert_eq!(Client::connect(&proxy).ask("INCR counter"), ":2\r\n");
}

#[test]
fn cut_after_waits_for_a_server_that_is_slow() {
    let (redis, proxy) = start();
    let rule = proxy.cut_after("INCR");
    let mut client = Client::connect(&proxy);
    redis.pause();
    client.send("INCR counter");
    assert!(client.is_silent());
    assert!(!rule.fired());
    redis.resume();
    assert!(client.is_reset());
    assert_eq!(redis.cli(&["GET", "counter"]), "1");
}

#[test]
fn garble_answers_in_place_of_the_server() {
    let (redis, proxy) = start();
    let rule = proxy.garble("INCR", "nonsense");
    let mut client = Client::connect(&proxy);
    assert_eq!(client.ask("INCR counter"), "nonsense");
    assert!(rule.wait_fired(DEADLINE));
    assert_eq!(redis.cli(&["GET", "counter"]), "");
    assert_eq!(client.ask("INCR counter"), ":1\r\n");
}

#[test]
fn stall_withholds_the_reply_for_ever() {
    let (redis, proxy) = start();
    let rule = proxy.stall("INCR");
    let mut client = Client::connect(&proxy);
    client.send("INCR counter");
    assert!(rule.wait_fired(DEADLINE));
    assert_eq!(redis.cli(&["GET", "counter"]), "1");
    assert!(client.is_silent());
    redis.kill();
    client.send("PING");
    client.send("PING");
    assert!(client.is_silent());
    proxy.cut_all();
    assert!(client.is_reset());
}

#[test]
fn the_oldest_of_two_rules_acts_first() {
    let (_redis, proxy) = start();
    let (first, second) = (proxy.garble("INCR", "first"), proxy.garble("INCR", "second"));
    let mut client = Client::connect(&proxy);
    assert_eq!(client.ask("INCR counter"), "first");
    assert!(first.wait_fired(DEADLINE) && !second.fired());
    assert_eq!(client.ask("INCR counter"), "second");
    assert!(second.wait_fired(DEADLINE));
}

#[test]
fn stall_all_holds_bytes_back_until_flow() {
    let (redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    proxy.stall_all();
    client.send("INCR counter");
    assert!(client.is_silent());
    assert_eq!(redis.cli(&["GET", "counter"]), "");
    let mut late = Client::connect(&proxy);
    late.send("PING");
    assert!(late.is_silent());
    proxy.flow();
    assert_eq!(client.receive().unwrap(), ":1\r\n");
    assert_eq!(late.receive().unwrap(), "+PONG\r\n");
}

#[test]
fn stalled_connections_can_be_cut() {
    let (redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    proxy.stall_all();
    client.send("INCR counter");
    assert!(client.is_silent());
    proxy.cut_all();
    assert!(client.is_reset());
    proxy.flow();
    assert_eq!(redis.cli(&["GET", "counter"]), "");
}

#[test]
fn a_dead_server_ends_connections_and_a_new_one_is_found() {
    let (redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    redis.kill();
    assert!(client.receive().is_ok_and(|reply| reply.is_empty()));
    assert!(Client::connect(&proxy).is_reset());
    redis.restart();
    assert_eq!(Client::connect(&proxy).ask("PING"), "+PONG\r\n");
}

#[test]
fn drop_cuts_everything_and_frees_the_port() {
    let (_redis, proxy) = start();
    let mut client = Client::connect(&proxy);
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    let address = proxy.address();
    drop(proxy);
    assert!(client.is_reset());
    assert!(TcpStream::connect(address).is_err());
}
