use std::os::unix::fs::PermissionsExt;

use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::{Done, Place};

pub(crate) const CASES: &[Case] = blocking_cases![
    each_exit_code_is_as_documented,
    a_lock_of_somebody_else_is_75_or_what_the_user_wants,
    a_limit_of_open_files_is_named_wherever_it_is_met,
];

/// Those that no store has to do with.
pub(crate) const ARGUMENTS: &[Case] = blocking_cases![wrong_arguments_are_events_too];

/// Every exit code that does not need a second process, by what was typed.
fn each_exit_code_is_as_documented(store: Store) {
    let place = Place::new(store);
    let not_a_database = format!("sqlite:{}", place.script("text.db", &"not a database\n".repeat(100)).display());
    let no_directory = format!("sqlite:{}", place.path("missing/locks.db").display());
    let script = place.script("plain.sh", "exit 0\n");
    let script = script.to_str().unwrap();
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o644)).unwrap();
    let id = "AAAAAAAAAAAAAAAAAAAAAA";
    let long_note = format!("note={}", "x".repeat(5000));
    let table: &[(i32, &[&str])] = &[
        (0, &["run", "k", "--", "true"]),
        (0, &["--help"]),
        (0, &["run", "--help"]),
        (0, &["--version"]),
        (0, &["ls"]),
        (0, &["doctor"]),
        (0, &["completions", "bash"]),
        (1, &["run", "k", "--", "false"]),
        (1, &["show", "k"]),
        (1, &["force-release", "k", "--yes"]),
        (42, &["run", "k", "--", "sh", "-c", "exit 42"]),
        (255, &["run", "k", "--", "sh", "-c", "exit 255"]),
        (64, &[]),
        (64, &["nonsense"]),
        (64, &["run", "--at-least", "18446744073709551615s", "k", "--", "true"]),
        (64, &["run", "--grace", "18446744073709551615s", "k", "--", "true"]),
        (64, &["run", "--at-least", "3s", "--max-hold", "2s", "k", "--", "true"]),
        (64, &["acquire", "-n", "--steal-same-holder", "k"]),
        (64, &["run"]),
        (64, &["run", "k"]),
        (64, &["run", "k", "--"]),
        (64, &["run", "--nonsense", "k", "--", "true"]),
        (64, &["run", "", "--", "true"]),
        (64, &["run", "k", "--ttl", "0s", "--", "true"]),
        (64, &["run", "k", "--ttl", "30", "--", "true"]),
        (64, &["run", "k", "--wait", "soon", "--", "true"]),
        (64, &["run", "k", "--wait", "1s", "-n", "--", "true"]),
        (64, &["run", "k", "-q", "-v", "--", "true"]),
        (64, &["run", "k", "-E", "256", "--", "true"]),
        (64, &["run", "k", "--max-hold", "0s", "--", "true"]),
        (64, &["run", "k", "--holder", "", "--", "true"]),
        (64, &["run", "k", "--meta", "novalue", "--", "true"]),
        (64, &["run", "k", "--meta", &long_note, "--", "true"]),
        (64, &["run", "k", "--proceed-unlocked", "--", "true"]),
        (64, &["run", "k", "--permits", "0", "--", "true"]),
        (64, &["run", "k", "--permits", "many", "--", "true"]),
        (64, &["run", "k", "--shared", "--permits", "2", "--", "true"]),
        (64, &["run", "--all", "--shared", "k", "l", "--", "true"]),
        (64, &["run", "--all", "--permits", "2", "k", "l", "--", "true"]),
        (64, &["run", "--all", "--steal-same-holder", "k", "l", "--", "true"]),
        (64, &["run", "--all", "--steal-after", "1s", "k", "l", "--", "true"]),
        (64, &["run", "--all", "k", "k", "--", "true"]),
        (64, &["run", "--all", "k", "", "--", "true"]),
        (64, &["force-release", "--yes", "--fence", "7", "k"]),
        (64, &["extend", "short"]),
        (64, &["release", "short"]),
        (64, &["force-release", "k"]),
        (64, &["completions", "tcl"]),
        (69, &["run", "k", "--wait", "0s", "--store", "sqlite:/dev/full", "--", "true"]),
        (78, &["run", "k", "--store", &not_a_database, "--", "true"]),
        (78, &["run", "k", "--store", &no_directory, "--", "true"]),
        (78, &["run", "k", "--store", "nonsense", "--", "true"]),
        (78, &["run", "k", "--store", "gopher://host", "--", "true"]),
        (78, &["doctor", "--store", &not_a_database]),
        (79, &["extend", id]),
        (79, &["release", id]),
        (79, &["release", &format!("{id},{id}")]),
        (126, &["run", "k", "--", "/"]),
        (126, &["run", "k", "--", script]),
        (127, &["run", "k", "--", "leasehold-no-such-program"]),
        (127, &["run", "k", "--", "/no/such/program"]),
        (130, &["run", "k", "--", "sh", "-c", "kill -INT $$"]),
        (137, &["run", "k", "--", "sh", "-c", "kill -KILL $$"]),
        (143, &["run", "k", "--", "sh", "-c", "kill -TERM $$"]),
    ];
    for (code, arguments) in table {
        let done = place.run(*arguments);
        assert_eq!(done.code, *code, "{arguments:?}: {done:?}");
        if (64..=79).contains(code) || *code == 126 || *code == 127 {
            check_message(&done.stderr, arguments);
        }
    }
    assert!(!place.is_held("k"), "whatever happened, the lock was released");
}

/// One line, perhaps with a hint below.
fn check_message(stderr: &str, arguments: &[&str]) {
    let lines: Vec<_> = stderr.lines().collect();
    match lines[..] {
        [] => assert_eq!(arguments[0], "doctor", "its verdict is on stdout"),
        [message] => assert!(message.starts_with("leasehold: "), "{arguments:?}: {stderr}"),
        [message, hint] => {
            assert!(message.starts_with("leasehold: ") && hint.starts_with("hint: "), "{arguments:?}: {stderr}");
        }
        _ => panic!("{arguments:?} says more than it should: {stderr}"),
    }
}

fn a_lock_of_somebody_else_is_75_or_what_the_user_wants(store: Store) {
    let place = Place::new(store);
    assert_eq!(place.run(["acquire", "k"]).code, 0);
    for (code, arguments) in [
        (75, &["run", "-n", "k", "--", "true"][..]),
        (75, &["run", "--wait", "20ms", "k", "--", "true"]),
        (9, &["run", "-n", "-E", "9", "k", "--", "true"]),
        (0, &["run", "-nv", "--conflict-exit-code", "0", "k", "--", "false"]),
        (75, &["acquire", "-n", "k"]),
        (9, &["acquire", "-n", "-E9", "k"]),
    ] {
        let done = place.run(arguments);
        assert_eq!(done.code, code, "{arguments:?}: {done:?}");
        assert!(done.stderr.contains("'k' is held by "), "{}", done.stderr);
    }
}

fn wrong_arguments_are_events_too(store: Store) {
    let place = Place::new(store);
    for arguments in [
        &["nonsense", "--json"][..],
        &["run", "--json"],
        &["run", "--json", "--nonsense", "k", "--", "true"],
        &["run", "k", "--ttl", "30", "--json", "--", "true"],
        &["run", "k", "-q", "-v", "--json", "--", "true"],
        &["run", "--json", "--proceed-unlocked", "k", "--", "true"],
        &["release", "--json", "short"],
    ] {
        let done = place.run(arguments);
        let events = done.events();
        assert_eq!((done.code, events.len(), done.stderr.lines().count()), (64, 1, 1), "{arguments:?}: {done:?}");
        assert_eq!((&events[0]["event"], &events[0]["exit_code"]), (&"error".into(), &64.into()), "{done:?}");
        assert!(!events[0]["message"].as_str().unwrap().is_empty(), "{done:?}");
    }
    let of_the_command = place.run(["run", "--nonsense", "k", "--", "true", "--json"]);
    assert!(of_the_command.stderr.starts_with("leasehold: "), "{of_the_command:?}");
}

/// However few files may be opened, the command works or says that they are too few.
fn a_limit_of_open_files_is_named_wherever_it_is_met(store: Store) {
    let place = Place::new(store);
    let leasehold = place.leasehold([""; 0]).get_program().to_owned();
    let run = |limit: usize, arguments: &[&str]| {
        let mut limited = std::process::Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]).arg(&leasehold).args(arguments);
        let done = Done::from(limited.env("LEASEHOLD_STORE", place.store()).output().unwrap());
        let said = format!("{}{}", done.stdout, done.stderr);
        assert!(done.code == 0 || said.contains("files"), "{limit}, {arguments:?}: {done:?}");
        assert!(!said.contains("panicked"), "{limit}, {arguments:?}: {done:?}");
        done.code
    };
    // With less the program is not even loaded.
    let codes: Vec<_> = (5..16).chain([40]).map(|limit| run(limit, &["run", "-n", "k", "--", "true"])).collect();
    assert!(codes.first() == Some(&69) && codes.last() == Some(&0), "{codes:?}");
    assert_ne!(run(10, &["doctor"]), 0);
}
