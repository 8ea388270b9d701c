use std::sync::Arc;

use test_servers::{Postgres, eventually};
use test_support::postgres::{LISTENING, TABLES, migrated, ours};
use test_support::{Case, blocking_cases};

use crate::Store;
use crate::servers::{check_exit_codes, unused_address};
use crate::support::Place;
use crate::terminal::Terminal;

pub(crate) const CASES: &[Case] = blocking_cases![
    each_trouble_with_the_server_has_its_exit_code_and_keeps_the_password,
    a_role_that_may_only_read_sees_the_locks,
    what_migrate_prints_does_the_same_when_somebody_else_runs_it,
    tables_of_another_program_are_not_changed_unasked,
    commands_that_wait_have_one_connection_each_and_the_holder_has_two,
    fifteen_commands_share_nine_connections_and_each_gets_the_lock,
    a_server_without_room_for_another_is_waited_for,
    what_the_server_repeats_of_a_row_is_not_repeated,
    the_command_hears_no_password_however_it_is_spelled,
    a_bench_names_the_fences_that_it_may_not_delete,
];

fn each_trouble_with_the_server_has_its_exit_code_and_keeps_the_password(store: Store) {
    let server = Postgres::builder().password("s3cret").start();
    let place = Place::new(store);
    let url = server.url();
    check_exit_codes(
        &place,
        &[
            (69, &format!("postgres://postgres:s3cret@{}/postgres", unused_address())),
            (77, &server.url_as("postgres", "s3cret-but-wrong")),
            (78, &format!("postgres://postgres:s3cret@{}/nothing", server.address())),
            (78, "postgres://postgres:s3cret@127.0.0.1/x?sslmod=require"),
            (77, &format!("{url}?sslmode=require")),
            (78, &format!("{url}?locks_table=a%20b")),
            (78, &url),
        ],
    );
    for command in
        [&["run", "--store", &url, "k", "--", "true"][..], &["ls", "--store", &url], &["doctor", "--store", &url]]
    {
        let done = place.run(command);
        assert!(format!("{}{}", done.stdout, done.stderr).contains("leasehold migrate"), "{done:?}");
    }
    let done = place.run(["migrate", "--store", &url]);
    assert!(done.code == 0 && done.stderr.ends_with("\nleasehold: the store has now all it needs\n"), "{done:?}");
    assert_eq!(place.run(["run", "--store", &url, "k", "--", "true"]).code, 0);
}

fn a_role_that_may_only_read_sees_the_locks(store: Store) {
    let server = migrated(Postgres::builder().password("s3cret"));
    let place = Place::new(store);
    server.sql("CREATE ROLE reader LOGIN PASSWORD 's3cret'; GRANT SELECT ON syncguard_locks, syncguard_locks_grants, syncguard_locks_line TO reader");
    let url = server.url();
    assert_eq!(place.run(["acquire", "--store", &url, "k", "--holder", "somebody"]).code, 0);
    let reader = server.url_as("reader", "s3cret");
    for arguments in [&["ls"][..], &["show", "k"]] {
        let done = place.run([arguments, &["--store", &reader]].concat());
        assert!(done.code == 0 && done.stdout.contains("somebody"), "{done:?}");
    }
    assert_eq!(place.run(["run", "-n", "other", "--store", &reader, "--", "true"]).code, 77);
}

fn what_migrate_prints_does_the_same_when_somebody_else_runs_it(store: Store) {
    let server = Postgres::start();
    let place = Place::new(store);
    let url = format!("{}?schema=app&locks_table=mine&fences_table=numbers", server.url());
    let printed = place.run(["migrate", "--print", "--store", &url]);
    assert_eq!(printed.code, 0, "{printed:?}");
    assert_eq!(place.run(["ls", "--store", &url]).code, 78, "nothing was done");
    server.sql(&printed.stdout);
    assert_eq!(place.run(["run", "--store", &url, "k", "--", "true"]).code, 0);
    assert_eq!(server.sql("SELECT count(*) FROM app.numbers"), "1");
    assert_eq!(place.run(["migrate", "--print", "--store", "memory:"]).code, 0);
    assert_eq!(place.run(["migrate", "--store", "memory:"]).code, 0);
}

fn tables_of_another_program_are_not_changed_unasked(_: Store) {
    let server = Arc::new(Postgres::start());
    server.sql(TABLES);
    let columns =
        "SELECT count(*) FROM pg_attribute WHERE attname = 'details' AND attrelid = 'syncguard_locks'::regclass";
    let changed = || server.sql(columns) == "1";
    let place = Place::on(server.clone());
    let done = place.run(["migrate"]);
    assert_eq!(done.code, 64, "{done:?}");
    assert!(done.stderr.contains("cached plan") && done.stderr.contains("--yes"), "{done:?}");
    let mut terminal = Terminal::new(&place);
    terminal.type_in("\"$LEASEHOLD\" migrate; echo first=$?\n");
    terminal.see("[y/N]");
    terminal.type_in("n\n");
    terminal.see("first=1");
    assert!(!changed());
    terminal.type_in("\"$LEASEHOLD\" migrate --yes; echo second=$?\n");
    terminal.see("second=0");
    assert!(changed());
    assert_eq!(place.run(["migrate"]).code, 0, "there is nothing to ask any more");
}

/// A place on a server that has room for so many connections, of which three are not for the user
/// `app`.
fn with_room_for(connections: &str) -> (Arc<Postgres>, Place, String) {
    let settings = [("max_connections", connections), ("superuser_reserved_connections", "3")];
    let builder = settings.iter().fold(Postgres::builder(), |builder, (name, value)| builder.setting(name, value));
    let server = Arc::new(migrated(builder));
    server.sql("CREATE ROLE app LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO app");
    let url = server.url_as("app", "");
    (server.clone(), Place::on(server), url)
}

fn commands_that_wait_have_one_connection_each_and_the_holder_has_two(_: Store) {
    let (server, place, url) = with_room_for("40");
    let held = "touch held; while [ ! -e go ]; do sleep 0.05; done";
    let holder = place.start(["run", "--store", &url, "--ttl", "6s", "k", "--", "sh", "-c", held]);
    eventually("it is held", || place.path("held").exists());
    let waiters: Vec<_> = (0..4).map(|_| place.start(["run", "--store", &url, "k", "--", "true"])).collect();
    eventually("all of them listen", || ours(&server, LISTENING) == 5);
    eventually("no other connection is open but that of the heartbeat", || {
        ours(&server, &format!("NOT {LISTENING}")) == 1 && ours(&server, "true") == 6
    });
    std::fs::write(place.path("go"), "").unwrap();
    for command in waiters.into_iter().chain([holder]) {
        let done = command.done();
        assert_eq!(done.code, 0, "{done:?}");
    }
}

fn fifteen_commands_share_nine_connections_and_each_gets_the_lock(_: Store) {
    let (_server, place, url) = with_room_for("12");
    let held = "touch held; while [ ! -e go ]; do sleep 0.05; done";
    let holder = place.start(["run", "--store", &url, "k", "--", "sh", "-c", held]);
    eventually("it is held", || place.path("held").exists());
    let waiters: Vec<_> =
        (0..14).map(|_| place.start(["run", "--store", &url, "--wait", "60s", "k", "--", "true"])).collect();
    let full = "the server takes no more connections; waited";
    eventually("some are refused", || waiters.iter().filter(|waiter| waiter.stderr().contains(full)).count() >= 5);
    std::fs::write(place.path("go"), "").unwrap();
    for command in waiters.into_iter().chain([holder]) {
        let done = command.done();
        assert_eq!(done.code, 0, "{done:?}");
    }
}

fn a_server_without_room_for_another_is_waited_for(_: Store) {
    let (server, place, url) = with_room_for("12");
    // Nobody waits who was told not to.
    server.sql("ALTER ROLE app CONNECTION LIMIT 0");
    let done = place.run(["run", "--store", &url, "-n", "k", "--", "true"]);
    assert_eq!(done.code, 69, "{done:?}");
    assert!(done.stderr.contains("no more connections"), "{done:?}");
    let waiting = place.start(["run", "--store", &url, "k", "--", "true"]);
    waiting.wait_for_stderr("the server takes no more connections; waited");
    server.sql("ALTER ROLE app CONNECTION LIMIT -1");
    assert_eq!(waiting.done().code, 0);
}

fn what_the_server_repeats_of_a_row_is_not_repeated(store: Store) {
    let server = Postgres::start();
    let (place, url) = (Place::new(store), server.url());
    assert_eq!(place.run(["migrate", "--store", &url]).code, 0);
    for (code, raised) in [("XX001", "MESSAGE = 'no', DETAIL = 's3cret'"), ("22P02", "MESSAGE = 's3cret'")] {
        server.sql(&format!(
            "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}', {raised}; END $$;
             CREATE OR REPLACE TRIGGER fail BEFORE INSERT ON syncguard_locks EXECUTE FUNCTION fail()"
        ));
        for command in [&["run", "-nv", "k", "--", "true"][..], &["run", "-n", "--json", "k", "--", "true"]] {
            let done = place.run([&command[..1], &["--store", &url], &command[1..]].concat());
            assert_eq!(done.code, 78, "{done:?}");
            assert!(done.stderr.contains(code) && !done.stderr.contains("s3cret"), "{done:?}");
        }
    }
}

fn the_command_hears_no_password_however_it_is_spelled(store: Store) {
    let server = Postgres::builder().password("s3cret@x").start();
    let (place, address) = (Place::new(store), server.address());
    let public = format!("postgres://{address}/postgres");
    let url = format!("{public}?user=postgres&password=s3cret%40x");
    assert_eq!(place.run(["migrate", "--store", &url]).code, 0);
    for url in [
        format!("postgres://postgres:s3cret%40x@{address}/postgres"),
        format!("{public}?user=postgres&p%61ssword=s3cret%40x"),
        format!("{public}?us%65r=postgres&password=s3cret@x"),
        format!("{public}?password=other&user=postgres&password=s3cr%65t%40x"),
    ] {
        let done = place.run(["run", "--store", &url, "k", "--", "sh", "-c", "echo $LEASEHOLD_STORE"]);
        assert_eq!((done.code, done.stdout.trim()), (0, public.as_str()), "{url}: {done:?}");
    }
}

fn a_bench_names_the_fences_that_it_may_not_delete(_: Store) {
    let (server, place, url) = with_room_for("40");
    server.sql("REVOKE DELETE ON syncguard_fence_counters FROM app");
    let done = place.run(["bench", "--json", "--keys", "3", "--for", "1s", "--store", &url]);
    let counters = |prefix: &str| {
        server.sql(&format!("SELECT count(*) FROM syncguard_fence_counters WHERE fence_key LIKE '%{prefix}%'"))
    };
    assert_eq!((done.code, counters("").as_str()), (0, "4"), "three keys, and one that is handed over: {done:?}");
    let measured: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(measured["fences_left"], 4);
    let said = done.events()[0]["message"].as_str().unwrap().to_owned();
    let (said, prefix) = (said.clone(), said.split('\'').nth(1).unwrap().to_owned());
    assert!(said.starts_with("up to 4 fence counters of keys that start with 'leasehold-bench:"), "{said}");
    assert_eq!(counters(&prefix), "4", "they can be found by that: {said}");
    assert_eq!(server.sql("SELECT count(*) FROM syncguard_locks"), "0");
}
