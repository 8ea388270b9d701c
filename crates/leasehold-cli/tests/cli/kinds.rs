//! Locks that several hold: readers, and permits.

use serde_json::Value;
use test_servers::eventually;
use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::{Place, Started};

pub(crate) const CASES: &[Case] = blocking_cases![
    readers_run_together_and_neither_they_nor_a_writer_starve,
    permits_have_slots_and_the_next_one_waits_for_a_free_one,
    a_listing_shows_modes_if_there_is_more_than_one,
    a_forced_release_of_one_grant_spares_the_others,
    watch_tells_of_all_who_hold_a_key_together,
    a_shared_lock_is_taken_extended_and_given_back_by_scripts,
];

/// Says its slot in a file of its name, and waits for another.
const SCRIPT: &str = "echo ${LEASEHOLD_SLOT-none} > \"$0\"; while [ ! -e \"go-$0\" ]; do sleep 0.02; done";

/// Starts a command that runs until `go` is called with its name.
fn start(place: &Place, option: &[&str], name: &str) -> Started {
    place.start([&["run", "--holder", name], option, &["k", "--", "sh", "-c", SCRIPT, name]].concat())
}

fn go(place: &Place, name: &str) {
    std::fs::write(place.path(&format!("go-{name}")), "").unwrap();
}

fn readers_run_together_and_neither_they_nor_a_writer_starve(store: Store) {
    let place = Place::new(store);
    let readers = ["one", "two"].map(|name| {
        let reader = start(&place, &["--shared"], name);
        assert_eq!(place.first_line(name), "none", "readers have no slots");
        reader
    });
    let writer = place.start(["run", "--json", "--holder", "writer", "k", "--", "sh", "-c", "echo writer >> order"]);
    eventually("the writer waits", || place.line("k") == ["writer"]);
    let late = place.start(["run", "--shared", "--holder", "late", "k", "--", "sh", "-c", "echo late >> order"]);
    late.wait_for_stderr("waiting for 'k': held by one and 1 more since 20");
    late.wait_for_stderr("; second in line; ");
    assert_eq!(place.run(["run", "-n", "--shared", "k", "--", "true"]).code, 75, "it would pass the writer");
    go(&place, "one");
    go(&place, "two");
    assert_eq!(readers.map(|reader| reader.done().code), [0, 0]);
    let writer = writer.done();
    assert_eq!((writer.code, late.done().code), (0, 0));
    let waiting = writer.events().into_iter().find(|event| event["event"] == "waiting").unwrap();
    assert_eq!((&waiting["holders"], &waiting["mode"]), (&2.into(), &"shared".into()), "{waiting}");
    assert_eq!(place.read("order"), "writer\nlate\n");
}

fn permits_have_slots_and_the_next_one_waits_for_a_free_one(store: Store) {
    let place = Place::new(store);
    let mut running: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .enumerate()
        .map(|(slot, name)| {
            let started = start(&place, &["--permits", "3"], name);
            assert_eq!(place.first_line(name), slot.to_string());
            started
        })
        .collect();
    let fourth = start(&place, &["--permits", "3", "-v"], "d");
    fourth.wait_for_stderr("held by a and 2 more since 20");
    let table = place.run(["ls"]).stdout;
    for slot in ["permit 0/3", "permit 1/3", "permit 2/3"] {
        assert!(table.contains(slot), "{table}");
    }
    go(&place, "b");
    assert_eq!(running.remove(1).done().code, 0);
    assert_eq!(place.first_line("d"), "1", "the lowest that is free");
    fourth.wait_for_stderr(", slot 1, in ");
    ["a", "c", "d"].into_iter().for_each(|name| go(&place, name));
    running.push(fourth);
    assert!(running.into_iter().all(|running| running.done().code == 0));
    let plain = place.run(["run", "k", "--", "sh", "-c", "echo ${LEASEHOLD_SLOT-none}"]);
    assert_eq!(plain.stdout, "none\n");
}

fn a_listing_shows_modes_if_there_is_more_than_one(store: Store) {
    let place = Place::new(store);
    place.run(["acquire", "plain", "--holder", "me"]);
    let titles = || place.run(["ls"]).stdout.lines().next().unwrap().to_owned();
    assert!(titles().starts_with("KEY    HOLDER  HELD FOR"), "{}", titles());
    for name in ["one", "two"] {
        assert_eq!(place.run(["acquire", "--shared", "read", "--holder", name]).code, 0);
    }
    assert!(titles().starts_with("KEY    HOLDER  MODE       HELD FOR"), "{}", titles());
    let table = place.run(["ls"]).stdout;
    let rows: Vec<_> = table.lines().skip(1).map(|row| row.split_whitespace().take(3).collect::<Vec<_>>()).collect();
    assert_eq!(rows, [["plain", "me", "exclusive"], ["read", "one", "shared"], ["read", "two", "shared"]]);
    let shown = place.run(["show", "read"]).stdout;
    let (one, two) = shown.split_once("\n\n").unwrap();
    assert!(one.contains("holder      one\nmode        shared\n"), "{shown}");
    assert!(two.contains("holder      two\nmode        shared\n"), "{shown}");
    let shown: Value = serde_json::from_str(&place.run(["show", "--json", "read"]).stdout).unwrap();
    assert_eq!((&shown["holder"], &shown["holders"][1]["holder"]), (&"one".into(), &"two".into()), "{shown}");
}

fn a_forced_release_of_one_grant_spares_the_others(store: Store) {
    let place = Place::new(store);
    let fences = ["one", "two", "three"].map(|name| {
        let done = place.run(["acquire", "--shared", "k", "--holder", name]);
        let grant: Value = serde_json::from_str(&done.stdout).unwrap();
        grant["fence"].as_str().unwrap().to_owned()
    });
    let holders = || {
        let shown: Value = serde_json::from_str(&place.run(["show", "--json", "k"]).stdout).unwrap();
        let holders = shown["holders"].as_array().unwrap().iter();
        holders.map(|lock| lock["holder"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let done = place.run(["force-release", "--yes", "--fence", &fences[1], "k"]);
    assert!(done.code == 0 && done.stderr.contains("released 'k', which two held"), "{done:?}");
    assert_eq!(holders(), ["one", "three"]);
    let done = place.run(["force-release", "--yes", "--fence", &fences[1], "k"]);
    assert!(done.code == 1 && done.stderr.contains("nobody holds 'k' with the fence"), "{done:?}");
    assert!(done.stderr.contains("hint: leasehold show k tells"), "{done:?}");
    assert_eq!(holders(), ["one", "three"]);
    let done = place.run(["force-release", "--yes", "k"]);
    assert!(done.code == 0 && done.stderr.contains("released 'k', which 2 held: one and three"), "{done:?}");
    assert!(!place.is_held("k"));
    assert_eq!(place.run(["force-release", "--yes", "k"]).code, 1);
    assert_eq!(place.run(["force-release", "--yes", "--fence", "12", "k"]).code, 64);
}

fn watch_tells_of_all_who_hold_a_key_together(store: Store) {
    let place = Place::new(store);
    let watch = place.start(["watch"]);
    let ids = ["one", "two"].map(|name| {
        let done = place.run(["acquire", "--shared", "k", "--holder", name]);
        eventually("watch has told of it", || watch.stdout().contains(&format!("held   k  {name}")));
        let grant: Value = serde_json::from_str(&done.stdout).unwrap();
        grant["lock_id"].as_str().unwrap().to_owned()
    });
    assert_eq!(place.run(["release", &ids[0]]).code, 0);
    eventually("watch has told of it", || watch.stdout().contains("freed  k  one"));
    watch.signal("INT");
    let told = watch.done().stdout;
    let told: Vec<_> = told.lines().map(|line| line.rsplit_once("  ").unwrap().0).collect();
    assert_eq!(told, ["held   k  one", "held   k  two", "freed  k  one"]);
}

fn a_shared_lock_is_taken_extended_and_given_back_by_scripts(store: Store) {
    let place = Place::new(store);
    let take = |options: &[&str]| -> Value {
        let done = place.run([&["acquire"], options, &["k"]].concat());
        serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"))
    };
    let (one, two) = (take(&["--shared"]), take(&["--shared"]));
    assert_eq!((&one["mode"], &one["slot"], &one["permits"]), (&"shared".into(), &Value::Null, &Value::Null));
    let ids = [&one, &two].map(|grant| grant["lock_id"].as_str().unwrap());
    assert_eq!(place.run(["extend", "--ttl", "1h", &ids.join(",")]).code, 0);
    assert_eq!(place.run(["release", ids[0]]).code, 0);
    let done = place.run(["release", &ids.join(",")]);
    assert!(done.code == 79 && done.stderr.contains("1 of 2 locks are not there any more"), "{done:?}");
    assert!(!place.is_held("k"), "the other was given back");
    let permit = take(&["--permits", "2"]);
    assert_eq!((&permit["mode"], &permit["slot"], &permit["permits"]), (&"permit".into(), &0.into(), &2.into()));
    assert_eq!(take(&["--permits", "2"])["slot"], 1);
}
