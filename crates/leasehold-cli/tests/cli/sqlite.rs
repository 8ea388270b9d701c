use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use test_servers::eventually;
use test_support::{Case, blocking_cases};

use crate::Store;
use crate::beating::{BEATING, check_stopped_in_time};
use crate::support::{Done, Place, Started};

pub(crate) const CASES: &[Case] = blocking_cases![
    a_command_whose_store_is_deleted_is_stopped_before_its_lease_ends,
    a_command_whose_store_is_replaced_is_stopped_before_its_lease_ends,
    a_command_whose_store_becomes_read_only_is_stopped_before_its_lease_ends,
    a_command_whose_disk_is_full_is_stopped_before_its_lease_ends,
    a_store_that_cannot_be_written_is_77_and_one_on_a_full_disk_is_69,
    a_run_that_is_over_leaves_a_short_log_and_no_listener,
    whoever_looks_or_examines_leaves_nothing_behind,
    locks_on_a_disk_that_may_only_be_read_are_seen,
    how_long_a_lock_is_held_is_told_by_the_clock_of_the_store,
    a_command_whose_log_is_deleted_is_stopped_before_its_lease_ends,
    a_store_of_somebody_else_is_77,
    a_process_in_another_time_namespace_is_kept_out_as_well,
    doctor_tells_of_a_clock_that_makes_no_sense,
    users_who_share_a_file_can_wake_each_other,
    a_waiter_in_another_network_namespace_can_be_woken_and_leaves_nothing_when_it_is_killed,
];

/// The file with the locks, or one beside it.
fn locks_file(place: &Place, suffix: &str) -> PathBuf {
    format!("{}{suffix}", place.store().strip_prefix("sqlite:").unwrap()).into()
}

fn a_command_whose_store_is_deleted_is_stopped_before_its_lease_ends(store: Store) {
    let place = Place::new(store);
    let script = place.script("job.sh", BEATING);
    let running = place.start(["run", "--ttl", "3s", "k", "--", "sh", script.to_str().unwrap()]);
    place.pid("child");
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(locks_file(&place, suffix));
    }
    let began = SystemTime::now();
    let done = running.done();
    assert_eq!(done.code, 79, "{}", done.stderr);
    check_stopped_in_time(&place, Duration::from_secs(3), began);
    assert!(!locks_file(&place, "").exists(), "what was deleted is not made again");
}

fn a_command_whose_store_is_replaced_is_stopped_before_its_lease_ends(store: Store) {
    let place = Place::new(store);
    let script = place.script("job.sh", BEATING);
    let running = place.start(["run", "--ttl", "3s", "k", "--", "sh", script.to_str().unwrap()]);
    place.pid("child");
    std::fs::rename(locks_file(&place, ""), place.path("old.db")).unwrap();
    std::fs::write(locks_file(&place, ""), "").unwrap();
    let began = SystemTime::now();
    assert_eq!(running.done().code, 79);
    check_stopped_in_time(&place, Duration::from_secs(3), began);
}

/// Files that nobody may write, not even who has them open.
struct Immutable(Vec<PathBuf>);

impl Immutable {
    fn new(files: Vec<PathBuf>) -> Self {
        let set = Command::new("chattr").arg("+i").args(&files).status().unwrap();
        assert!(set.success(), "run the tests as root, on a file system that knows immutable files");
        Self(files)
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        let _ = Command::new("chattr").arg("-i").args(&self.0).status();
    }
}

fn a_command_whose_store_becomes_read_only_is_stopped_before_its_lease_ends(store: Store) {
    let place = Place::new(store);
    let script = place.script("job.sh", BEATING);
    let running = place.start(["run", "--ttl", "3s", "k", "--", "sh", script.to_str().unwrap()]);
    place.pid("child");
    let began = SystemTime::now();
    let read_only = Immutable::new(vec![locks_file(&place, ""), locks_file(&place, "-wal")]);
    let done = running.done();
    assert_eq!(done.code, 79, "{}", done.stderr);
    check_stopped_in_time(&place, Duration::from_secs(3), began);
    drop(read_only);
    assert_eq!(place.run(["run", "--wait", "20s", "k", "--", "true"]).code, 0, "the file is sound");
}

fn a_command_whose_disk_is_full_is_stopped_before_its_lease_ends(store: Store) {
    let place = Place::new(store);
    place.script("job.sh", BEATING);
    let script = r#"
mount -t tmpfs -o size=300k none disk
"$LEASEHOLD" run -q --ttl 3s k -- sh job.sh &
while [ ! -s child ]; do sleep 0.02; done
dd if=/dev/zero of=disk/fill bs=1k 2> /dev/null || true
echo full > full
wait $! || echo $? > code
rm disk/fill
"$LEASEHOLD" run --wait 20s k -- echo recovered > recovered
"#;
    let mut child = place.with_mounts(script);
    place.first_line("full");
    let began = SystemTime::now();
    assert!(child.wait().unwrap().success(), "user namespaces with mounts must be allowed here");
    assert_eq!(place.read("code"), "79\n");
    check_stopped_in_time(&place, Duration::from_secs(3), began);
    assert_eq!(place.read("recovered"), "recovered\n", "the file is sound when there is room again");
}

fn a_store_that_cannot_be_written_is_77_and_one_on_a_full_disk_is_69(store: Store) {
    let place = Place::new(store);
    let script = r#"
mount -t tmpfs -o size=300k none disk
"$LEASEHOLD" run k -- true
dd if=/dev/zero of=disk/fill bs=1k 2> /dev/null || true
"$LEASEHOLD" run -n k -- touch ran || echo $? > full
"$LEASEHOLD" run -n --proceed-unlocked k -- touch unlocked 2> /dev/null
mount -o remount,ro disk
"$LEASEHOLD" run k -- touch ran 2> read-only.txt || echo $? > read-only
"$LEASEHOLD" doctor > doctor.txt || echo $? > doctor
"#;
    assert!(place.with_mounts(script).wait().unwrap().success(), "user namespaces with mounts must be allowed here");
    assert_eq!(
        (place.read("full"), place.read("read-only"), place.read("doctor")),
        ("69\n".into(), "77\n".into(), "77\n".into())
    );
    assert!(place.read("read-only.txt").contains("read-only"), "{}", place.read("read-only.txt"));
    assert!(place.read("doctor.txt").ends_with("verdict: BAD, do not rely on locks here\n"));
    assert!(!place.path("ran").exists() && place.path("unlocked").exists());
}

fn a_run_that_is_over_leaves_a_short_log_and_no_listener(store: Store) {
    let place = Place::new(store);
    let log = || std::fs::metadata(locks_file(&place, "-wal")).unwrap();
    assert_eq!(place.run(["run", "k", "--", "true"]).code, 0);
    let first = log().ino();
    for _ in 0..3 {
        assert_eq!(place.run(["run", "k", "--", "true"]).code, 0);
    }
    // To write it back takes flushes of the disk, which is what a run would cost most.
    assert_eq!(log().ino(), first, "the next run goes on with it");
    assert!(log().len() < 1024 * 1024, "{}", log().len());
    assert!(!locks_file(&place, "-listeners").exists(), "sockets are left behind");
    assert_eq!(listeners(&place, "%"), 0, "a listener is left behind");
}

/// The names of all that is beside the file with the locks.
fn beside(place: &Place) -> Vec<String> {
    let files = std::fs::read_dir(locks_file(place, "").parent().unwrap()).unwrap();
    let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn whoever_looks_or_examines_leaves_nothing_behind(store: Store) {
    let place = Place::new(store);
    let before = beside(&place);
    for (code, arguments) in [(0, &["ls"][..]), (1, &["show", "k"]), (0, &["doctor"])] {
        let done = place.run(arguments);
        assert_eq!(done.code, code, "{done:?}");
        assert_eq!(beside(&place), before, "{arguments:?}");
    }
    place.run(["run", "k", "--", "true"]);
    let (files, content) = (beside(&place), std::fs::read(locks_file(&place, "")).unwrap());
    assert_eq!((place.run(["ls"]).code, place.run(["show", "k"]).code), (0, 1));
    assert!(beside(&place) == files && std::fs::read(locks_file(&place, "")).unwrap() == content);
    assert_eq!(place.run(["doctor"]).code, 0);
    let rows = |sql| rusqlite::Connection::open(locks_file(&place, "")).unwrap().query_row(sql, [], |row| row.get(0));
    assert_eq!(rows("SELECT group_concat(key) FROM locks"), Ok("k".to_owned()), "the fences of users are kept");
    assert!(rows("DELETE FROM locks").is_err(), "and stay so");
}

fn locks_on_a_disk_that_may_only_be_read_are_seen(store: Store) {
    let place = Place::new(store);
    let script = r#"
mount -t tmpfs none disk
"$LEASEHOLD" acquire closed --ttl 1h
mount -o remount,ro disk
"$LEASEHOLD" ls > closed.txt
"$LEASEHOLD" show closed > /dev/null
mount -o remount,rw disk
"$LEASEHOLD" run open -- sh -c 'while [ ! -e go ]; do sleep 0.02; done' &
until "$LEASEHOLD" show open 2> /dev/null; do sleep 0.02; done > /dev/null
mkdir view
mount --bind disk view
mount -o remount,bind,ro view
LEASEHOLD_STORE=sqlite:view/locks.db "$LEASEHOLD" ls > open.txt
touch go
wait
"#;
    assert!(place.with_mounts(script).wait().unwrap().success(), "user namespaces with mounts must be allowed here");
    assert!(place.read("closed.txt").contains("closed"), "{}", place.read("closed.txt"));
    assert!(place.read("open.txt").contains("open"), "{}", place.read("open.txt"));
}

fn how_long_a_lock_is_held_is_told_by_the_clock_of_the_store(store: Store) {
    let place = Place::new(store);
    place.run(["run", "other", "--", "true"]);
    let database = rusqlite::Connection::open(locks_file(&place, "")).unwrap();
    database.execute("UPDATE clock SET offset_us = offset_us + 3600 * 1000000", []).unwrap();
    drop(database);
    assert_eq!(place.run(["acquire", "k"]).code, 0);
    for command in [&["ls", "--json"][..], &["show", "--json", "k"]] {
        let done = place.run(command);
        let lock: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
        assert!(lock["expires_in_ms"].as_u64().unwrap() <= 30_000, "{lock}");
    }
}

/// How many listeners there are for topics that are `LIKE` this one.
fn listeners(place: &Place, topic: &str) -> i64 {
    let locks = rusqlite::Connection::open(locks_file(place, "")).unwrap();
    locks.query_row("SELECT count(*) FROM listeners WHERE topic LIKE ?1", [topic], |row| row.get(0)).unwrap()
}

fn a_command_whose_log_is_deleted_is_stopped_before_its_lease_ends(store: Store) {
    let place = Place::new(store);
    let script = place.script("job.sh", BEATING);
    let running = place.start(["run", "--ttl", "3s", "k", "--", "sh", script.to_str().unwrap()]);
    place.pid("child");
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(locks_file(&place, suffix)).unwrap();
    }
    let began = SystemTime::now();
    assert_eq!(running.done().code, 79);
    check_stopped_in_time(&place, Duration::from_secs(3), began);
}

fn a_store_of_somebody_else_is_77(store: Store) {
    let place = Place::new(store);
    assert_eq!(place.run(["run", "k", "--", "true"]).code, 0);
    let locks = locks_file(&place, "");
    let as_nobody = |path: &std::path::Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(env!("CARGO_BIN_EXE_leasehold"));
        let url = format!("sqlite:{}", path.display());
        command.args(["run", "-q", "--store", &url, "k", "--", "true"]).status().unwrap().code()
    };
    let directory = locks.parent().unwrap();
    std::fs::set_permissions(directory, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(as_nobody(&locks), Some(77), "a file of somebody else");
    assert_eq!(as_nobody(&directory.join("new.db")), Some(77), "a directory of somebody else");
    std::fs::set_permissions(directory, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(as_nobody(&locks), Some(77), "a directory that is closed");
}

fn a_process_in_another_time_namespace_is_kept_out_as_well(store: Store) {
    let place = Place::new(store);
    let running = place.start(["run", "k", "--", "sh", "-c", "echo $$ > child; exec sleep 600"]);
    place.pid("child");
    let mut ahead = Command::new("unshare");
    ahead.args(["--time", "--monotonic", "100000", "--boottime", "100000", "--fork", env!("CARGO_BIN_EXE_leasehold")]);
    let status = ahead.args(["run", "-qn", "--store", &place.store(), "k", "--", "true"]).status().unwrap();
    assert_eq!(status.code(), Some(75), "the tests need root and time namespaces");
    running.signal("TERM");
    assert_eq!(running.done().code, 143);
}

fn doctor_tells_of_a_clock_that_makes_no_sense(store: Store) {
    let place = Place::new(store);
    assert_eq!(place.run(["run", "k", "--", "true"]).code, 0);
    let locks = rusqlite::Connection::open(locks_file(&place, "")).unwrap();
    locks.execute("UPDATE clock SET offset_us = 9000000000000000000", []).unwrap();
    let done = place.run(["doctor"]);
    assert_eq!(done.code, 78);
    assert!(done.stdout.contains("the clock in the database makes no sense"), "{done:?}");
}

/// What a holder does until it is told to stop.
const HOLDING: &str = "echo $$ > child; while [ ! -e stop ]; do sleep 0.02; done";

/// The same command, run by another program that has it run in some other way.
pub(crate) fn through(program: &[&str], command: &Command) -> Command {
    let mut other = Command::new(program[0]);
    other.args(&program[1..]).arg(command.get_program()).args(command.get_args());
    other.current_dir(command.get_current_dir().unwrap());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

fn users_who_share_a_file_can_wake_each_other(store: Store) {
    let place = Place::new(store);
    assert_eq!(place.run(["run", "k", "--", "true"]).code, 0);
    let (file, mode) = (locks_file(&place, ""), std::os::unix::fs::PermissionsExt::from_mode);
    let directory = file.parent().unwrap();
    const GROUP: u32 = 54321;
    for (path, bits) in [(directory, 0o2770), (&file, 0o660)] {
        std::os::unix::fs::chown(path, None, Some(GROUP)).unwrap();
        std::fs::set_permissions(path, mode(bits)).unwrap();
    }
    std::fs::set_permissions(place.path("."), mode(0o777)).unwrap();
    let by = |user: &str, arguments: &[&str]| {
        // As users of a group often have it: what they make is for the group as well.
        let shell = "umask 007; exec \"$@\"";
        let user = ["setpriv", "--reuid", user, "--regid", "54321", "--clear-groups", "sh", "-c", shell, "sh"];
        through(&user, &place.leasehold(arguments))
    };
    // The files beside it follow it when its owner uses it next.
    let too_early = Done::from(by("54322", &["ls"]).output().unwrap());
    assert!(too_early.code == 77 && too_early.stderr.contains("use the store once"), "{too_early:?}");
    assert_eq!(place.run(["run", "k", "--", "true"]).code, 0);
    let holder = Started::new(&mut by("54322", &["run", "k", "--", "sh", "-c", HOLDING]), &place);
    place.pid("child");
    let waiter = Started::new(&mut by("54323", &["run", "--wait", "5m", "k", "--", "true"]), &place);
    eventually("it waits", || listeners(&place, "freed:k") == 1);
    let doctor = |user: &str| {
        let done = Done::from(by(user, &["doctor"]).output().unwrap());
        assert_eq!(done.code, 0, "{done:?}");
        done.stdout.lines().find(|line| line.contains("listeners")).unwrap().to_owned()
    };
    for user in ["0", "54322", "54323"] {
        assert!(doctor(user).contains("everybody who waits can be woken"), "{user}: {}", doctor(user));
    }
    // And it would be told if it were otherwise.
    for socket in std::fs::read_dir(locks_file(&place, "-listeners")).unwrap() {
        std::fs::set_permissions(socket.unwrap().path(), mode(0o600)).unwrap();
    }
    assert!(doctor("54324").contains("sockets of other users"), "{}", doctor("54324"));
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!((holder.done().code, waiter.done().code), (0, 0));
}

fn a_waiter_in_another_network_namespace_can_be_woken_and_leaves_nothing_when_it_is_killed(store: Store) {
    let place = Place::new(store);
    let holder = place.start(["run", "k", "--", "sh", "-c", HOLDING]);
    place.pid("child");
    let elsewhere = through(&["unshare", "--net"], &place.leasehold(["run", "--wait", "5m", "k", "--", "true"]));
    let waiter = Started::new(&mut { elsewhere }, &place);
    eventually("it waits; the tests need root", || listeners(&place, "freed:k") == 1);
    let doctor = place.run(["doctor"]);
    assert!(doctor.stdout.contains("everybody who waits can be woken"), "{doctor:?}");
    drop(waiter);
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(holder.done().code, 0);
    eventually("nobody listens", || listeners(&place, "%") == 0 && !locks_file(&place, "-listeners").exists());
}
