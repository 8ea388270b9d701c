//! Signals that service managers and administrators send.

use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    signals_with_a_meaning_of_their_own_are_passed_on_and_end_nobody,
    signals_while_waiting_end_the_wait_unless_they_are_for_the_command,
    a_signal_that_cannot_be_passed_on_stops_the_command,
    every_command_ends_by_the_signal_itself,
    a_command_that_ends_by_a_signal_is_followed,
    the_lock_is_kept_through_signals_that_do_not_ask_to_stop,
    a_signal_at_any_moment_of_the_start_ends_us_and_leaves_nothing_behind,
];

/// Writes the names of the signals it hears to the file `heard`.
const LISTENER: &str = "for name in HUP USR1 USR2 ALRM WINCH URG IO PWR VTALRM PROF; do
  trap \"echo $name >> heard\" $name
done
echo $$ > child
while [ ! -e go ]; do sleep 0.02; done
exit 5
";

fn signals_with_a_meaning_of_their_own_are_passed_on_and_end_nobody(store: Store) {
    let place = Place::new(store);
    let script = place.script("job.sh", LISTENER);
    // HUP makes a service read its configuration again: no kill may follow, however short the grace.
    let running = place.start(["run", "--grace", "0s", "k", "--", "bash", script.to_str().unwrap()]);
    place.pid("child");
    for name in ["HUP", "USR1", "USR2", "ALRM", "WINCH", "URG", "IO", "PWR", "VTALRM", "PROF", "HUP"] {
        std::fs::write(place.path("heard"), "").unwrap();
        running.signal(name);
        assert_eq!(place.first_line("heard"), name);
    }
    assert!(place.is_held("k"));
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(running.done().code, 5);
}

fn signals_while_waiting_end_the_wait_unless_they_are_for_the_command(store: Store) {
    let place = Place::new(store);
    let grant = place.run(["acquire", "k", "--ttl", "10m"]);
    let grant: serde_json::Value = serde_json::from_str(&grant.stdout).unwrap();
    for (name, signal) in [("TERM", 15), ("HUP", 1)] {
        let waiting = place.start(["run", "k", "--", "touch", "ran"]);
        waiting.wait_for_stderr("waiting for 'k'");
        waiting.signal(name);
        assert_eq!(waiting.done().signal, Some(signal), "{name}");
    }
    let waiting = place.start(["run", "k", "--", "touch", "ran"]);
    waiting.wait_for_stderr("waiting for 'k'");
    for name in ["USR1", "USR2", "ALRM", "WINCH", "URG", "CONT"] {
        waiting.signal(name);
    }
    assert!(!place.path("ran").exists());
    assert_eq!(place.run(["release", grant["lock_id"].as_str().unwrap()]).code, 0);
    assert_eq!(waiting.done().code, 0);
    assert!(place.path("ran").exists() && !place.is_held("k"));
}

fn a_signal_that_cannot_be_passed_on_stops_the_command(store: Store) {
    let place = Place::new(store);
    let script = place.script(
        "job.sh",
        "trap 'echo TERM > heard; kill $!; trap - TERM; kill $$' TERM\nsleep 600 &\necho $$ > child\nwait\n",
    );
    let running = place.start(["run", "k", "--", "sh", script.to_str().unwrap()]);
    place.pid("child");
    running.signal("RTMIN+3");
    assert_eq!(running.done().code, 143, "as the command ended");
    assert_eq!(place.read("heard"), "TERM\n");
    assert!(!place.is_held("k"));
}

fn every_command_ends_by_the_signal_itself(store: Store) {
    let place = Place::new(store);
    place.run(["acquire", "k", "--ttl", "10m"]);
    let waiting = place.start(["acquire", "k"]);
    waiting.wait_for_stderr("waiting for 'k'");
    let watching = place.start(["watch"]);
    test_servers::eventually("it watches", || watching.stdout().contains("held"));
    for command in [waiting, watching] {
        command.signal("INT");
        assert_eq!(command.done().signal, Some(2));
    }
}

fn a_command_that_ends_by_a_signal_is_followed(store: Store) {
    let place = Place::new(store);
    for (name, signal) in [("INT", 2), ("KILL", 9), ("SEGV", 11), ("TERM", 15), ("USR1", 10)] {
        let done = place.run(["run", "k", "--", "sh", "-c", &format!("kill -{name} $$")]);
        assert_eq!(done.signal, Some(signal), "{name}");
        assert!(!place.is_held("k"), "{name}");
    }
}

fn the_lock_is_kept_through_signals_that_do_not_ask_to_stop(store: Store) {
    let place = Place::new(store);
    let keeping = place.start(["run", "-v", "--at-least", "1h", "k", "--", "true"]);
    keeping.wait_for_stderr("keeping the lock");
    for name in ["USR1", "WINCH", "ALRM", "CONT"] {
        keeping.signal(name);
    }
    assert!(place.is_held("k"));
    keeping.signal("TERM");
    assert_eq!(keeping.done().signal, Some(15));
    assert!(!place.is_held("k"));
}

fn a_signal_at_any_moment_of_the_start_ends_us_and_leaves_nothing_behind(store: Store) {
    let place = Place::new(store);
    for millis in (0..40).step_by(4) {
        let starting = place.start(["run", "k", "--", "sleep", "600"]);
        // Wherever it is by then: loading, connecting, with the lock, or with the command.
        std::thread::sleep(std::time::Duration::from_millis(millis));
        starting.signal("TERM");
        let done = starting.done();
        assert_eq!(done.signal, Some(15), "after {millis} ms: {done:?}");
        assert!(!place.is_held("k"), "after {millis} ms");
    }
}
