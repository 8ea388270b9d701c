use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::support::{Place, is_alive};

/// A command that notes all the time that it lives.
const BEATING: &str = "echo $$ > child\nwhile :; do echo > beat; sleep 0.02; done\n";

/// What happens to a command whose store fails for good: it is dead before its lease can have ended.
fn check_stopped_in_time(place: &Place, ttl: Duration, trouble_began: SystemTime) {
    assert!(!is_alive(place.pid("child")));
    let last_beat = std::fs::metadata(place.path("beat")).unwrap().modified().unwrap();
    // The last renewal came before the trouble, so the lease ended at this time at the latest.
    assert!(last_beat < trouble_began + ttl, "{last_beat:?} {trouble_began:?}");
}

#[test]
fn a_command_whose_store_is_deleted_is_stopped_before_its_lease_ends() {
    let place = Place::new();
    let script = place.script("job.sh", BEATING);
    let running = place.start(["run", "--ttl", "3s", "k", "--", "sh", script.to_str().unwrap()]);
    place.pid("child");
    for name in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        let _ = std::fs::remove_file(place.path(name));
    }
    let began = SystemTime::now();
    let done = running.done();
    assert_eq!(done.code, 79, "{}", done.stderr);
    check_stopped_in_time(&place, Duration::from_secs(3), began);
    assert!(!place.path("locks.db").exists(), "what was deleted is not made again");
}

#[test]
fn a_command_whose_store_is_replaced_is_stopped_before_its_lease_ends() {
    let place = Place::new();
    let script = place.script("job.sh", BEATING);
    let running = place.start(["run", "--ttl", "3s", "k", "--", "sh", script.to_str().unwrap()]);
    place.pid("child");
    std::fs::rename(place.path("locks.db"), place.path("old.db")).unwrap();
    std::fs::write(place.path("locks.db"), "").unwrap();
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

#[test]
fn a_command_whose_store_becomes_read_only_is_stopped_before_its_lease_ends() {
    let place = Place::new();
    let script = place.script("job.sh", BEATING);
    let running = place.start(["run", "--ttl", "3s", "k", "--", "sh", script.to_str().unwrap()]);
    place.pid("child");
    let began = SystemTime::now();
    let read_only = Immutable::new(vec![place.path("locks.db"), place.path("locks.db-wal")]);
    let done = running.done();
    assert_eq!(done.code, 79, "{}", done.stderr);
    check_stopped_in_time(&place, Duration::from_secs(3), began);
    drop(read_only);
    assert_eq!(place.run(["run", "--wait", "20s", "k", "--", "true"]).code, 0, "the file is sound");
}

#[test]
fn a_command_whose_disk_is_full_is_stopped_before_its_lease_ends() {
    let place = Place::new();
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

#[test]
fn a_store_that_cannot_be_written_is_77_and_one_on_a_full_disk_is_69() {
    let place = Place::new();
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

#[test]
fn a_run_that_is_over_leaves_one_file_and_no_listener() {
    let place = Place::new();
    for _ in 0..3 {
        assert_eq!(place.run(["run", "k", "--", "true"]).code, 0);
    }
    assert!(place.path("locks.db").exists());
    for name in ["locks.db-wal", "locks.db-shm"] {
        assert!(!place.path(name).exists(), "{name} is left behind");
    }
    let locks = rusqlite::Connection::open(place.path("locks.db")).unwrap();
    let listeners: i64 = locks.query_row("SELECT count(*) FROM listeners", [], |row| row.get(0)).unwrap();
    assert_eq!(listeners, 0, "a listener is left behind");
}

#[test]
fn a_command_whose_log_is_deleted_is_stopped_before_its_lease_ends() {
    let place = Place::new();
    let script = place.script("job.sh", BEATING);
    let running = place.start(["run", "--ttl", "3s", "k", "--", "sh", script.to_str().unwrap()]);
    place.pid("child");
    for name in ["locks.db-wal", "locks.db-shm"] {
        std::fs::remove_file(place.path(name)).unwrap();
    }
    let began = SystemTime::now();
    assert_eq!(running.done().code, 79);
    check_stopped_in_time(&place, Duration::from_secs(3), began);
}

#[test]
fn a_store_of_somebody_else_is_77() {
    let place = Place::new();
    assert_eq!(place.run(["run", "k", "--", "true"]).code, 0);
    let locks = place.path("locks.db");
    let as_nobody = |path: &std::path::Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(env!("CARGO_BIN_EXE_leasehold"));
        let url = format!("sqlite:{}", path.display());
        command.args(["run", "-q", "--store", &url, "k", "--", "true"]).status().unwrap().code()
    };
    let directory = place.path("");
    std::fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(as_nobody(&locks), Some(77), "a file of somebody else");
    assert_eq!(as_nobody(&place.path("new.db")), Some(77), "a directory of somebody else");
    std::fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(as_nobody(&locks), Some(77), "a directory that is closed");
}

#[test]
fn a_process_in_another_time_namespace_is_kept_out_as_well() {
    let place = Place::new();
    let running = place.start(["run", "k", "--", "sh", "-c", "echo $$ > child; exec sleep 600"]);
    place.pid("child");
    let mut ahead = Command::new("unshare");
    ahead.args(["--time", "--monotonic", "100000", "--boottime", "100000", "--fork", env!("CARGO_BIN_EXE_leasehold")]);
    let status = ahead.args(["run", "-qn", "--store", &place.store(), "k", "--", "true"]).status().unwrap();
    assert_eq!(status.code(), Some(75), "the tests need root and time namespaces");
    running.signal("TERM");
    assert_eq!(running.done().code, 143);
}
