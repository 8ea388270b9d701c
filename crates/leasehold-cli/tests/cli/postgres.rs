use test_servers::Postgres;
use test_support::{Case, blocking_cases};

use crate::Store;
use crate::servers::{check_exit_codes, unused_address};
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    each_trouble_with_the_server_has_its_exit_code_and_keeps_the_password,
    what_migrate_prints_does_the_same_when_somebody_else_runs_it,
    what_the_server_repeats_of_a_row_is_not_repeated,
    the_command_hears_no_password_however_it_is_spelled,
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
    assert_eq!(place.run(["migrate", "--store", &url]).code, 0);
    assert_eq!(place.run(["run", "--store", &url, "k", "--", "true"]).code, 0);
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
