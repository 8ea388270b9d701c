use std::time::{Duration, SystemTime};

use test_servers::{eventually, is_alive};
use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    nothing_of_a_stubborn_command_survives_the_loss,
    nothing_of_a_stubborn_command_survives_a_signal,
    a_command_may_clean_up_when_the_lock_is_lost,
    a_stolen_lock_stops_its_victim,
    a_holder_that_is_stuck_can_be_robbed,
    the_longest_hold_ends_the_command_in_time,
    a_late_write_of_a_holder_that_slept_through_its_lease_is_refused,
    nothing_of_a_command_that_forks_all_the_time_survives_the_loss,
];

/// A command that cannot be stopped gently, with a child and a child in a session of its own that
/// cannot either.
const STUBBORN: &str = r#"trap '' TERM INT HUP
sh -c 'trap "" TERM INT HUP; echo $$ > member; while :; do sleep 0.05; done' &
setsid sh -c 'trap "" TERM INT HUP; echo $$ > outsider; while :; do sleep 0.05; done' &
(setsid sh -c 'trap "" TERM INT HUP; echo $$ > orphan; while :; do sleep 0.05; done' &)
echo $$ > leader
while :; do sleep 0.05; done
"#;

fn nothing_of_a_stubborn_command_survives_the_loss(store: Store) {
    let place = Place::new(store);
    let script = place.script("job.sh", STUBBORN);
    let running = place.start(["run", "k", "--", "sh", script.to_str().unwrap()]);
    let pids = ["leader", "member", "outsider", "orphan"].map(|name| place.pid(name));
    assert_eq!(place.run(["force-release", "k", "--yes"]).code, 0);
    let done = running.done();
    assert_eq!(done.code, 79, "{}", done.stderr);
    assert!(done.stderr.contains("lost the lock"), "{}", done.stderr);
    for pid in pids {
        assert!(!is_alive(pid), "{pid} survived");
    }
}

fn nothing_of_a_stubborn_command_survives_a_signal(store: Store) {
    let place = Place::new(store);
    let script = place.script("job.sh", STUBBORN);
    let running = place.start(["run", "--grace", "100ms", "k", "--", "sh", script.to_str().unwrap()]);
    let pids = ["leader", "member", "outsider", "orphan"].map(|name| place.pid(name));
    running.signal("TERM");
    assert_eq!(running.done().code, 143);
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    assert!(!place.is_held("k"));
}

fn a_command_may_clean_up_when_the_lock_is_lost(store: Store) {
    let place = Place::new(store);
    let script = place.script(
        "job.sh",
        "trap 'echo cleaned > cleaned; exit 0' TERM\necho $$ > child\nwhile :; do sleep 0.02; done\n",
    );
    let running = place.start(["run", "--json", "k", "--", "sh", script.to_str().unwrap()]);
    place.pid("child");
    place.run(["force-release", "k", "--yes"]);
    let done = running.done();
    assert_eq!(done.code, 79, "not 0, although the command ended with 0");
    assert_eq!(place.read("cleaned"), "cleaned\n");
    let lost = done.events().into_iter().find(|event| event["event"] == "lost").unwrap();
    assert_eq!(lost["reason"], "force_released");
}

fn a_stolen_lock_stops_its_victim(store: Store) {
    let place = Place::new(store);
    let script = place.script("job.sh", "echo $$ > child\nwhile :; do sleep 0.02; done\n");
    let victim = place.start(["run", "--holder", "me", "k", "--", "sh", script.to_str().unwrap()]);
    let child = place.pid("child");
    assert_eq!(place.run(["run", "-n", "--holder", "other", "--steal-same-holder", "k", "--", "true"]).code, 75);
    assert_eq!(place.run(["run", "-n", "--holder", "me", "--steal-same-holder", "k", "--", "true"]).code, 0);
    assert_eq!(victim.done().code, 79);
    assert!(!is_alive(child));
}

fn a_holder_that_is_stuck_can_be_robbed(store: Store) {
    let place = Place::new(store);
    place.run(["acquire", "k", "--ttl", "1h"]);
    assert_eq!(place.run(["run", "-n", "--steal-after", "1h", "k", "--", "true"]).code, 75);
    assert_eq!(place.run(["run", "--wait", "30s", "--steal-after", "50ms", "k", "--", "true"]).code, 0);
}

fn the_longest_hold_ends_the_command_in_time(store: Store) {
    let place = Place::new(store);
    let script = place.script("job.sh", "trap '' TERM\necho $$ > child\nwhile :; do sleep 0.02; done\n");
    let start = SystemTime::now();
    let done = place.run(["run", "--max-hold", "900ms", "--json", "k", "--", "sh", script.to_str().unwrap()]);
    assert_eq!(done.code, 79, "{}", done.stderr);
    assert!(start.elapsed().unwrap() >= Duration::from_millis(400));
    assert!(!is_alive(place.pid("child")));
    let lost = done.events().into_iter().find(|event| event["event"] == "lost").unwrap();
    assert_eq!(lost["reason"], "max_hold");
}

/// The checker that what is protected should have: it refuses a fence lower than one it has seen.
const FENCED_WRITE: &str = r#"high=0
[ -e high ] && read high < high
if [ "$LEASEHOLD_FENCE" \< "$high" ]; then echo "$1 refused" >> log; exit 1; fi
echo "$LEASEHOLD_FENCE" > high
echo "$1 written" >> log
"#;

fn a_late_write_of_a_holder_that_slept_through_its_lease_is_refused(store: Store) {
    let place = Place::new(store);
    place.script("write.sh", FENCED_WRITE);
    let script = place.script(
        "sleeper.sh",
        "echo $$ > child\nwhile [ ! -e go ]; do sleep 0.02; done\nsh write.sh late\necho done > wrote\nsleep 600\n",
    );
    let sleeper = place.start(["run", "--ttl", "2s", "k", "--", "sh", script.to_str().unwrap()]);
    let child = place.pid("child");
    sleeper.signal("STOP");
    assert_eq!(place.run(["run", "k", "--", "sh", "write.sh", "next"]).code, 0, "the lock ran out");
    std::fs::write(place.path("go"), "").unwrap();
    place.first_line("wrote");
    assert_eq!(place.read("log"), "next written\nlate refused\n");
    sleeper.signal("CONT");
    assert_eq!(sleeper.done().code, 79);
    assert!(!is_alive(child));
}

/// Moves on to a new process and a new session all the time, and notes that it lives.
const HOPPER: &str = r#"
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
int main(int n, char **arguments) {
    signal(SIGTERM, SIG_IGN);
    for (time_t end = time(0) + 20; time(0) < end;) {
        if (fork() > 0) _exit(0);
        setsid();
        close(open(arguments[1], O_CREAT | O_WRONLY | O_TRUNC, 0600));
    }
}
"#;

fn nothing_of_a_command_that_forks_all_the_time_survives_the_loss(store: Store) {
    let place = Place::new(store);
    let source = place.script("hopper.c", HOPPER);
    let hopper = place.path("hopper");
    let compiled =
        std::process::Command::new("cc").args(["-o", hopper.to_str().unwrap()]).arg(source).status().unwrap();
    assert!(compiled.success());
    let beat = place.path("beat");
    // The first process ends at once, so that the command is the shell that waits.
    let script = place.script("job.sh", &format!("{} {}\nsleep 600\n", hopper.display(), beat.display()));
    let running = place.start(["run", "--grace", "100ms", "k", "--", "sh", script.to_str().unwrap()]);
    eventually("it hops", || beat.exists());
    assert_eq!(place.run(["force-release", "k", "--yes"]).code, 0);
    let done = running.done();
    assert_eq!(done.code, 79, "{}", done.stderr);
    std::fs::remove_file(&beat).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(!beat.exists(), "it goes on: {}", done.stderr);
}
