//! Certificates are good for what they are made for, and for nothing else.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use test_servers::{Certificates, Redis};

/// What `redis-cli` gets from the port that speaks TLS.
fn ping_over_tls(redis: &Redis, arguments: &[&str]) -> String {
    let output = Command::new("redis-cli")
        .args(["--tls", "-u", &redis.tls_url()])
        .args(arguments)
        .arg("PING")
        .output()
        .expect("redis-cli is not installed: apt-get install redis-tools");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned()
}

#[test]
fn speaks_tls_to_those_who_trust_its_authority() {
    let redis = Redis::builder().tls().start();
    let authority = redis.ca_file();
    assert_eq!(ping_over_tls(&redis, &["--cacert", authority.to_str().unwrap()]), "PONG");
    let stranger = Certificates::generate();
    let stranger = stranger.ca_file();
    assert!(!ping_over_tls(&redis, &["--cacert", stranger.to_str().unwrap()]).contains("PONG"));
}

#[test]
fn mutual_tls_demands_a_certificate_of_the_client() {
    let redis = Redis::builder().mutual_tls().start();
    let (authority, certificate, key) = (redis.ca_file(), redis.client_cert(), redis.client_key());
    let trust = ["--cacert", authority.to_str().unwrap()];
    let show = ["--cert", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()];
    assert_eq!(ping_over_tls(&redis, &[trust.as_slice(), show.as_slice()].concat()), "PONG");
    assert!(!ping_over_tls(&redis, &trust).contains("PONG"));
}

#[test]
fn a_server_that_speaks_tls_comes_back_speaking_it() {
    let redis = Redis::builder().tls().start();
    redis.kill();
    redis.restart();
    assert_eq!(ping_over_tls(&redis, &["--cacert", redis.ca_file().to_str().unwrap()]), "PONG");
}
