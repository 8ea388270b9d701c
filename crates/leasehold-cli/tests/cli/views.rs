use test_servers::eventually;
use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    locks_are_listed_by_key_in_an_aligned_table,
    no_view_shows_a_lock_id,
    programs_get_an_object_per_line,
    show_tells_all_about_one_lock,
    watch_prints_what_changes_until_it_is_told_to_stop,
    watch_misses_no_lock_however_short,
    others_see_the_process_the_user_and_the_command_of_a_run,
    migrate_says_whether_there_was_anything_to_do,
    force_release_says_whose_lock_it_was,
    doctor_ends_with_a_verdict_and_leaves_nothing_behind,
];

fn three_locks(store: Store) -> Place {
    let place = Place::new(store);
    place.run(["acquire", "job:b", "--holder", "host/b", "--meta", "order=17", "--meta", "by=me"]);
    place.run(["acquire", "job:a\n\u{1b}[31m", "--holder", "host/a"]);
    place.run(["acquire", "other", "--holder", "host/c"]);
    place
}

fn locks_are_listed_by_key_in_an_aligned_table(store: Store) {
    let place = three_locks(store);
    let table = place.run(["ls"]).stdout;
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    for (line, start) in lines.iter().zip(["KEY ", "job:a\\n\\u{1b}[31m ", "job:b ", "other "]) {
        assert!(line.starts_with(start), "{table}");
    }
    let column = lines[0].find("HOLDER").unwrap();
    for (line, holder) in lines[1..].iter().zip(["host/a", "host/b", "host/c"]) {
        assert_eq!(&line[column..column + 6], holder, "{table}");
    }
    assert!(lines[2].ends_with("by=me order=17"), "{table}");
    assert_eq!(place.run(["ls", "job:"]).stdout.lines().count(), 3);
    let nothing = place.run(["ls", "nothing"]);
    assert_eq!((nothing.code, nothing.stdout.as_str(), nothing.stderr.as_str()), (0, "", "leasehold: no locks\n"));
    let nothing = place.run(["ls", "--json", "nothing"]);
    assert_eq!((nothing.stdout.as_str(), nothing.stderr.as_str()), ("", ""));
}

fn no_view_shows_a_lock_id(store: Store) {
    let place = Place::new(store);
    let grant: serde_json::Value = serde_json::from_str(&place.run(["acquire", "k"]).stdout).unwrap();
    let id = grant["lock_id"].as_str().unwrap();
    for arguments in [&["ls"][..], &["ls", "--json"], &["show", "k"], &["show", "--json", "k"]] {
        let done = place.run(arguments);
        assert!(done.stdout.contains('k') && !done.stdout.contains(id) && !done.stdout.contains("lock_id"));
    }
}

fn programs_get_an_object_per_line(store: Store) {
    let place = three_locks(store);
    let stdout = place.run(["ls", "--json"]).stdout;
    let locks: Vec<serde_json::Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(locks.len(), 3);
    assert_eq!(locks[0]["key"], "job:a\n\u{1b}[31m");
    assert_eq!(locks[1]["metadata"]["order"], "17");
    assert!(locks.iter().all(|lock| lock["fence"].as_str().unwrap().len() == 15 && lock["expires_in_ms"].is_u64()));
}

fn show_tells_all_about_one_lock(store: Store) {
    let place = three_locks(store);
    let stdout = place.run(["show", "job:b"]).stdout;
    for line in ["key         job:b", "holder      host/b", "metadata    by=me order=17"] {
        assert!(stdout.lines().any(|shown| shown == line), "{stdout}");
    }
}

fn watch_prints_what_changes_until_it_is_told_to_stop(store: Store) {
    let place = Place::new(store);
    place.run(["acquire", "k", "--holder", "first"]);
    let watch = place.start(["watch", "--json"]);
    eventually("watch sees it", || watch.stdout().contains("first"));
    place.run(["force-release", "k", "--yes"]);
    place.run(["acquire", "k", "--holder", "second"]);
    eventually("watch sees it", || watch.stdout().contains("second"));
    watch.signal("INT");
    let done = watch.done();
    assert_eq!(done.code, 130);
    let events: Vec<serde_json::Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen = events.iter().map(|event| (event["event"].as_str().unwrap(), event["holder"].as_str().unwrap()));
    assert_eq!(seen.collect::<Vec<_>>(), [("held", "first"), ("freed", "first"), ("held", "second")]);
}

fn watch_misses_no_lock_however_short(store: Store) {
    let place = Place::new(store);
    place.run(["acquire", "first", "--holder", "first"]);
    let watch = place.start(["watch", "--json"]);
    eventually("watch sees it", || watch.stdout().contains("first"));
    // From now on it hears of every grant.
    for number in 0..5 {
        let held = place.run(["run", "--holder", &format!("short-{number}"), "short", "--", "true"]);
        assert_eq!(held.code, 0, "{held:?}");
    }
    eventually("watch has told of all", || watch.stdout().matches(r#""event":"freed""#).count() == 5);
    watch.signal("INT");
    let events: Vec<serde_json::Value> =
        watch.done().stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let short = events.iter().filter(|event| event["key"] == "short");
    let seen: Vec<_> = short.map(|event| format!("{} {}", event["event"], event["holder"])).collect();
    let expected: Vec<_> =
        (0..5).flat_map(|number| ["held", "freed"].map(|what| format!("{what:?} \"short-{number}\""))).collect();
    assert_eq!(seen, expected);
}

fn others_see_the_process_the_user_and_the_command_of_a_run(store: Store) {
    let place = Place::new(store);
    let script = "echo $PPID > shim; while [ ! -e go ]; do sleep 0.02; done";
    let running = place.start(["run", "--meta", "user=me", "--meta", "order=17", "open", "--", "sh", "-c", script]);
    let secret = place.start(["run", "--no-command", "secret", "--", "sh", "-c", script]);
    eventually("both are held", || place.is_held("open") && place.is_held("secret"));
    let show =
        |key: &str| -> serde_json::Value { serde_json::from_str(&place.run(["show", "--json", key]).stdout).unwrap() };
    let metadata = show("open")["metadata"].clone();
    assert_eq!((&metadata["user"], &metadata["order"]), (&"me".into(), &"17".into()), "{metadata}");
    assert_eq!(metadata["command"], format!("sh -c '{script}'"), "{metadata}");
    assert_eq!(metadata["pid"], running.id(), "{metadata}");
    let metadata = show("secret")["metadata"].clone();
    assert!(metadata["pid"] == secret.id() && metadata["user"].is_string(), "{metadata}");
    assert_eq!(metadata.get("command"), None, "{metadata}");
    let table = place.run(["ls"]).stdout;
    for title in ["PID", "USER", "COMMAND", "METADATA"] {
        assert!(table.lines().next().unwrap().contains(title), "{table}");
    }
    assert!(table.contains("order=17") && !table.contains("user=me"), "{table}");
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!((running.done().code, secret.done().code), (0, 0));
}

fn migrate_says_whether_there_was_anything_to_do(store: Store) {
    let place = Place::new(store);
    let done = place.run(["migrate"]);
    assert!(done.code == 0 && done.stderr.starts_with("leasehold: nothing to do: "), "{done:?}");
    assert_eq!(place.run(["migrate", "--quiet"]).stderr, "");
    let done = place.run(["migrate", "--json"]);
    assert_eq!(done.event_names(), ["migrated"], "{done:?}");
}

fn force_release_says_whose_lock_it_was(store: Store) {
    let place = three_locks(store);
    let done = place.run(["force-release", "--yes", "other"]);
    assert!(done.stderr.contains("released 'other', which host/c held"), "{}", done.stderr);
    assert!(!place.is_held("other"));
    let done = place.run(["force-release", "job:b"]);
    assert_eq!(done.code, 64, "nobody could be asked");
    assert!(place.is_held("job:b"));
}

fn doctor_ends_with_a_verdict_and_leaves_nothing_behind(store: Store) {
    let place = Place::new(store);
    let done = place.run(["doctor"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.lines().last().unwrap().starts_with("verdict: "), "{}", done.stdout);
    assert!(!done.stdout.contains("FAIL"), "{}", done.stdout);
    assert_eq!(place.run(["ls", "--json"]).stdout, "");
    let done = place.run(["doctor", "--json", "--store", "memory:"]);
    let last: serde_json::Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((done.code, &last["verdict"]), (0, &"warn".into()), "{}", done.stdout);
}
