use std::time::{Duration, SystemTime};

use test_servers::{eventually, is_alive};
use test_support::{Case, Setup, blocking_cases};

use crate::Store;
use crate::beating::{BEATING, check_stopped_in_time};
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    a_command_whose_server_hangs_is_stopped_before_its_lease_ends,
    a_command_outlives_a_crash_of_its_server,
    a_holder_that_is_killed_leaves_its_lock_until_the_lease_ends_and_not_longer,
    the_command_needs_no_password_for_its_own_lock,
    a_store_that_is_down_at_first_is_waited_for,
    a_doctor_leaves_nothing_in_the_server,
    a_flood_of_messages_takes_no_memory_and_the_lock_is_handed_over_after_it,
];

pub(crate) const WITH_PASSWORD: &[Case] = blocking_cases![the_command_hears_of_its_store_without_the_password];

/// Every command on these stores ends with the code, and says nothing of the password `s3cret`.
pub(crate) fn check_exit_codes(place: &Place, stores: &[(i32, &str)]) {
    for (code, store) in stores {
        for command in [&["run", "-n", "k", "--", "true"][..], &["ls"], &["doctor"]] {
            let arguments = [&command[..1], &["--store", store], &command[1..]].concat();
            let done = place.run(&arguments);
            assert_eq!(done.code, *code, "{arguments:?}: {done:?}");
            let said = format!("{}{}", done.stdout, done.stderr);
            assert!(!said.contains("s3cret"), "{said}");
        }
    }
}

/// Where nobody listens.
pub(crate) fn unused_address() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn a_command_whose_server_hangs_is_stopped_before_its_lease_ends(store: Store) {
    let server = store.server();
    let place = Place::on(server.clone());
    let script = place.script("job.sh", BEATING);
    let running = place.start(["run", "--ttl", "3s", "k", "--", "sh", script.to_str().unwrap()]);
    place.pid("child");
    server.server().pause();
    let began = SystemTime::now();
    let done = running.done();
    assert_eq!(done.code, 79, "{}", done.stderr);
    check_stopped_in_time(&place, Duration::from_secs(3), began);
}

fn a_command_outlives_a_crash_of_its_server(store: Store) {
    let server = store.server_with(&Setup { durable: true, ..Setup::default() });
    let place = Place::on(server.clone());
    let script = "echo $$ > child; while [ ! -e stop ]; do sleep 0.02; done; exit 7";
    let running = place.start(["run", "--ttl", "10s", "k", "--", "sh", "-c", script]);
    place.pid("child");
    let expiry = || {
        let shown = place.run(["show", "--json", "k"]).stdout;
        serde_json::from_str::<serde_json::Value>(&shown).unwrap()["expires_at_ms"].as_u64().unwrap()
    };
    server.server().kill();
    server.server().restart();
    let before = expiry();
    eventually("the lease is renewed after the crash", || expiry() > before);
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(running.done().code, 7);
    assert_eq!(place.run(["show", "k"]).code, 1, "released");
}

fn a_holder_that_is_killed_leaves_its_lock_until_the_lease_ends_and_not_longer(store: Store) {
    let place = Place::new(store);
    let holder = place.start(["run", "--ttl", "2s", "k", "--", "sh", "-c", "echo $$ > child; sleep 60"]);
    let child = place.pid("child");
    holder.signal("KILL");
    assert_eq!(place.run(["run", "-n", "k", "--", "true"]).code, 75);
    assert_eq!(place.run(["run", "--wait", "20s", "k", "--", "true"]).code, 0);
    eventually("the command goes with its holder", || !is_alive(child));
}

fn a_doctor_leaves_nothing_in_the_server(store: Store) {
    let server = store.server();
    let place = Place::on(server.clone());
    assert_eq!(place.run(["run", "k", "--", "true"]).code, 0);
    let before = server.snapshot();
    let done = place.run(["doctor"]);
    assert_eq!((done.code, server.snapshot()), (0, before), "{done:?}");
}

fn the_command_hears_of_its_store_without_the_password(store: Store) {
    let server = store.server_with(&Setup { password: Some("s3cret"), ..Setup::default() });
    let place = Place::on(server);
    assert!(place.store().contains("s3cret") && !place.public_store().contains("s3cret"));
    let done = place.run(["run", "k", "--", "sh", "-c", "echo $LEASEHOLD_STORE"]);
    assert_eq!(done.stdout.trim(), place.public_store());
}

fn the_command_needs_no_password_for_its_own_lock(store: Store) {
    let server = store.server_with(&Setup { password: Some("s3cret"), ..Setup::default() });
    let place = Place::on(server);
    std::fs::set_permissions(place.path("."), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let script = r#"
env > environment
echo $LEASEHOLD_SOCKET > socket
"$0" extend --ttl 5m && "$0" show --json k > shown && "$0" show k > text || exit 1
"$0" show other 2> other && exit 2
"$0" extend AAAAAAAAAAAAAAAAAAAAAA 2> other && exit 3
setpriv --reuid 54331 --regid 54331 --clear-groups "$0" extend 2> stranger && exit 4
LEASEHOLD_STORE=sqlite:elsewhere.db "$0" show k 2> elsewhere && exit 5
"$0" extend --ttl 1s && "$0" show --json k > still || exit 6
"$0" release || exit 7
"$0" show k 2> after && exit 8
exit 3
"#;
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let done = place.run(["run", "--ttl", "10s", "k", "--", "sh", "-c", script, leasehold]);
    assert_eq!(done.code, 3, "it gave its lock back, and went on: {done:?}");
    let still: serde_json::Value = serde_json::from_str(&place.read("still")).unwrap();
    assert!(still["expires_in_ms"].as_u64().unwrap() > 5_000, "never shortened below that of the run: {still}");
    assert!(place.read("after").contains("nobody holds 'k'") && !place.is_held("k"), "{}", place.read("after"));
    assert!(!place.read("environment").contains("s3cret"), "{}", place.read("environment"));
    let shown: serde_json::Value = serde_json::from_str(&place.read("shown")).unwrap();
    assert!(shown["expires_in_ms"].as_u64().unwrap() > 60_000, "{shown}");
    assert!(place.read("text").contains('k') && !place.read("text").is_empty());
    assert!(place.read("elsewhere").contains("nobody holds 'k'"), "{}", place.read("elsewhere"));
    let socket = place.first_line("socket");
    assert!(socket.contains("/leasehold-") && !std::path::Path::new(&socket).parent().unwrap().exists(), "{socket}");
}

fn a_store_that_is_down_at_first_is_waited_for(store: Store) {
    let server = store.server_with(&Setup { durable: true, ..Setup::default() });
    let place = Place::on(server.clone());
    server.server().kill();
    let short = place.run(["run", "--wait", "300ms", "k", "--", "true"]);
    assert_eq!(short.code, 69, "{short:?}");
    let waiter = place.start(["run", "--wait", "5m", "k", "--", "echo", "ran"]);
    waiter.wait_for_stderr(&format!("waiting for 'k': {}: ", place.public_store()));
    server.server().restart();
    let done = waiter.done();
    assert_eq!((done.code, done.stdout.as_str()), (0, "ran\n"), "{done:?}");
}

fn a_flood_of_messages_takes_no_memory_and_the_lock_is_handed_over_after_it(store: Store) {
    let server = store.server();
    let place = Place::on(server.clone());
    let holder =
        place.start(["run", "k", "--", "sh", "-c", "echo $$ > child; while [ ! -e stop ]; do sleep 0.02; done"]);
    place.pid("child");
    let waiter = place.start(["run", "--wait", "5m", "k", "--", "true"]);
    eventually("it waits", || server.are_awaited(&["k"]));
    let before = [holder.peak_memory(), waiter.peak_memory()];
    server.flood(40_000);
    let after = [holder.peak_memory(), waiter.peak_memory()];
    println!("peak memory of holder and waiter: {before:?} KiB, and {after:?} KiB after 20 MB of messages");
    for (before, after) in before.into_iter().zip(after) {
        assert!(after < before + 8 * 1024, "from {before} to {after} KiB");
    }
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!((holder.done().code, waiter.done().code), (0, 0));
}
