//! The line of those who wait for a lock.

use std::thread;

use serde_json::Value;
use test_servers::eventually;
use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    whoever_waits_is_told_its_place_and_is_served_in_turn,
    show_lists_the_line_in_order,
    whoever_gives_up_leaves_no_place,
    whoever_does_not_wait_passes_nobody_unless_told_to,
    nobody_is_overtaken_however_many_come_and_go,
];

const PROCESSES: usize = 8;
const HOLDS: usize = 4;

/// Takes a lock that nobody gives back by itself, and tells its id.
fn hold(place: &Place, key: &str) -> String {
    let done = place.run(["acquire", key, "--ttl", "10m", "--holder", "the holder"]);
    let grant: Value = serde_json::from_str(&done.stdout).unwrap();
    grant["lock_id"].as_str().unwrap().to_owned()
}

fn whoever_waits_is_told_its_place_and_is_served_in_turn(store: Store) {
    let place = Place::new(store);
    let id = hold(&place, "k");
    let mut waiters = Vec::new();
    for (number, name) in ["one", "two", "three"].into_iter().enumerate() {
        let json = if name == "three" { "--json" } else { "--no-command" };
        waiters.push(place.start(["run", json, "--holder", name, "k", "--", "sh", "-c", "echo $0 >> order", name]));
        eventually("it stands in line", || place.line("k").len() == number + 1);
    }
    waiters[0].wait_for_stderr("waiting for 'k': held by the holder since 20");
    waiters[0].wait_for_stderr("; next in line; waited ");
    waiters[1].wait_for_stderr("; second in line; waited ");
    waiters[2].wait_for_stderr("\"waiting\"");
    assert_eq!(place.run(["release", &id]).code, 0);
    let done: Vec<_> = waiters.into_iter().map(crate::support::Started::done).collect();
    assert!(done.iter().all(|done| done.code == 0), "{done:?}");
    let waiting = done[2].events().into_iter().find(|event| event["event"] == "waiting").unwrap();
    assert_eq!((&waiting["place"], &waiting["holders"], &waiting["mode"]), (&2.into(), &1.into(), &"exclusive".into()));
    assert_eq!(place.read("order"), "one\ntwo\nthree\n");
    assert_eq!(place.line("k"), [""; 0]);
}

fn show_lists_the_line_in_order(store: Store) {
    let place = Place::new(store);
    hold(&place, "k");
    let kinds = [("zoe", &["--meta", "order=17"][..]), ("adam", &["--shared"]), ("mia", &["--permits", "3"])];
    let mut waiters = Vec::new();
    for (number, (name, options)) in kinds.into_iter().enumerate() {
        waiters.push(place.start([&["run", "--holder", name], options, &["k", "--", "true"]].concat()));
        eventually("it stands in line", || place.line("k").len() == number + 1);
    }
    let shown = place.run(["show", "k"]).stdout;
    assert!(shown.starts_with("key         k\nholder      the holder\n"), "{shown}");
    let (_, line) = shown.split_once("\n\n").unwrap();
    let rows: Vec<_> = line.lines().collect();
    assert!(rows[0].starts_with("IN LINE  HOLDER  MODE         WAITING FOR  SINCE "), "{shown}");
    for (row, start) in rows[1..].iter().zip([
        "1        zoe     exclusive ",
        "2        adam    shared ",
        "3        mia     permit of 3 ",
    ]) {
        assert!(row.starts_with(start), "{shown}");
    }
    assert!(rows[1].ends_with("order=17") && rows[0].contains("PID") && rows[0].contains("COMMAND"), "{shown}");
    let shown: Value = serde_json::from_str(&place.run(["show", "--json", "k"]).stdout).unwrap();
    assert_eq!((&shown["holder"], &shown["waiting"]), (&"the holder".into(), &3.into()), "{shown}");
    assert_eq!(shown["holders"].as_array().unwrap().len(), 1, "{shown}");
    let modes = shown["waiters"].as_array().unwrap().iter().map(|waiter| waiter["mode"].as_str().unwrap());
    assert_eq!(modes.collect::<Vec<_>>(), ["exclusive", "shared", "permit"], "{shown}");
    assert_eq!((&shown["waiters"][2]["place"], &shown["waiters"][2]["permits"]), (&2.into(), &3.into()), "{shown}");
    assert_eq!(shown["waiters"][0]["metadata"]["pid"], waiters[0].id(), "{shown}");
    assert!(!shown.to_string().contains("lock_id"), "{shown}");
    let listed: Value = serde_json::from_str(&place.run(["ls", "--json"]).stdout).unwrap();
    assert_eq!((&listed["waiting"], &listed["mode"], &listed["slot"]), (&3.into(), &"exclusive".into(), &Value::Null));
    let table = place.run(["ls"]).stdout;
    assert!(table.lines().next().unwrap().starts_with("KEY  HOLDER      WAITING  HELD FOR"), "{table}");
    assert!(table.lines().nth(1).unwrap().starts_with("k    the holder  3 "), "{table}");
}

fn whoever_gives_up_leaves_no_place(store: Store) {
    let place = Place::new(store);
    hold(&place, "k");
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        for command in [&["run", "k", "--", "touch", "ran"][..], &["acquire", "k"], &["run", "--shared", "k", "true"]] {
            let waiter = place.start(command);
            eventually("it stands in line", || place.line("k").len() == 1);
            waiter.signal(name);
            assert_eq!(waiter.done().code, code, "{command:?}");
            assert_eq!(place.line("k"), [""; 0], "{name}: {command:?}");
        }
    }
    let done = place.run(["run", "--wait", "300ms", "k", "--", "touch", "ran"]);
    assert_eq!((done.code, place.line("k").len()), (75, 0), "{done:?}");
    assert!(!place.path("ran").exists());
}

fn whoever_does_not_wait_passes_nobody_unless_told_to(store: Store) {
    let place = Place::new(store);
    let script = "echo $LEASEHOLD_SLOT > \"$0\"; while [ ! -e go ]; do sleep 0.02; done";
    let holder = place.start(["run", "--permits", "2", "k", "--", "sh", "-c", script, "first"]);
    place.first_line("first");
    let waiter = place.start(["run", "--holder", "the waiter", "k", "--", "true"]);
    eventually("it stands in line", || place.line("k") == ["the waiter"]);
    let done = place.run(["run", "-n", "--permits", "2", "k", "--", "touch", "ran"]);
    assert_eq!(done.code, 75, "there is a permit, but somebody waits: {done:?}");
    assert!(done.stderr.contains("'k' is held by "), "{done:?}");
    assert!(done.stderr.contains(", which leaves room, but somebody is before us in line"), "{done:?}");
    assert!(!done.stderr.contains("for at most"), "the holder is not what it waits for: {done:?}");
    let unfair = place.run(["run", "-n", "--unfair", "--permits", "2", "k", "--", "touch", "ran"]);
    assert_eq!(unfair.code, 0, "{unfair:?}");
    assert!(place.path("ran").exists());
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!((holder.done().code, waiter.done().code), (0, 0));
}

/// Each is told who had the lock when it came, and how many were before it: so many are served in
/// between.
fn nobody_is_overtaken_however_many_come_and_go(store: Store) {
    let place = Place::new(store);
    let hold =
        |name: &str| place.run(["run", "--json", "--holder", name, "k", "--", "sh", "-c", "echo $0 >> order", name]);
    let done: Vec<_> = thread::scope(|scope| {
        let hold = &hold;
        let names = |process: usize| (0..HOLDS).map(move |number| format!("{process}-{number}"));
        let process = |process| move || names(process).map(|name| (hold(&name), name)).collect::<Vec<_>>();
        let processes: Vec<_> = (0..PROCESSES).map(|number| scope.spawn(process(number))).collect();
        processes.into_iter().flat_map(|process| process.join().unwrap()).collect()
    });
    let order = place.read("order");
    let turn_of = |name: &str| order.lines().position(|served| served == name).unwrap();
    assert_eq!(order.lines().count(), PROCESSES * HOLDS);
    let mut waited = 0;
    for (done, name) in done {
        assert_eq!(done.code, 0, "{done:?}");
        let Some(event) = done.events().into_iter().find(|event| event["event"] == "waiting") else { continue };
        waited += 1;
        let number = |field: &str| usize::try_from(event[field].as_u64().unwrap()).unwrap();
        let turn = turn_of(event["holder"].as_str().unwrap()) + number("place") + number("holders");
        // Who is called and does not answer for two seconds, as on a machine without a moment to
        // spare, is passed by those behind it.
        assert!(turn_of(&name) <= turn + PROCESSES, "{name} was to be number {turn}: {event}\n{order}");
    }
    assert!(waited > PROCESSES, "{waited} had to wait");
}
