//! A `run` inside a `run`.

use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    a_run_inside_a_run_of_the_same_key_says_so_instead_of_waiting_for_ever,
    a_lock_that_the_outer_run_has_no_more_is_waited_for_or_taken,
    another_key_and_another_store_are_free,
    a_lock_that_can_be_shared_with_the_outer_run_is_taken_whoever_waits_for_it,
    a_lock_that_can_never_come_is_not_waited_for_however_it_is_held_outside,
];

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// Runs `script` under the lock `outer`, with `$LEASEHOLD` and `$LEASEHOLD_STORE`.
fn under_outer(place: &Place, script: &str) -> crate::support::Done {
    under(place, &[], script)
}

/// As [`under_outer`], with more options.
fn under(place: &Place, options: &[&str], script: &str) -> crate::support::Done {
    let mut command = place.leasehold([&["run"], options, &["outer", "--", "sh", "-c", script]].concat());
    command.env("LEASEHOLD", LEASEHOLD).output().unwrap().into()
}

fn a_run_inside_a_run_of_the_same_key_says_so_instead_of_waiting_for_ever(store: Store) {
    let place = Place::new(store);
    for (code, inner) in [
        (75, r#"exec "$LEASEHOLD" run outer -- touch ran"#),
        (75, r#"exec "$LEASEHOLD" run --wait 1h outer -- touch ran"#),
        (9, r#"exec "$LEASEHOLD" run -n -E 9 outer -- touch ran"#),
        (75, r#"exec "$LEASEHOLD" acquire outer"#),
        (75, r#"exec "$LEASEHOLD" run between -- "$LEASEHOLD" run outer -- touch ran"#),
    ] {
        let done = under_outer(&place, inner);
        assert_eq!(done.code, code, "{inner}: {done:?}");
        assert!(done.stderr.contains("'outer' is held by the `leasehold run` that this is part of"), "{done:?}");
        assert!(done.stderr.contains("hint: ") && !done.stderr.contains("waiting"), "{done:?}");
    }
    assert!(!place.path("ran").exists() && !place.is_held("outer"));
}

fn a_lock_that_the_outer_run_has_no_more_is_waited_for_or_taken(store: Store) {
    let place = Place::new(store);
    // What it inherits is all that is left of the outer run.
    let inherited = under_outer(&place, "printf %s \"$LEASEHOLD_HELD\"").stdout;
    assert!(inherited.contains("outer"), "{inherited}");
    let inner = || {
        let mut command = place.leasehold(["run", "outer", "--", "echo", "ran"]);
        command.env("LEASEHOLD_HELD", &inherited);
        command
    };
    assert_eq!(inner().output().unwrap().stdout, b"ran\n", "it is free");
    let grant: serde_json::Value = serde_json::from_str(&place.run(["acquire", "outer"]).stdout).unwrap();
    let waiting = crate::support::Started::new(&mut inner(), &place);
    waiting.wait_for_stderr("waiting for 'outer'");
    assert_eq!(place.run(["release", grant["lock_id"].as_str().unwrap()]).code, 0);
    assert_eq!(waiting.done().stdout, "ran\n", "it was somebody else's");
}

fn another_key_and_another_store_are_free(store: Store) {
    let place = Place::new(store);
    let inner = r#""$LEASEHOLD" run inner -- "$LEASEHOLD" run --store sqlite:other.db outer -- echo ran"#;
    let done = under_outer(&place, inner);
    assert_eq!((done.code, done.stdout.as_str()), (0, "ran\n"), "{done:?}");
    for nonsense in ["", "{", "{}", "[1]", "null"] {
        let mut command = place.leasehold(["run", "outer", "--", "echo", "ran"]);
        assert_eq!(command.env("LEASEHOLD_HELD", nonsense).output().unwrap().stdout, b"ran\n", "{nonsense}");
    }
}

/// Whoever stands in line for it waits for the outer run, and so for the inner one.
fn a_lock_that_can_be_shared_with_the_outer_run_is_taken_whoever_waits_for_it(store: Store) {
    let place = Place::new(store);
    let inner = r#"
env -u LEASEHOLD_HELD "$LEASEHOLD" run --holder writer outer -- touch written &
until "$LEASEHOLD" show outer | grep -q writer; do sleep 0.02; done
"$LEASEHOLD" run $OPTION outer -- echo ran
"#;
    for option in ["--shared", "--permits=2"] {
        let mut command = place.leasehold(["run", option, "outer", "--", "sh", "-c", inner]);
        let done: crate::support::Done =
            command.env("LEASEHOLD", LEASEHOLD).env("OPTION", option).output().unwrap().into();
        assert_eq!((done.code, done.stdout.as_str()), (0, "ran\n"), "{option}: {done:?}");
        test_servers::eventually("the writer had its turn", || place.path("written").exists());
        std::fs::remove_file(place.path("written")).unwrap();
    }
}

fn a_lock_that_can_never_come_is_not_waited_for_however_it_is_held_outside(store: Store) {
    let place = Place::new(store);
    // Somebody who has it for longer is seen first.
    let older = place.start(["run", "--shared", "outer", "--", "sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"]);
    test_servers::eventually("it is held", || place.is_held("outer"));
    let shared: &[(&[&str], &str)] = &[
        (&["--shared"], r#"exec "$LEASEHOLD" run outer -- touch ran"#),
        (&["--shared"], r#"exec "$LEASEHOLD" run --permits 9 outer -- touch ran"#),
        (&["--shared"], r#"exec "$LEASEHOLD" run --all free outer -- touch ran"#),
    ];
    let others: &[(&[&str], &str)] = &[
        (&["--permits", "1"], r#"exec "$LEASEHOLD" run --permits 1 outer -- touch ran"#),
        (&["--permits", "2"], r#"exec "$LEASEHOLD" run --shared outer -- touch ran"#),
        (&[], r#"exec "$LEASEHOLD" run --shared outer -- touch ran"#),
        (&["--all", "another"], r#"exec "$LEASEHOLD" run outer -- touch ran"#),
        (&["--all", "another"], r#"exec "$LEASEHOLD" run --all free outer -- touch ran"#),
    ];
    let check = |cases: &[(&[&str], &str)]| {
        for (options, inner) in cases {
            let done = under(&place, options, inner);
            assert_eq!(done.code, 75, "{options:?} {inner}: {done:?}");
            assert!(done.stderr.contains("'outer' is held by the `leasehold run` that this is part of"), "{done:?}");
        }
    };
    check(shared);
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(older.done().code, 0);
    check(others);
    assert!(!place.path("ran").exists());
}
