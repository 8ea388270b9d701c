use std::time::{Duration, SystemTime};

use test_servers::Redis;

use crate::support::{Place, is_alive, wait_until};

/// A command that notes all the time that it lives.
const BEATING: &str = "echo $$ > child\nwhile :; do echo > beat; sleep 0.02; done\n";

#[test]
fn each_trouble_with_the_server_has_its_exit_code_and_keeps_the_password() {
    let server = Redis::builder().password("s3cret").start();
    let place = Place::new();
    let port = server.port();
    let nobody = format!("redis://127.0.0.1:{}", unused_port());
    let wrong = format!("redis://:s3cret-but-wrong@127.0.0.1:{port}");
    let none = format!("redis://127.0.0.1:{port}");
    let no_database = format!("redis://:s3cret@127.0.0.1:{port}/4711");
    let typo = "redis://:s3cret@127.0.0.1?prefx=x";
    let reserved = format!("redis://:s3cret@127.0.0.1:{port}?prefix=fence");
    for (code, store) in [
        (69, nobody.as_str()),
        (77, &wrong),
        (77, &none),
        (78, &no_database),
        (78, typo),
        (78, &reserved),
        (78, "redis:nothing"),
        (78, "redis+sentinel://s3cret@127.0.0.1"),
    ] {
        for command in [&["run", "-n", "k", "--", "true"][..], &["ls"], &["doctor"]] {
            let arguments = [&command[..1], &["--store", store], &command[1..]].concat();
            let done = place.run(&arguments);
            assert_eq!(done.code, code, "{arguments:?}: {done:?}");
            let said = format!("{}{}", done.stdout, done.stderr);
            assert!(!said.contains("s3cret"), "{said}");
        }
    }
    assert_eq!(place.run(["run", "--store", &server.url(), "k", "--", "true"]).code, 0);
}

fn unused_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn the_command_hears_of_its_store_without_the_password() {
    let server = Redis::builder().password("s3cret").start();
    let place = Place::new();
    let store = format!("{}/0?prefix=app", server.url());
    let done = place.run(["run", "--store", &store, "k", "--", "sh", "-c", "echo $LEASEHOLD_STORE"]);
    assert_eq!(done.stdout.trim(), format!("redis://127.0.0.1:{}/0?prefix=app", server.port()));
}

#[test]
fn a_command_whose_server_hangs_is_stopped_before_its_lease_ends() {
    let server = Redis::start();
    let place = Place::new();
    let script = place.script("job.sh", BEATING);
    let store = server.url();
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
fn a_command_outlives_a_restart_of_its_server() {
    let server = Redis::builder().append_only("always").start();
    let place = Place::new();
    let store = server.url();
    let script = "echo $$ > child; while [ ! -e stop ]; do sleep 0.02; done; exit 7";
    let running = place.start(["run", "--store", &store, "--ttl", "10s", "k", "--", "sh", "-c", script]);
    place.pid("child");
    let expiry = || {
        let shown = place.run(["show", "--json", "--store", &store, "k"]).stdout;
        serde_json::from_str::<serde_json::Value>(&shown).unwrap()["expires_at_ms"].as_u64().unwrap()
    };
    server.kill();
    server.restart();
    let before = expiry();
    wait_until("the lease was renewed after the restart", || expiry() > before);
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(running.done().code, 7);
    assert_eq!(place.run(["show", "--store", &store, "k"]).code, 1, "released");
}

#[test]
fn doctor_tells_what_is_wrong_with_a_server_and_what_to_do() {
    let server = Redis::with(&["--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"]);
    let place = Place::new();
    let done = place.run(["doctor", "--store", &server.url()]);
    for expected in ["Redis 7", "allkeys-lru", "maxmemory-policy noeviction", "appendonly yes"] {
        assert!(done.stdout.contains(expected), "{expected} is not in\n{}", done.stdout);
    }
}

#[test]
fn a_holder_that_is_killed_leaves_its_lock_until_the_lease_ends_and_not_longer() {
    let server = Redis::start();
    let place = Place::new();
    let store = server.url();
    let holder =
        place.start(["run", "--store", &store, "--ttl", "2s", "k", "--", "sh", "-c", "echo $$ > child; sleep 60"]);
    let child = place.pid("child");
    holder.signal("KILL");
    assert_eq!(place.run(["run", "--store", &store, "-n", "k", "--", "true"]).code, 75);
    assert_eq!(place.run(["run", "--store", &store, "--wait", "20s", "k", "--", "true"]).code, 0);
    wait_until("the command went with its holder", || !is_alive(child));
}
