//! A `run` inside a `run`.

use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    a_run_inside_a_run_of_the_same_key_says_so_instead_of_waiting_for_ever,
    a_lock_that_the_outer_run_has_no_more_is_waited_for_or_taken,
    another_key_and_another_store_are_free,
];

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// Runs `script` under the lock `outer`, with `$LEASEHOLD` and `$LEASEHOLD_STORE`.
fn under_outer(place: &Place, script: &str) -> crate::support::Done {
    let mut command = place.leasehold(["run", "outer", "--", "sh", "-c", script]);
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
