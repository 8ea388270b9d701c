use test_servers::{eventually, is_alive};
use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    a_signal_while_waiting_ends_the_wait_and_leaves_nothing_behind,
    a_signal_while_running_reaches_the_whole_group_and_the_lock_is_released,
    a_command_that_cleans_up_on_a_signal_is_waited_for_and_its_own_code_counts,
    a_command_that_ignores_the_signal_is_killed_after_the_grace,
    a_second_signal_a_while_later_kills_at_once,
    signals_that_were_ignored_stay_ignored,
    a_command_dies_with_a_leasehold_that_is_killed,
    what_the_command_leaves_running_is_reported_but_not_killed,
    two_signals_at_once_are_one_and_leave_time_to_clean_up,
    a_nested_run_passes_a_signal_on_once,
];

const SIGNALS: [(&str, i32); 4] = [("INT", 130), ("TERM", 143), ("HUP", 129), ("QUIT", 131)];

fn a_signal_while_waiting_ends_the_wait_and_leaves_nothing_behind(store: Store) {
    let place = Place::new(store);
    let done = place.run(["acquire", "k", "--ttl", "10m"]);
    let grant: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    for (name, code) in SIGNALS {
        let waiting = place.start(["run", "k", "--", "touch", "ran"]);
        waiting.wait_for_stderr("waiting for 'k'");
        waiting.signal(name);
        let done = waiting.done();
        assert_eq!((done.code, done.signal), (code, Some(code - 128)), "by the signal itself: {name}");
    }
    assert_eq!(place.run(["release", grant["lock_id"].as_str().unwrap()]).code, 0);
    assert!(!place.is_held("k"), "no waiter left a lock behind");
    assert!(!place.path("ran").exists());
}

fn a_signal_while_running_reaches_the_whole_group_and_the_lock_is_released(store: Store) {
    let place = Place::new(store);
    let script = place.script("job.sh", "echo $$ > child\nsh -c 'echo $$ > grandchild; exec sleep 600'\nexit 1\n");
    for (name, code) in SIGNALS {
        let running = place.start(["run", "k", "--", "sh", script.to_str().unwrap()]);
        let (child, grandchild) = (place.pid("child"), place.pid("grandchild"));
        // A shell that is about to start something may miss a signal.
        let started =
            || std::fs::read_to_string(format!("/proc/{grandchild}/comm")).is_ok_and(|name| name == "sleep\n");
        eventually("the grandchild sleeps", started);
        running.signal(name);
        let done = running.done();
        assert_eq!((done.code, done.signal), (code, Some(code - 128)), "{name}: {}", done.stderr);
        assert!(!is_alive(child) && !is_alive(grandchild), "{name}");
        assert!(!place.is_held("k"), "{name}");
        std::fs::remove_file(place.path("child")).unwrap();
        std::fs::remove_file(place.path("grandchild")).unwrap();
    }
}

fn a_command_that_cleans_up_on_a_signal_is_waited_for_and_its_own_code_counts(store: Store) {
    let place = Place::new(store);
    let script = place.script(
        "job.sh",
        "trap 'sleep 0.3; echo cleaned > cleaned; exit 0' TERM\necho $$ > child\nwhile :; do sleep 0.05; done\n",
    );
    let running = place.start(["run", "k", "--", "sh", script.to_str().unwrap()]);
    place.pid("child");
    running.signal("TERM");
    assert_eq!(running.done().code, 0);
    assert_eq!(place.read("cleaned"), "cleaned\n");
}

fn a_command_that_ignores_the_signal_is_killed_after_the_grace(store: Store) {
    let place = Place::new(store);
    let script = place.script("job.sh", "trap '' TERM\necho $$ > child\nwhile :; do sleep 0.05; done\n");
    let running = place.start(["run", "--grace", "200ms", "k", "--", "sh", script.to_str().unwrap()]);
    let child = place.pid("child");
    running.signal("TERM");
    let done = running.done();
    assert_eq!((done.code, done.signal), (143, Some(15)), "by the signal that it ignored, not by our KILL");
    assert!(done.stderr.contains("killed"), "{}", done.stderr);
    assert!(!is_alive(child) && !place.is_held("k"));
}

fn a_second_signal_a_while_later_kills_at_once(store: Store) {
    let place = Place::new(store);
    let script = place.script("job.sh", "trap '' INT\necho $$ > child\nwhile :; do sleep 0.05; done\n");
    let running = place.start(["run", "--json", "--grace", "1h", "k", "--", "sh", script.to_str().unwrap()]);
    place.pid("child");
    running.signal("INT");
    running.wait_for_stderr("\"signal\"");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    running.signal("INT");
    let done = running.done();
    assert_eq!(done.code, 130);
    assert!(done.event_names().contains(&"killed".to_owned()), "{}", done.stderr);
}

fn signals_that_were_ignored_stay_ignored(store: Store) {
    let place = Place::new(store);
    let script = place.script("job.sh", "echo $$ > child\nwhile [ ! -e go ]; do sleep 0.02; done\nexit 5\n");
    let mut command = std::process::Command::new("sh");
    let leasehold = place.leasehold(["run"; 0]).get_program().to_owned();
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(leasehold);
    command.args(["run", "k", "--", "sh", script.to_str().unwrap()]);
    command.env("LEASEHOLD_STORE", place.store()).current_dir(place.path(""));
    let mut child = command.spawn().unwrap();
    place.pid("child");
    crate::support::signal(child.id(), "HUP");
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5), "as under nohup");
}

fn a_command_dies_with_a_leasehold_that_is_killed(store: Store) {
    let place = Place::new(store);
    let script = place.script("job.sh", "echo $$ > child\nwhile :; do sleep 0.05; done\n");
    let running = place.start(["run", "--ttl", "1s", "k", "--", "sh", script.to_str().unwrap()]);
    let child = place.pid("child");
    running.signal("KILL");
    eventually("the command is dead", || !is_alive(child));
    assert_eq!(place.run(["run", "k", "--", "true"]).code, 0, "and the lock runs out");
}

fn what_the_command_leaves_running_is_reported_but_not_killed(store: Store) {
    let place = Place::new(store);
    let script = place.script("job.sh", "sleep 600 > /dev/null 2>&1 & echo $! > left\nexit 3\n");
    let done = place.run(["run", "k", "--", "sh", script.to_str().unwrap()]);
    assert_eq!(done.code, 3);
    assert!(done.stderr.contains("left 1 running"), "{}", done.stderr);
    let left = place.pid("left");
    assert!(is_alive(left));
    crate::support::signal(left, "KILL");
}

fn two_signals_at_once_are_one_and_leave_time_to_clean_up(store: Store) {
    let place = Place::new(store);
    let script = place.script(
        "job.sh",
        "trap 'sleep 0.3; echo cleaned > cleaned; exit 0' INT TERM\necho $$ > child\nwhile :; do sleep 0.02; done\n",
    );
    let running = place.start(["run", "k", "--", "sh", script.to_str().unwrap()]);
    place.pid("child");
    running.signal("TERM");
    running.signal("INT");
    assert_eq!(running.done().code, 0);
    assert_eq!(place.read("cleaned"), "cleaned\n");
}

fn a_nested_run_passes_a_signal_on_once(store: Store) {
    let place = Place::new(store);
    let script = place.script(
        "job.sh",
        "trap 'echo TERM >> heard' TERM\necho $$ > child\nwhile [ ! -s heard ]; do sleep 0.02; done\nsleep 0.5\n",
    );
    let (inner, store) = (env!("CARGO_BIN_EXE_leasehold"), place.store());
    let nested = ["run", "outer", "--", inner, "run", "--store", &store, "inner", "--", "sh", script.to_str().unwrap()];
    let running = place.start(nested);
    place.pid("child");
    running.signal("TERM");
    assert_eq!(running.done().code, 0);
    assert_eq!(place.read("heard"), "TERM\n");
}
