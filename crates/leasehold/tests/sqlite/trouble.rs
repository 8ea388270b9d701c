//! What it refuses, what it survives, and that it says so.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use leasehold::backend::{Acquire, Backend, Release};
use leasehold::sqlite::{Sqlite, SqliteOptions};
use leasehold::{ErrorCode, Locks, Metadata, Ttl, Verdict};
use tempfile::TempDir;
use test_support::{eventually, granted, request};

use crate::support::{directory, raw, refused};

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
    // Everything is in the file, and the log is gone with the last connection.
    eventually("the log is gone", async || {
        raw(&path).query_row("PRAGMA wal_checkpoint", [], |_| Ok(())).unwrap();
        !path.with_extension("db-wal").exists()
    })
    .await;
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

#[tokio::test]
async fn wrong_paths_are_refused() {
    let (directory, path) = directory();
    assert_eq!(refused(directory.path().join("missing/locks.db")).await.code(), ErrorCode::InvalidArgument);
    let error = Sqlite::open(directory.path()).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "a directory is no file");
    let no_create = SqliteOptions::default().with_create(false);
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
        let request = request(&format!("bulky-{}", kept.len())).with_metadata(bulky.clone());
        match store.acquire(&request).await {
            Ok(Acquire::Granted(_)) => kept.push(request),
            Ok(other) => panic!("{other:?}"),
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
async fn an_examination_finds_a_healthy_store_healthy_and_notices_what_is_not() {
    let (_directory, path) = directory();
    let url = format!("sqlite:{}?synchronous=full", path.display());
    let locks = Locks::connect(&url).await.unwrap();
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    let checks = Locks::examine(&url).await.unwrap();
    assert!(checks.iter().all(|check| check.verdict == Verdict::Ok), "{checks:?}");
    assert!(checks.iter().any(|check| check.name == "persistence" && check.detail.contains("nothing is lost")));
    assert!(checks.iter().any(|check| check.name == "counters" && check.detail.contains(" fence counters")));

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
async fn a_link_to_the_file_leads_to_the_same_locks_and_the_same_log() {
    let (directory, path) = directory();
    let link = directory.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    // The file is made where the link leads, for its owner alone.
    let store = Sqlite::open(&link).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    granted(&store, &request("order:42")).await;
    for seen_at in [&path, &link] {
        let reader = Sqlite::open_read_only(seen_at).await.unwrap();
        assert!(reader.is_locked(&request("order:42").key).await.unwrap(), "{}", seen_at.display());
    }
    assert!(!directory.path().join("link.db-wal").exists());
}

#[tokio::test]
async fn a_handle_that_only_looks_grants_nothing_and_ends_no_lock_of_this_process() {
    let (_directory, path) = directory();
    for there in [false, true] {
        let store = if there { Some(Sqlite::open(&path).await.unwrap()) } else { None };
        let reader = Sqlite::open_read_only(&path).await.unwrap();
        let wanted = request("order:42");
        assert_eq!(reader.acquire(&wanted).await.unwrap_err().code(), ErrorCode::AuthFailed, "{there}");
        assert_eq!(reader.force_release(&wanted.key, None).await.unwrap_err().code(), ErrorCode::AuthFailed);
        assert!(!reader.is_locked(&wanted.key).await.unwrap());
        let Some(store) = store else { continue };
        granted(&store, &wanted).await;
        drop(reader);
        // Another process that closes the file as the last one takes its log away: SQLite's locks,
        // which say that we have it open, must still be there.
        let look = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT count(*) FROM locks').fetchone(); c.close()";
        assert!(Command::new("python3").args(["-c", look]).arg(&path).status().unwrap().success());
        assert!(store.is_locked(&wanted.key).await.unwrap());
        assert_eq!(store.release(&wanted.lock_id).await.unwrap(), Release::Released);
    }
}
