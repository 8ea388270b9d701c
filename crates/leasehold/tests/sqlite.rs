//! The store in a SQLite file: what it refuses, what it survives, and that it says so.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used)]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use leasehold::{
    Acquire, AcquireRequest, Backend, ErrorCode, Fence, Key, LockId, Locks, LookupBy, Metadata, Release, Sqlite,
    SqliteOptions, Synchronous, Topic, Ttl, Verdict,
};
use tempfile::TempDir;

fn directory() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks.db");
    (directory, path)
}

fn request(key: &str) -> AcquireRequest {
    AcquireRequest::new(Key::new(key).unwrap(), LockId::random().unwrap(), Ttl::default())
}

async fn granted(store: &Sqlite, request: &AcquireRequest) -> Fence {
    match store.acquire(request).await.unwrap() {
        Acquire::Granted(grant) => grant.fence,
        Acquire::Held(contention) => panic!("{contention}"),
    }
}

async fn refused(path: impl AsRef<Path>) -> leasehold::Error {
    let error = Sqlite::open(path).await.unwrap_err();
    assert!(error.hint().is_some(), "{error:?}");
    error
}

fn raw(path: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).unwrap()
}

#[tokio::test]
async fn locks_and_fences_survive_the_processes_that_made_them() {
    let (_directory, path) = directory();
    let held = request("held");
    let (first, free) = {
        let store = Sqlite::open(&path).await.unwrap();
        let released = request("free");
        let fence = granted(&store, &released).await;
        store.release(&released.lock_id).await.unwrap();
        (granted(&store, &held).await, fence)
    };
    let store = Sqlite::open(&path).await.unwrap();
    let record = store.lookup(LookupBy::Id(&held.lock_id)).await.unwrap().unwrap();
    assert_eq!((record.fence, record.key), (first, held.key));
    assert!(granted(&store, &request("free")).await > free);
}

#[tokio::test]
async fn a_key_whose_clock_was_lost_still_gets_a_higher_fence() {
    let (_directory, path) = directory();
    let ahead = {
        let store = Sqlite::open(&path).await.unwrap();
        let request = request("k");
        granted(&store, &request).await;
        store.release(&request.lock_id).await.unwrap();
        let ahead = 20_000_000_000_000i64;
        raw(&path).execute("UPDATE locks SET fence = ?1", [ahead]).unwrap();
        u64::try_from(ahead).unwrap()
    };
    let store = Sqlite::open(&path).await.unwrap();
    assert_eq!(granted(&store, &request("k")).await.get(), ahead + 1);
}

#[tokio::test]
async fn rows_that_carry_fences_cannot_be_deleted() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    granted(&store, &request("k")).await;
    assert!(raw(&path).execute("DELETE FROM locks", []).is_err());
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let (_directory, path) = directory();
    let text = "dear diary, ".repeat(200);
    std::fs::write(&path, &text).unwrap();
    assert_eq!(refused(&path).await.code(), ErrorCode::InvalidArgument);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_left_alone() {
    let (_directory, path) = directory();
    raw(&path).execute_batch("CREATE TABLE customers (name TEXT)").unwrap();
    let error = refused(&path).await;
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.to_string().contains("another program"), "{error}");
    let tables: i64 = raw(&path).query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1);
}

#[tokio::test]
async fn a_newer_layout_is_refused_with_both_versions() {
    let (_directory, path) = directory();
    drop(Sqlite::open(&path).await.unwrap());
    raw(&path).pragma_update(None, "user_version", 7).unwrap();
    let error = refused(&path).await;
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.to_string().contains('7') && error.hint().unwrap().contains("upgrade"), "{error:?}");
}

#[tokio::test]
async fn a_corrupt_database_is_an_internal_error() {
    let (_directory, path) = directory();
    {
        let store = Sqlite::open(&path).await.unwrap();
        for n in 0..50 {
            granted(&store, &request(&format!("key-{n}"))).await;
        }
    }
    // The last connection has moved everything from the log into the file.
    until(|| !path.with_extension("db-wal").exists());
    let mut bytes = std::fs::read(&path).unwrap();
    for byte in &mut bytes[4096..] {
        *byte = 0xa5;
    }
    std::fs::write(&path, bytes).unwrap();
    let failed = match Sqlite::open(&path).await {
        Err(error) => error,
        Ok(store) => store.acquire(&request("key-1")).await.unwrap_err(),
    };
    assert_eq!(failed.code(), ErrorCode::Internal);
    assert!(failed.hint().unwrap().contains("integrity_check"));
}

fn until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[tokio::test]
async fn wrong_paths_are_refused() {
    let (directory, path) = directory();
    assert_eq!(refused(directory.path().join("missing/locks.db")).await.code(), ErrorCode::InvalidArgument);
    let error = Sqlite::open(directory.path()).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "a directory is no file");
    let no_create = SqliteOptions { create: false, ..SqliteOptions::default() };
    assert_eq!(Sqlite::open_with(&path, no_create).await.unwrap_err().code(), ErrorCode::InvalidArgument);
    assert!(!path.exists(), "and is not made");
}

#[tokio::test]
async fn a_read_only_file_is_not_allowed() {
    let (_directory, path) = directory();
    drop(Sqlite::open(&path).await.unwrap());
    std::fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    if is_root() {
        // The mode does not bind root: the locks still work.
        granted(&Sqlite::open(&path).await.unwrap(), &request("k")).await;
    } else {
        assert_eq!(refused(&path).await.code(), ErrorCode::AuthFailed);
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    String::from_utf8(id.stdout).unwrap().trim() == "0"
}

#[tokio::test]
async fn a_file_deleted_or_replaced_while_in_use_fails_everything_and_is_not_made_again() {
    for replace in [false, true] {
        let (_directory, path) = directory();
        let store = Sqlite::open(&path).await.unwrap();
        let held = request("k");
        granted(&store, &held).await;
        std::fs::remove_file(&path).unwrap();
        if replace {
            std::fs::write(&path, "").unwrap();
        }
        // It looks every few milliseconds.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let errors = [
            store.extend(&held.lock_id, Ttl::default()).await.unwrap_err(),
            store.release(&held.lock_id).await.unwrap_err(),
            store.acquire(&request("other")).await.map(drop).unwrap_err(),
            store.is_locked(&held.key).await.map(drop).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.code(), ErrorCode::Internal);
            assert!(error.to_string().contains("deleted or replaced"), "{error}");
        }
        assert_eq!(path.exists(), replace);
    }
}

/// A file system of its own, of 300 KiB. Needs the right to mount, as in a container of one's own.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=300k", "none"]).arg(directory.path()).status();
        assert!(mounted.unwrap().success(), "cannot mount a small disk; run the tests as root");
        Self(directory)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_a_typed_error_without_phantoms_and_all_is_well_when_there_is_room_again() {
    let disk = SmallDisk::new();
    let path = disk.0.path().join("locks.db");
    let filler = disk.0.path().join("filler");
    std::fs::write(&filler, vec![0; 180 * 1024]).unwrap();
    let store = Sqlite::open(&path).await.unwrap();
    let held = request("held");
    granted(&store, &held).await;
    let bulky = Metadata::new(serde_json::json!({ "notes": "x".repeat(4000) })).unwrap();
    let mut kept = Vec::new();
    let error = loop {
        let request = AcquireRequest { metadata: bulky.clone(), ..request(&format!("bulky-{}", kept.len())) };
        match store.acquire(&request).await {
            Ok(Acquire::Granted(_)) => kept.push(request),
            Ok(Acquire::Held(contention)) => panic!("{contention}"),
            Err(error) => {
                assert!(!store.is_locked(&request.key).await.unwrap(), "refused, and yet held");
                break error;
            }
        }
        assert!(kept.len() < 200, "the disk does not fill up");
    };
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
    assert!(error.to_string().contains("full"), "{error}");
    assert!(store.is_locked(&held.key).await.unwrap(), "what is held stays held");
    std::fs::remove_file(filler).unwrap();
    for request in kept.iter().chain([&held]) {
        assert_eq!(store.release(&request.lock_id).await.unwrap(), Release::Released);
    }
    let checks = store.examine().await.unwrap();
    assert_eq!(checks.iter().find(|check| check.name == "integrity").unwrap().verdict, Verdict::Ok);
}

#[tokio::test]
async fn many_operations_that_meet_share_transactions() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    // Another connection keeps the write lock until everybody is in the queue.
    let blocker = raw(&path);
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let tasks: Vec<_> = (0..200)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { granted(&store, &request(&format!("key-{n}"))).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    blocker.execute_batch("COMMIT").unwrap();
    let log_before = std::fs::metadata(path.with_extension("db-wal")).unwrap().len();
    for task in tasks {
        task.await.unwrap();
    }
    let log = std::fs::metadata(path.with_extension("db-wal")).unwrap().len() - log_before;
    // A transaction of its own would log at least three pages of 4 KiB for each of them.
    assert!(log < 200 * 3 * 4096 / 2, "{log} bytes of log");
}

#[tokio::test]
async fn one_wrong_request_does_not_spoil_the_transaction_of_the_others() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let taken = request("taken");
    granted(&store, &taken).await;
    let blocker = raw(&path);
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let good: Vec<_> = (0..10).map(|n| request(&format!("good-{n}"))).collect();
    let wrong = AcquireRequest { lock_id: taken.lock_id, ..request("wrong") };
    let (first, second) = good.split_at(5);
    let spawn = |request: &AcquireRequest| {
        let (store, request) = (store.clone(), request.clone());
        tokio::spawn(async move { store.acquire(&request).await })
    };
    let tasks: Vec<_> = first.iter().map(spawn).collect();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let wrong = spawn(&wrong);
    let more: Vec<_> = second.iter().map(spawn).collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    blocker.execute_batch("COMMIT").unwrap();
    for task in tasks.into_iter().chain(more) {
        assert!(matches!(task.await.unwrap().unwrap(), Acquire::Granted(_)));
    }
    assert_eq!(wrong.await.unwrap().unwrap_err().code(), ErrorCode::InvalidArgument);
}

#[tokio::test]
async fn a_database_that_others_keep_busy_is_unavailable_after_a_while_and_works_again_afterwards() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let blocker = raw(&path);
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let request = request("k");
    let error = store.acquire(&request).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
    assert!(error.is_retryable() && error.to_string().contains("busy"), "{error:?}");
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(error.operation(), Some(leasehold::Operation::Acquire));
    blocker.execute_batch("COMMIT").unwrap();
    granted(&store, &request).await;
}

#[tokio::test]
async fn many_processes_may_make_the_file_at_once() {
    let (_directory, path) = directory();
    let opening: Vec<_> = (0..20)
        .map(|_| {
            let path = path.clone();
            tokio::spawn(async move { Sqlite::open(path).await })
        })
        .collect();
    let mut last = None;
    for store in opening {
        let store = store.await.unwrap().unwrap();
        let request = request("k");
        let fence = granted(&store, &request).await;
        assert!(Some(fence) > last);
        last = Some(fence);
        store.release(&request.lock_id).await.unwrap();
    }
}

#[tokio::test]
async fn listeners_who_are_gone_are_struck_off() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let listeners = || raw(&path).query_row("SELECT count(*) FROM listeners", [], |row| row.get::<_, i64>(0)).unwrap();
    let key = Key::new("k").unwrap();
    let subscription = store.subscribe(Topic::Freed(&key)).await.unwrap();
    assert_eq!(listeners(), 1);
    drop(subscription);
    until(|| listeners() == 0);

    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap().to_string_lossy().into_owned();
    let namespace: String = namespace.chars().filter(char::is_ascii_digit).collect();
    let crashed = format!("leasehold-{namespace}-a-crashed-process");
    raw(&path).execute("INSERT INTO listeners VALUES ('freed:k', ?1)", [crashed]).unwrap();
    let request = request("k");
    granted(&store, &request).await;
    store.release(&request.lock_id).await.unwrap();
    until(|| listeners() == 0);
}

#[tokio::test]
async fn many_listeners_who_are_gone_hold_nobody_up() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap().to_string_lossy().into_owned();
    let namespace: String = namespace.chars().filter(char::is_ascii_digit).collect();
    let crashed = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
                   INSERT INTO listeners SELECT 'taken', ?1 || i FROM n";
    raw(&path).execute(crashed, [format!("leasehold-{namespace}-crashed-")]).unwrap();
    let request = request("k");
    granted(&store, &request).await;
    let started = Instant::now();
    // Tells all of them, and finds that nobody is there.
    store.force_release(&request.key).await.unwrap();
    let left: i64 = raw(&path).query_row("SELECT count(*) FROM listeners", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
    // One by one, each a transaction and a scan, it took seconds.
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_busy_database_fails_all_who_wait_together_and_not_one_after_the_other() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let blocker = raw(&path);
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.acquire(&request(&format!("key-{n}"))).await.map(drop) })
        })
        .collect();
    let started = Instant::now();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap_err().code(), ErrorCode::ServiceUnavailable);
    }
    // The first may be alone in its transaction, the others are not.
    assert!(started.elapsed() < Duration::from_secs(25), "{:?}", started.elapsed());
}

#[tokio::test]
async fn dead_records_are_swept_and_their_fences_kept() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let dead = AcquireRequest { ttl: Ttl::from_millis(1).unwrap(), ..request("dead") };
    let live = request("live");
    let fence = granted(&store, &dead).await;
    granted(&store, &live).await;
    let held = || {
        let sql = "SELECT count(*) FROM locks WHERE lock_id IS NOT NULL";
        raw(&path).query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(held(), 2);
    until(|| held() == 1);
    assert!(store.lookup(LookupBy::Id(&live.lock_id)).await.unwrap().is_some());
    assert!(granted(&store, &request("dead")).await > fence);
}

#[tokio::test]
async fn an_examination_finds_a_healthy_store_healthy_and_notices_what_is_not() {
    let (_directory, path) = directory();
    let url = format!("sqlite:{}?synchronous=full", path.display());
    let locks = Locks::connect(&url).await.unwrap();
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    let checks = Locks::examine(&url).await.unwrap();
    assert!(checks.iter().all(|check| check.verdict == Verdict::Ok), "{checks:?}");
    assert!(checks.iter().any(|check| check.name == "persistence" && check.detail.contains("nothing is lost")));

    raw(&path).execute("UPDATE locks SET fence = 80000000000000", []).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let checks = Locks::examine(&url).await.unwrap();
    let verdict = |name| checks.iter().find(|check| check.name == name).unwrap().verdict;
    assert_eq!((verdict("fences"), verdict("permissions")), (Verdict::Warn, Verdict::Warn));
}

#[tokio::test]
async fn a_new_file_is_for_its_owner_alone() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    granted(&store, &request("k")).await;
    for file in [path.clone(), path.with_extension("db-wal"), path.with_extension("db-shm")] {
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
    }
}

#[tokio::test]
async fn full_synchronisation_can_be_asked_for() {
    let (_directory, path) = directory();
    let options = SqliteOptions { synchronous: Synchronous::Full, ..SqliteOptions::default() };
    let store = Sqlite::open_with(&path, options).await.unwrap();
    granted(&store, &request("k")).await;
}

#[tokio::test]
async fn setting_the_wall_clock_is_no_matter() {
    let (_directory, path) = directory();
    {
        let store = Sqlite::open(&path).await.unwrap();
        granted(&store, &request("k")).await;
    }
    // As if the wall clock had been an hour ahead when the offset was agreed on.
    raw(&path).execute("UPDATE clock SET offset_us = offset_us + 3600000000", []).unwrap();
    let store = Sqlite::open(&path).await.unwrap();
    let request = request("later");
    let ahead = granted(&store, &request).await;
    drop(store);
    let store = Sqlite::open(&path).await.unwrap();
    let record = store.lookup(LookupBy::Id(&request.lock_id)).await.unwrap().unwrap();
    assert_eq!(record.fence, ahead, "both go by the agreed time, whatever the wall clock says");

    // A new boot, with a wall clock that is an hour behind the last grant.
    raw(&path).execute("UPDATE clock SET boot = 'the boot before'", []).unwrap();
    let store = Sqlite::open(&path).await.unwrap();
    let record = store.lookup(LookupBy::Id(&request.lock_id)).await.unwrap();
    assert!(record.is_some(), "time did not go back beyond the grant, nor far past it");
}
