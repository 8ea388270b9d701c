use std::time::{Duration, Instant};

use test_servers::eventually;
use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    a_waiter_says_who_holds_the_lock_and_gets_it_when_it_is_free,
    quiet_waiters_say_nothing,
    every_event_is_a_line_of_json,
    failures_are_events_too,
    the_lock_is_kept_for_at_least_as_long_as_asked,
    a_signal_ends_the_keeping,
    proceeding_unlocked_runs_the_command_after_the_wait_and_says_so,
    a_reader_that_does_not_read_does_not_hold_up_the_command,
    a_wait_too_short_for_a_second_look_still_ends_with_who_has_the_lock,
];

fn a_waiter_says_who_holds_the_lock_and_gets_it_when_it_is_free(store: Store) {
    let place = Place::new(store);
    let holder =
        place.start(["run", "--holder", "the holder", "k", "--", "sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"]);
    eventually("it is held", || place.is_held("k"));
    let waiter = place.start(["run", "k", "--", "echo", "ran"]);
    waiter.wait_for_stderr("waiting for 'k': held by the holder since 20");
    std::fs::write(place.path("go"), "").unwrap();
    let done = waiter.done();
    assert_eq!((done.code, done.stdout.as_str()), (0, "ran\n"));
    assert!(done.stderr.contains("got 'k' after"), "{}", done.stderr);
    assert_eq!(holder.done().code, 0);
}

fn quiet_waiters_say_nothing(store: Store) {
    let place = Place::new(store);
    place.run(["acquire", "k", "--ttl", "200ms"]);
    let done = place.run(["run", "-q", "k", "--", "true"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
}

fn every_event_is_a_line_of_json(store: Store) {
    let place = Place::new(store);
    place.run(["acquire", "k", "--holder", "me", "--ttl", "200ms"]);
    let done = place.run(["run", "--json", "--at-least", "1500ms", "k", "--", "sh", "-c", "exit 3"]);
    assert_eq!(done.code, 3);
    assert_eq!(done.event_names(), ["waiting", "acquired", "started", "exited", "keeping", "released"]);
    let events = done.events();
    assert_eq!((&events[0]["key"], &events[0]["holder"]), (&"k".into(), &"me".into()));
    assert_eq!(events[1]["fence"].as_str().unwrap().len(), 15);
    assert_eq!(events[3]["code"], 3);
    assert!(events.iter().all(|event| event["at_ms"].is_u64()));
    assert!(!done.stderr.contains("lock_id"), "a capability is never logged");
}

fn failures_are_events_too(store: Store) {
    let place = Place::new(store);
    place.run(["acquire", "k"]);
    let done = place.run(["run", "--json", "-n", "k", "--", "true"]);
    let events = done.events();
    assert_eq!((events.len(), &events[0]["event"], &events[0]["exit_code"]), (1, &"error".into(), &75.into()));
    let done = place.run(["run", "--json", "other", "--", "/no/such/program"]);
    // The error comes from the child, whose lines may overtake ours.
    let (errors, names): (Vec<_>, Vec<_>) = done.event_names().into_iter().partition(|name| name == "error");
    assert_eq!(errors.len(), 1);
    assert_eq!(names, ["acquired", "started", "exited", "released"]);
}

fn the_lock_is_kept_for_at_least_as_long_as_asked(store: Store) {
    let place = Place::new(store);
    let start = Instant::now();
    let short = place.start(["run", "-v", "--at-least", "1500ms", "k", "--", "true"]);
    short.wait_for_stderr("keeping the lock");
    assert_eq!(place.run(["run", "-n", "k", "--", "true"]).code, 75);
    assert_eq!(short.done().code, 0);
    assert!(start.elapsed() >= Duration::from_millis(1500));
    assert!(!place.is_held("k"));
}

fn a_signal_ends_the_keeping(store: Store) {
    let place = Place::new(store);
    let short = place.start(["run", "-v", "--at-least", "1h", "k", "--", "true"]);
    short.wait_for_stderr("keeping the lock");
    short.signal("TERM");
    assert_eq!(short.done().code, 143);
    assert!(!place.is_held("k"));
}

fn proceeding_unlocked_runs_the_command_after_the_wait_and_says_so(store: Store) {
    let place = Place::new(store);
    place.run(["acquire", "k", "--holder", "the holder"]);
    let arguments = ["run", "--json", "--wait", "1s", "--proceed-unlocked", "k", "--", "sh", "-c", "exit 4"];
    let done = place.run(arguments);
    assert_eq!(done.code, 4);
    assert_eq!(done.event_names(), ["waiting", "unlocked", "started", "exited"]);
    assert!(place.is_held("k"), "the holder's lock is untouched");
    let free = place.run(["run", "--json", "-n", "--proceed-unlocked", "free", "--", "true"]);
    assert_eq!(free.event_names(), ["acquired", "started", "exited", "released"]);
}

fn a_reader_that_does_not_read_does_not_hold_up_the_command(store: Store) {
    let place = Place::new(store);
    let mut command = place.leasehold(["run", "--json", "k", "--", "true"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(command.stderr(writer).status().unwrap().code(), Some(0));
}

fn a_wait_too_short_for_a_second_look_still_ends_with_who_has_the_lock(store: Store) {
    let place = Place::new(store);
    assert_eq!(place.run(["acquire", "k"]).code, 0);
    // Wherever the time runs out after the first answer, that answer counts.
    for wait in ["1ms", "3ms", "5ms", "8ms", "12ms", "16ms", "20ms", "25ms", "30ms", "40ms"] {
        let done = place.run(["run", "--wait", wait, "k", "--", "true"]);
        assert_eq!(done.code, 75, "{wait}: {done:?}");
    }
}
