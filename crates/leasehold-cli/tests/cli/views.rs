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
    assert_eq!(place.run(["ls", "nothing"]).stdout.lines().count(), 1);
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
