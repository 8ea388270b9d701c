//! Who else is on the host: those who may use the file, and those who may not.

use std::fs::{Metadata, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold::backend::{Backend, Event, Subscription, Topic};
use leasehold::sqlite::Sqlite;
use leasehold::{Locks, Verdict};
use test_support::{check, eventually, granted, key, request, soon};

use crate::support::{directory, raw};

/// The user and the group `nobody`.
const NOBODY: u32 = 65534;

fn sockets(path: &Path) -> PathBuf {
    path.with_extension("db-listeners")
}

/// The name under which somebody listens.
fn address(path: &Path) -> String {
    raw(path).query_row("SELECT address FROM listeners", [], |row| row.get(0)).unwrap()
}

/// How many listen.
fn listeners(path: &Path) -> u32 {
    raw(path).query_row("SELECT count(*) FROM listeners", [], |row| row.get(0)).unwrap()
}

async fn listen(store: &Sqlite) -> Subscription {
    store.subscribe(Topic::Freed(&key("k"))).await.unwrap()
}

/// That the release of a lock is heard.
async fn check_heard(store: &Sqlite, freed: &mut Subscription) {
    let held = request("k");
    granted(store, &held).await;
    store.release(&held.lock_id).await.unwrap();
    assert_eq!(soon("the release", freed.next()).await, Some(Event::Freed));
}

/// Tries to send a message to a socket, and to make one in its place, as `nobody`: by its path, and
/// by its name in the kernel's own space. Returns what went well.
fn as_nobody(socket: &Path) -> String {
    let script = r#"
        use Socket;
        my ($path, $name) = @ARGV;
        for my $address ($path, "\0$name", "$path-mine") {
            socket(my $socket, AF_UNIX, SOCK_DGRAM, 0) or die;
            print "sent " if send($socket, "Fk", 0, pack_sockaddr_un($address));
            unlink $address and print "removed ";
            print "bound " if $address ne "\0$name" && bind($socket, pack_sockaddr_un($address));
        }
        opendir(my $directory, $path =~ s{/[^/]*$}{}r) and print "listed";
    "#;
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "perl", "-e", script]);
    let done = command.arg(socket).arg(socket.file_name().unwrap()).output().unwrap();
    assert!(done.status.success(), "the tests need root, setpriv and perl: {done:?}");
    String::from_utf8(done.stdout).unwrap()
}

#[tokio::test]
async fn a_stranger_can_neither_wake_nor_hear() {
    let (directory, path) = directory();
    for (directory_mode, file_mode) in [(0o755, 0o600), (0o1777, 0o600), (0o755, 0o644), (0o755, 0o660)] {
        std::fs::set_permissions(directory.path(), Permissions::from_mode(directory_mode)).unwrap();
        let store = Sqlite::open(&path).await.unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(file_mode)).unwrap();
        let mut freed = listen(&store).await;
        let socket = sockets(&path).join(address(&path));
        assert_eq!(as_nobody(&socket), "", "{directory_mode:o} {file_mode:o}");
        check_heard(&store, &mut freed).await;
    }
    // The same means do reach a socket that is for all.
    let store = Sqlite::open(&path).await.unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let mut freed = listen(&store).await;
    assert_eq!(as_nobody(&sockets(&path).join(address(&path))), "sent removed bound bound listed");
    assert_eq!(soon("the message", freed.next()).await, Some(Event::Freed));
}

#[tokio::test]
async fn the_sockets_are_for_all_who_may_write_the_file() {
    let (_directory, path) = directory();
    let about = |found: Metadata| (found.uid(), found.gid(), found.mode() & 0o777);
    let ours = std::fs::metadata(path.parent().unwrap()).unwrap();
    for (mode, directory_mode, socket_mode, uid, gid) in [
        (0o600, 0o700, 0o600, ours.uid(), ours.gid()),
        (0o660, 0o770, 0o660, ours.uid(), NOBODY),
        (0o640, 0o700, 0o600, NOBODY, NOBODY),
    ] {
        let store = Sqlite::open(&path).await.unwrap();
        let first = listen(&store).await;
        // Also when there are sockets already.
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(uid), Some(gid)).unwrap();
        let other = Sqlite::open(&path).await.unwrap();
        let mut freed = other.subscribe(Topic::Freed(&key("k"))).await.unwrap();
        drop(first);
        eventually("only the other one listens", async || listeners(&path) == 1).await;
        let found = std::fs::metadata(sockets(&path)).unwrap();
        assert_eq!(about(found), (uid, gid, directory_mode), "{mode:o}");
        check_heard(&store, &mut freed).await;
        let found = std::fs::metadata(sockets(&path).join(address(&path))).unwrap();
        assert_eq!(about(found), (uid, gid, socket_mode), "{mode:o}");
        drop(freed);
    }
}

#[tokio::test]
async fn a_directory_that_a_stranger_made_is_not_used_and_locks_work_all_the_same() {
    let (directory, path) = directory();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
    let store = Sqlite::open(&path).await.unwrap();
    std::fs::create_dir(sockets(&path)).unwrap();
    chown(sockets(&path), Some(NOBODY), Some(NOBODY)).unwrap();
    store.subscribe(Topic::Freed(&key("k"))).await.map(drop).unwrap_err();
    assert_eq!(std::fs::read_dir(sockets(&path)).unwrap().count(), 0);
    let checks = store.examine().await.unwrap();
    assert_eq!(check(&checks, "listeners").verdict, Verdict::Warn, "{checks:?}");

    let (holder, waiter) = (Locks::new(store), Locks::new(Sqlite::open(&path).await.unwrap()));
    let guard = holder.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(waiter.lock("k").wait_forever().acquire());
    guard.release().await.unwrap();
    soon("the lock", waiting).await.unwrap().unwrap().release().await.unwrap();

    std::fs::remove_dir(sockets(&path)).unwrap();
    let elsewhere = directory.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, sockets(&path)).unwrap();
    let store = Sqlite::open(&path).await.unwrap();
    store.subscribe(Topic::Freed(&key("k"))).await.map(drop).unwrap_err();
}

#[tokio::test]
async fn a_long_path_and_a_link_to_the_file_lead_to_the_same_sockets() {
    let (directory, _) = directory();
    let deep = directory.path().join("a".repeat(200)).join("b".repeat(200));
    std::fs::create_dir_all(&deep).unwrap();
    let store = Sqlite::open(deep.join("locks.db")).await.unwrap();
    let link = directory.path().join("link.db");
    std::os::unix::fs::symlink(deep.join("locks.db"), &link).unwrap();
    let other = Sqlite::open(&link).await.unwrap();
    let mut freed = listen(&other).await;
    check_heard(&store, &mut freed).await;
    let mut freed = listen(&store).await;
    check_heard(&other, &mut freed).await;
}

#[tokio::test]
async fn sockets_that_are_deleted_and_made_again_are_found() {
    let (directory, _) = directory();
    for name in ["short".to_owned(), "long".repeat(50)] {
        let inside = directory.path().join(name);
        std::fs::create_dir(&inside).unwrap();
        let path = inside.join("locks.db");
        let store = Sqlite::open(&path).await.unwrap();
        for _ in 0..3 {
            let listener = Sqlite::open(&path).await.unwrap();
            let mut freed = listen(&listener).await;
            check_heard(&store, &mut freed).await;
            std::fs::remove_dir_all(sockets(&path)).unwrap();
        }
    }
}
