//! Several locks that are taken together.

use serde_json::Value;
use test_servers::{eventually, is_alive};
use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::{Done, Place};

pub(crate) const CASES: &[Case] = blocking_cases![
    several_locks_are_taken_together_or_not_at_all,
    the_command_finds_all_its_locks_in_its_environment,
    the_command_extends_and_gives_back_all_its_locks_or_one_of_them,
    the_loss_of_one_lock_stops_the_command,
    who_waits_for_several_holds_none_and_leaves_nothing_behind,
];

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

fn take(place: &Place, key: &str) -> String {
    let done = place.run(["acquire", key, "--ttl", "10m", "--holder", "the holder"]);
    let grant: Value = serde_json::from_str(&done.stdout).unwrap();
    grant["lock_id"].as_str().unwrap().to_owned()
}

/// The keys that are held, with their fences.
fn held(place: &Place) -> Vec<(String, String)> {
    let stdout = place.run(["ls", "--json"]).stdout;
    let locks = stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    locks.map(|lock| ["key", "fence"].map(|name| lock[name].as_str().unwrap().to_owned()).into()).collect()
}

fn keys(place: &Place) -> Vec<String> {
    held(place).into_iter().map(|(key, _)| key).collect()
}

fn several_locks_are_taken_together_or_not_at_all(store: Store) {
    let place = Place::new(store);
    let id = take(&place, "b");
    let done = place.run(["run", "-n", "--all", "c", "b", "a", "--", "touch", "ran"]);
    assert_eq!(done.code, 75, "{done:?}");
    assert!(done.stderr.contains("'b' is held by the holder since 20"), "{done:?}");
    assert_eq!(keys(&place), ["b"]);
    let waiting = place.start(["run", "--json", "--all", "c", "b", "a", "--", "touch", "ran"]);
    waiting.wait_for_stderr("\"waiting\"");
    assert_eq!(keys(&place), ["b"], "it holds nothing while it waits");
    assert!(!place.path("ran").exists());
    assert_eq!(place.run(["release", &id]).code, 0);
    let done = waiting.done();
    assert_eq!(done.code, 0, "{done:?}");
    let events = done.events();
    let all: Value = ["c", "b", "a"].map(Value::from).to_vec().into();
    assert_eq!((&events[0]["event"], &events[0]["key"]), (&"waiting".into(), &"b".into()), "{done:?}");
    assert_eq!((&events[1]["event"], &events[1]["key"]), (&"acquired".into(), &"c".into()), "{done:?}");
    assert!(events[..2].iter().all(|event| event["keys"] == all), "{done:?}");
    assert!(place.path("ran").exists() && keys(&place).is_empty());
}

fn the_command_finds_all_its_locks_in_its_environment(store: Store) {
    let place = Place::new(store);
    let script = "env > environment; while [ ! -e go ]; do sleep 0.02; done; touch ended";
    let running = place.start(["run", "--all", "c", "a b", "-", "--", "sh", "-c", script]);
    assert_eq!(running.done().code, 64, "a dash is no key");
    let running = place.start(["run", "--all", "c", "a b", "a", "--", "sh", "-c", script]);
    eventually("all are held", || keys(&place).len() == 3);
    place.first_line("environment");
    let held = held(&place);
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(running.done().code, 0);
    let environment = place.read("environment");
    let value = |name: &str| {
        let (_, rest) =
            environment.split_once(&format!("LEASEHOLD_{name}=")).unwrap_or_else(|| panic!("{environment}"));
        rest.to_owned()
    };
    assert!(value("KEY").starts_with("c\n"), "the first as it was typed: {environment}");
    assert!(value("KEYS").starts_with("c\na b\na\n"), "{environment}");
    let fence = value("FENCE")[..15].to_owned();
    assert!(held.iter().all(|(_, of)| *of == fence), "{held:?}, {fence}");
    let ids: Vec<_> = value("LOCK_ID").lines().next().unwrap().split(',').map(str::len).collect();
    assert_eq!(ids, [22, 22, 22]);
    let around: Vec<Value> = serde_json::from_str(value("HELD").lines().next().unwrap()).unwrap();
    let around: Vec<_> =
        around.iter().map(|lock| (lock["key"].as_str().unwrap(), lock["fence"].as_str().unwrap())).collect();
    assert_eq!(around, [("c", fence.as_str()), ("a b", &fence), ("a", &fence)]);
}

fn the_command_extends_and_gives_back_all_its_locks_or_one_of_them(store: Store) {
    let place = Place::new(store);
    let script = r#"
"$0" extend --ttl 1h || exit 1
for key in a b c; do "$0" show --json $key > shown-$key || exit 2; done
"$0" release ${LEASEHOLD_LOCK_ID%%,*} || exit 3
LEASEHOLD_STORE="$STORE" "$0" ls --json > after-one
"$0" release ${LEASEHOLD_LOCK_ID#*,} || exit 4
LEASEHOLD_STORE="$STORE" "$0" ls --json > after-all
"$0" release && exit 5
exit 42
"#;
    let mut command = place.leasehold(["run", "--json", "--all", "a", "b", "c", "--", "sh", "-c", script, LEASEHOLD]);
    // The command does not know the password of the store.
    let done = Done::from(command.env("STORE", place.store()).output().unwrap());
    assert_eq!(done.code, 42, "it went on without its locks: {done:?}");
    for key in ["a", "b", "c"] {
        let shown: Value = serde_json::from_str(&place.read(&format!("shown-{key}"))).unwrap();
        assert!(shown["expires_in_ms"].as_u64().unwrap() > 3_000_000, "{shown}");
    }
    assert_eq!((place.read("after-one").lines().count(), place.read("after-all").lines().count()), (2, 0));
    let released = done.event_names().iter().filter(|name| *name == "released").count();
    assert_eq!(released, 1, "when all of them are free: {done:?}");
}

fn the_loss_of_one_lock_stops_the_command(store: Store) {
    let place = Place::new(store);
    let script = "trap '' TERM\necho $$ > child\nwhile :; do sleep 0.02; done";
    let running = place.start(["run", "--all", "a", "b", "--", "sh", "-c", script]);
    let child = place.pid("child");
    assert_eq!(place.run(["force-release", "b", "--yes"]).code, 0);
    let done = running.done();
    assert_eq!(done.code, 79, "{done:?}");
    assert!(!is_alive(child) && keys(&place).is_empty(), "the other lock is free, too");
    // Also if it has given back one of them before.
    std::fs::remove_file(place.path("child")).unwrap();
    let script = format!("\"$0\" release ${{LEASEHOLD_LOCK_ID%%,*}}\n{script}");
    let running = place.start(["run", "--all", "a", "b", "--", "sh", "-c", &script, LEASEHOLD]);
    place.pid("child");
    assert_eq!(keys(&place), ["b"]);
    assert_eq!(place.run(["force-release", "b", "--yes"]).code, 0);
    assert_eq!(running.done().code, 79);
}

fn who_waits_for_several_holds_none_and_leaves_nothing_behind(store: Store) {
    let place = Place::new(store);
    take(&place, "b");
    let waiting = place.start(["run", "--all", "a", "b", "--", "true"]);
    waiting.wait_for_stderr("waiting for 'a' and 'b': 'b' is held by the holder since 20");
    waiting.signal("TERM");
    assert_eq!(waiting.done().code, 143);
    let done = place.run(["run", "--wait", "300ms", "--all", "a", "b", "--", "true"]);
    assert!(done.code == 75 && done.stderr.contains("'b' is held by the holder"), "{done:?}");
    let unlocked =
        place.run(["run", "-n", "--proceed-unlocked", "--all", "a", "b", "--", "sh", "-c", "echo $LEASEHOLD_KEYS"]);
    assert_eq!((unlocked.code, unlocked.stdout.as_str()), (0, "a b\n"), "{unlocked:?}");
    assert!(unlocked.stderr.contains("WITHOUT the locks 'a' and 'b': 'b' is held"), "{unlocked:?}");
    assert_eq!(keys(&place), ["b"]);
    assert_eq!((place.line("a").len(), place.line("b").len()), (0, 0));
}
