use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    a_lock_can_be_taken_extended_and_given_back_by_scripts,
    a_lock_that_nobody_could_be_told_of_is_released,
    a_command_that_extends_its_lock_does_not_make_it_end_earlier,
];

fn a_lock_can_be_taken_extended_and_given_back_by_scripts(store: Store) {
    let place = Place::new(store);
    let done = place.run(["acquire", "k", "--ttl", "1m", "--holder", "me"]);
    let grant: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let mut fields: Vec<_> = grant.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    let ours = ["acquired_at_ms", "expires_at_ms", "fence", "holder", "key", "lock_id", "mode", "permits", "slot"];
    assert_eq!(fields, ours);
    assert_eq!((&grant["key"], &grant["holder"]), (&"k".into(), &"me".into()));
    let lasts = grant["expires_at_ms"].as_u64().unwrap() - grant["acquired_at_ms"].as_u64().unwrap();
    assert_eq!(lasts, 60_000);

    let id = grant["lock_id"].as_str().unwrap();
    let expires = || {
        let shown: serde_json::Value = serde_json::from_str(&place.run(["show", "--json", "k"]).stdout).unwrap();
        shown["expires_at_ms"].as_u64().unwrap()
    };
    let before = expires();
    assert_eq!(place.run(["extend", id, "--ttl", "10m"]).code, 0);
    assert!(expires() > before + 500_000);
    let mut by_environment = place.leasehold(["release"]);
    assert_eq!(by_environment.env("LEASEHOLD_LOCK_ID", id).status().unwrap().code(), Some(0));
    assert!(!place.is_held("k"));
    for command in ["extend", "release"] {
        let done = place.run([command, id]);
        assert_eq!(done.code, 79);
        assert!(done.stderr.contains("not there any more"), "{}", done.stderr);
    }
}

fn a_lock_that_nobody_could_be_told_of_is_released(store: Store) {
    let place = Place::new(store);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = place.leasehold(["acquire", "k"]).stdout(full).stderr(std::process::Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(69));
    assert!(!place.is_held("k"));
}

fn a_command_that_extends_its_lock_does_not_make_it_end_earlier(store: Store) {
    let place = Place::new(store);
    let left =
        |shown: &str| serde_json::from_str::<serde_json::Value>(shown).unwrap()["expires_in_ms"].as_u64().unwrap();
    // By whoever knows it, and by the command that runs under it.
    let done = place.run(["acquire", "k", "--ttl", "10m"]);
    let grant: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let id = grant["lock_id"].as_str().unwrap();
    assert_eq!(place.run(["extend", id, "--ttl", "2s"]).code, 0);
    assert!(left(&place.run(["show", "--json", "k"]).stdout) > 300_000);
    assert_eq!(place.run(["extend", id, "--ttl", "1h"]).code, 0);
    assert!(left(&place.run(["show", "--json", "k"]).stdout) > 1_000_000);
    assert_eq!(place.run(["release", id]).code, 0);
    let script = r#""$0" extend --ttl 2s && "$0" show --json k > shown; "$0" release && "$0" show k || exit 4"#;
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let done = place.run(["run", "--ttl", "10m", "k", "--", "sh", "-c", script, leasehold]);
    assert_eq!(done.code, 4, "it gave its lock back, and went on: {done:?}");
    assert!(left(&place.read("shown")) > 300_000, "{}", place.read("shown"));
    assert!(!place.is_held("k"));
}
