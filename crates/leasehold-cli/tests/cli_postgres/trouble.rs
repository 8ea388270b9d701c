use std::time::{Duration, SystemTime};

use test_servers::Postgres;

use crate::support::{Place, is_alive, wait_until};

/// A command that notes all the time that it lives.
const BEATING: &str = "echo $$ > child\nwhile :; do echo > beat; sleep 0.02; done\n";

#[test]
fn each_trouble_with_the_server_has_its_exit_code_and_keeps_the_password() {
    let server = Postgres::builder().password("s3cret").start();
    let place = Place::new();
    let port = server.port();
    let nobody = format!("postgres://postgres:s3cret@127.0.0.1:{}/postgres", unused_port());
    let wrong = format!("postgres://postgres:s3cret-but-wrong@127.0.0.1:{port}/postgres");
    let no_database = format!("postgres://postgres:s3cret@127.0.0.1:{port}/nothing");
    let typo = "postgres://postgres:s3cret@127.0.0.1/x?sslmod=require";
    let no_tls = format!("postgres://postgres:s3cret@127.0.0.1:{port}/postgres?sslmode=require");
    let odd_table = format!("postgres://postgres:s3cret@127.0.0.1:{port}/postgres?locks_table=a%20b");
    let not_migrated = format!("postgres://postgres:s3cret@127.0.0.1:{port}/postgres");
    for (code, store) in [
        (69, nobody.as_str()),
        (77, &wrong),
        (78, &no_database),
        (78, typo),
        (77, &no_tls),
        (78, &odd_table),
        (78, &not_migrated),
    ] {
        for command in [&["run", "-n", "k", "--", "true"][..], &["ls"], &["doctor"]] {
            let arguments = [&command[..1], &["--store", store], &command[1..]].concat();
            let done = place.run(&arguments);
            assert_eq!(done.code, code, "{arguments:?}: {done:?}");
            let said = format!("{}{}", done.stdout, done.stderr);
            assert!(!said.contains("s3cret"), "{said}");
            if store == not_migrated {
                assert!(said.contains("leasehold migrate"), "{said}");
            }
        }
    }
    assert_eq!(place.run(["migrate", "--store", &not_migrated]).code, 0);
    assert_eq!(place.run(["run", "--store", &not_migrated, "k", "--", "true"]).code, 0);
}

fn unused_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn what_migrate_prints_does_the_same_when_somebody_else_runs_it() {
    let server = Postgres::start();
    let place = Place::new();
    let store = format!("{}?schema=app&locks_table=mine&fences_table=numbers", server.url());
    let printed = place.run(["migrate", "--print", "--store", &store]);
    assert_eq!(printed.code, 0, "{printed:?}");
    assert_eq!(place.run(["ls", "--store", &store]).code, 78, "nothing was done");
    server.sql(&printed.stdout);
    assert_eq!(place.run(["run", "--store", &store, "k", "--", "true"]).code, 0);
    assert_eq!(server.sql("SELECT count(*) FROM app.numbers"), "1");
    assert_eq!(place.run(["migrate", "--print", "--store", "memory:"]).code, 0);
    assert_eq!(place.run(["migrate", "--store", "memory:"]).code, 0);
}

#[test]
fn a_command_whose_server_hangs_is_stopped_before_its_lease_ends() {
    let place = Place::new();
    let server = Postgres::start();
    let store = server.url();
    assert_eq!(place.run(["migrate", "--store", &store]).code, 0);
    let script = place.script("job.sh", BEATING);
    let running = place.start(["run", "--store", &store, "--ttl", "3s", "k", "--", "sh", script.to_str().unwrap()]);
    place.pid("child");
    server.pause();
    let began = SystemTime::now();
    let done = running.done();
    assert_eq!(done.code, 79, "{}", done.stderr);
    assert!(!is_alive(place.pid("child")));
    let last_beat = std::fs::metadata(place.path("beat")).unwrap().modified().unwrap();
    // The last renewal came before the pause, so the lease ended at this time at the latest.
    assert!(last_beat < began + Duration::from_secs(3), "{last_beat:?} {began:?}");
}

#[test]
fn a_command_outlives_a_crash_of_its_server() {
    let place = Place::new();
    let server = Postgres::start();
    let store = server.url();
    assert_eq!(place.run(["migrate", "--store", &store]).code, 0);
    let script = "echo $$ > child; while [ ! -e stop ]; do sleep 0.02; done; exit 7";
    let running = place.start(["run", "--store", &store, "--ttl", "10s", "k", "--", "sh", "-c", script]);
    place.pid("child");
    let expiry = || server.sql("SELECT expires_at_ms FROM syncguard_locks").parse::<u64>().unwrap();
    server.kill();
    server.restart();
    let before = expiry();
    wait_until("the lease was renewed after the crash", || expiry() > before);
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(running.done().code, 7);
    assert_eq!(place.run(["show", "--store", &store, "k"]).code, 1, "released");
}
