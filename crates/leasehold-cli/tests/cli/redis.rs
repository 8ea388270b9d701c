use std::io::{Read, Write};
use std::net::TcpStream;

use test_servers::Redis;
use test_support::{Case, blocking_cases};

use crate::Store;
use crate::servers::{check_exit_codes, unused_address};
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    each_trouble_with_the_server_has_its_exit_code_and_keeps_the_password,
    options_of_the_store_are_passed_on_without_the_password,
    a_key_that_the_store_keeps_for_itself_is_wrong_usage,
    a_user_who_may_only_read_sees_the_locks,
    the_password_can_be_in_a_file,
    doctor_tells_what_is_wrong_with_a_server_and_what_to_do,
    what_another_program_stored_is_not_repeated,
    a_server_that_refuses_is_not_said_to_be_silent,
    a_server_without_room_for_another_is_waited_for,
];

fn each_trouble_with_the_server_has_its_exit_code_and_keeps_the_password(store: Store) {
    let server = Redis::builder().password("s3cret").start();
    let place = Place::new(store);
    let address = server.address();
    check_exit_codes(
        &place,
        &[
            (69, &format!("redis://:s3cret@{}", unused_address())),
            (77, &format!("redis://:s3cret-but-wrong@{address}")),
            (77, &format!("redis://{address}")),
            (78, &format!("redis://:s3cret@{address}/4711")),
            (78, "redis://:s3cret@127.0.0.1?prefx=x"),
            (78, &format!("redis://:s3cret@{address}?prefix=fence")),
            (78, "redis:nothing"),
            (78, "redis+sentinel://s3cret@127.0.0.1"),
        ],
    );
    assert_eq!(place.run(["run", "--store", &server.url(), "k", "--", "true"]).code, 0);
}

fn options_of_the_store_are_passed_on_without_the_password(store: Store) {
    let server = Redis::builder().password("s3cret").start();
    let place = Place::new(store);
    let url = format!("{}/0?prefix=app", server.url());
    let done = place.run(["run", "--store", &url, "k", "--", "sh", "-c", "echo $LEASEHOLD_STORE"]);
    assert_eq!(done.stdout.trim(), format!("redis://{}?prefix=app", server.address()));
}

fn a_key_that_the_store_keeps_for_itself_is_wrong_usage(store: Store) {
    let place = Place::new(store);
    let key = "id:AAAAAAAAAAAAAAAAAAAAAA";
    for arguments in
        [&["run", key, "--", "true"][..], &["acquire", key], &["show", key], &["force-release", "--yes", key]]
    {
        let done = place.run(arguments);
        assert!(done.code == 64 && done.stderr.contains("the key has the form of a name"), "{arguments:?}: {done:?}");
    }
}

fn a_user_who_may_only_read_sees_the_locks(store: Store) {
    let server = Redis::start();
    let place = Place::new(store);
    let rules = ["+@read", "+evalsha", "+eval", "+time", "~syncguard:*"];
    let reader = test_support::redis::user(&server, "hunter2secret", &rules);
    let done = place.run(["acquire", "--store", &server.url(), "k", "--holder", "somebody"]);
    assert_eq!(done.code, 0, "{done:?}");
    for arguments in [&["ls"][..], &["show", "k"]] {
        let done = place.run([arguments, &["--store", &reader]].concat());
        assert!(done.code == 0 && done.stdout.contains("somebody"), "{done:?}");
    }
    assert_eq!(place.run(["run", "-n", "other", "--store", &reader, "--", "true"]).code, 77);
}

fn the_password_can_be_in_a_file(store: Store) {
    let server = Redis::builder().password("s3cret").start();
    let place = Place::new(store);
    std::fs::write(place.path("password"), "s3cret\n").unwrap();
    let url = format!("redis://{}?password_file=password", server.address());
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let script = r#"echo $LEASEHOLD_STORE; cd /; "$0" ls"#;
    let done = place.run(["run", "--store", &url, "k", "--", "sh", "-c", script, leasehold]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "no warning, and the command can use it too");
    assert!(done.stdout.contains("/password\n") && done.stdout.contains("KEY"), "{done:?}");
    let missing = place.run(["ls", "--store", &url.replace("=password", "=missing")]);
    assert!(missing.code == 78 && missing.stderr.contains("the password file cannot be read"), "{missing:?}");
}

fn doctor_tells_what_is_wrong_with_a_server_and_what_to_do(store: Store) {
    let server = Redis::with(&["--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"]);
    let place = Place::new(store);
    let done = place.run(["doctor", "--store", &server.url()]);
    for expected in ["Redis 7", "allkeys-lru", "maxmemory-policy noeviction", "appendonly yes"] {
        assert!(done.stdout.contains(expected), "{expected} is not in\n{}", done.stdout);
    }
}

fn what_another_program_stored_is_not_repeated(store: Store) {
    let server = Redis::start();
    let (place, url) = (Place::new(store), server.url());
    let record = r#"{"lockId":"AAAAAAAAAAAAAAAAAAAAAA","expiresAtMs":99999999999999,"fence":{"s3cret":1},"key":"k","acquiredAtMs":1}"#;
    for stored in [record, "s3cret", &record.replace("99999999999999", "\"s3cret\"")] {
        server.cli(&["SET", "syncguard:k", stored]);
        for command in [&["run", "-nv", "k", "--", "true"][..], &["show", "-v", "k"], &["show", "--json", "k"]] {
            let arguments = [&command[..1], &["--store", &url], &command[1..]].concat();
            let done = place.run(&arguments);
            assert_eq!(done.code, 78, "{done:?}");
            assert!(done.stderr.contains("is not a lock") && !done.stderr.contains("s3cret"), "{done:?}");
        }
    }
}

/// Takes connections until the server has no room for another.
fn fill(server: &Redis) -> Vec<TcpStream> {
    let mut taken = Vec::new();
    loop {
        let mut connection = TcpStream::connect(server.address()).unwrap();
        connection.write_all(b"PING\r\n").unwrap();
        let mut answer = [0; 5];
        match connection.read_exact(&mut answer) {
            Ok(()) if &answer == b"+PONG" => taken.push(connection),
            _ => return taken,
        }
    }
}

fn a_server_without_room_for_another_is_waited_for(store: Store) {
    let server = Redis::with(&["--maxclients", "20"]);
    let (place, url) = (Place::new(store), server.url());
    let taken = fill(&server);
    assert!(!taken.is_empty());
    let done = place.run(["run", "--store", &url, "-n", "k", "--", "true"]);
    assert!(done.code == 69 && done.stderr.contains("no more connections"), "{done:?}");
    let waiting = place.start(["run", "--store", &url, "k", "--", "true"]);
    waiting.wait_for_stderr("the server takes no more connections; waited");
    drop(taken);
    assert_eq!(waiting.done().code, 0);
}

fn a_server_that_refuses_is_not_said_to_be_silent(store: Store) {
    let server = Redis::start();
    let place = Place::new(store);
    let refuses = "the server has fewer replicas than it needs for a write";
    let running = place.start([
        "run",
        "--store",
        &server.url(),
        "--ttl",
        "3s",
        "k",
        "--",
        "sh",
        "-c",
        "echo $$ > child; sleep 60",
    ]);
    place.pid("child");
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let refused = place.run(["run", "--store", &server.url(), "--wait", "300ms", "other", "--", "true"]);
    assert!(refused.code == 69 && refused.stderr.contains(refuses), "{refused:?}");
    let done = running.done();
    assert_eq!(done.code, 79, "{done:?}");
    assert!(done.stderr.contains("the store did not renew it in time"), "{done:?}");
}
