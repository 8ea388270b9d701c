//! Containers: namespaces for processes, with and without a `/proc` of their own.

use std::process::Command;

use test_servers::eventually;
use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::{Done, Place, Started};

pub(crate) const CASES: &[Case] = blocking_cases![
    what_a_command_starts_is_found_although_proc_is_from_outside,
    without_threads_there_is_a_clear_error,
    without_proc_there_is_a_clear_error,
    the_first_process_of_a_container_ends_at_a_signal,
    the_first_process_of_a_container_buries_orphans,
];

/// A command as root of a world of its own, with `$LEASEHOLD`.
fn unshare(place: &Place, arguments: &[&str]) -> Command {
    let leasehold = place.leasehold([""; 0]).get_program().to_owned();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user"]).args(arguments).current_dir(place.path(""));
    command.env("LEASEHOLD", leasehold).env("LEASEHOLD_STORE", place.store());
    command
}

fn what_a_command_starts_is_found_although_proc_is_from_outside(store: Store) {
    let place = Place::new(store);
    place.script(
        "job.sh",
        "setsid sh -c 'trap \"\" TERM; echo $$ > outsider; while :; do sleep 0.02; done' &
while [ ! -s outsider ]; do sleep 0.02; done
\"$LEASEHOLD\" force-release k --yes
wait
",
    );
    let script = r#"
sleep 600 &
"$LEASEHOLD" run free -- true 2> said
"$LEASEHOLD" run --ttl 1h k -- sh job.sh
echo $? > code
kill -0 $(cat outsider) && echo outsider >> alive
kill -0 $! && echo bystander >> alive
kill $!
"#;
    let done = Done::from(unshare(&place, &["--pid", "--fork", "sh", "-c", script]).output().unwrap());
    assert_eq!(place.read("code"), "79\n", "{done:?}");
    assert_eq!(place.read("alive"), "bystander\n", "{done:?}");
    assert_eq!(place.read("said"), "", "nothing was left running");
}

fn without_threads_there_is_a_clear_error(store: Store) {
    let place = Place::new(store);
    // Who has left the namespace for his children, but not for himself, can start no thread.
    let script = r#"exec "$LEASEHOLD" run k -- touch ran"#;
    let done = Done::from(unshare(&place, &["--pid", "sh", "-c", script]).output().unwrap());
    assert_eq!(done.code, 69, "{done:?}");
    assert!(done.stderr.contains("cannot start a thread") && done.stderr.contains("--fork"), "{done:?}");
    assert!(!place.path("ran").exists());
}

fn without_proc_there_is_a_clear_error(store: Store) {
    let place = Place::new(store);
    let script = r#"mount -t tmpfs none /proc; exec "$LEASEHOLD" run k -- touch ran"#;
    let done = Done::from(unshare(&place, &["--mount", "sh", "-c", script]).output().unwrap());
    assert_eq!(done.code, 126, "{done:?}");
    assert!(done.stderr.contains("/proc is not there") && done.stderr.contains("hint: mount it"), "{done:?}");
    assert!(!place.path("ran").exists() && !place.is_held("k"));
}

/// The children of a process.
fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Starts `leasehold` as the first process of a container. Also tells its number outside.
fn start_first(place: &Place, arguments: &[&str]) -> (Started, u32) {
    let leasehold = place.leasehold([""; 0]).get_program().to_owned();
    let mut command = unshare(place, &["--pid", "--fork", "--kill-child", "--mount-proc"]);
    let outside = Started::new(command.arg(leasehold).args(arguments), place);
    eventually("it has started", || children(outside.id()).len() == 1);
    let first = children(outside.id())[0];
    (outside, first)
}

fn the_first_process_of_a_container_ends_at_a_signal(store: Store) {
    let place = Place::new(store);
    place.run(["acquire", "held", "--ttl", "10m"]);
    place.script("job.sh", "echo started >&2\nexec sleep 600\n");
    for (arguments, sign) in [
        (&["watch"][..], "held"),
        (&["acquire", "held"], "waiting"),
        (&["run", "held", "--", "true"], "waiting"),
        (&["run", "k", "--", "sh", "job.sh"], "started"),
    ] {
        let (outside, first) = start_first(&place, arguments);
        eventually("it works", || format!("{}{}", outside.stdout(), outside.stderr()).contains(sign));
        crate::support::signal(first, "TERM");
        let done = outside.done();
        assert_eq!(done.code, 143, "{arguments:?}: {done:?}");
    }
    assert!(!place.is_held("k"));
}

fn the_first_process_of_a_container_buries_orphans(store: Store) {
    let place = Place::new(store);
    place.script("job.sh", "sh -c 'while [ ! -e go ]; do sleep 0.02; done' > /dev/null 2>&1 &\n");
    let (outside, first) = start_first(&place, &["run", "-v", "--at-least", "1h", "k", "--", "sh", "job.sh"]);
    outside.wait_for_stderr("keeping the lock");
    assert_eq!(children(first).len(), 1, "the orphan");
    std::fs::write(place.path("go"), "").unwrap();
    eventually("the orphan is buried", || children(first).is_empty());
    crate::support::signal(first, "TERM");
    assert_eq!(outside.done().code, 143);
}
