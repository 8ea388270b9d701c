//! What outlives the processes that made it, and time.

use leasehold::Ttl;
use leasehold::backend::{Backend, LookupBy};
use leasehold::sqlite::{Sqlite, SqliteOptions, Synchronous};
use test_support::{eventually, granted, request};

use crate::support::{directory, raw};

#[tokio::test]
async fn locks_and_fences_survive_the_processes_that_made_them() {
    let (_directory, path) = directory();
    let held = request("held");
    let (first, free) = {
        let store = Sqlite::open(&path).await.unwrap();
        let released = request("free");
        let fence = granted(&store, &released).await.fence;
        store.release(&released.lock_id).await.unwrap();
        (granted(&store, &held).await.fence, fence)
    };
    let store = Sqlite::open(&path).await.unwrap();
    let record = store.lookup(LookupBy::Id(&held.lock_id)).await.unwrap().unwrap();
    assert_eq!((record.fence, record.key), (first, held.key));
    assert!(granted(&store, &request("free")).await.fence > free);
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
    assert_eq!(granted(&store, &request("k")).await.fence.get(), ahead + 1);
}

#[tokio::test]
async fn rows_that_carry_fences_cannot_be_deleted() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    granted(&store, &request("k")).await;
    assert!(raw(&path).execute("DELETE FROM locks", []).is_err());
}

#[tokio::test]
async fn dead_records_are_swept_and_their_fences_kept() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let dead = request("dead").with_ttl(Ttl::from_millis(1).unwrap());
    let live = request("live");
    let fence = granted(&store, &dead).await.fence;
    granted(&store, &live).await;
    let held = || {
        let sql = "SELECT count(*) FROM locks WHERE lock_id IS NOT NULL";
        raw(&path).query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(held(), 2);
    eventually("one holds it", async || held() == 1).await;
    assert!(store.lookup(LookupBy::Id(&live.lock_id)).await.unwrap().is_some());
    assert!(granted(&store, &request("dead")).await.fence > fence);
}

#[tokio::test]
async fn full_synchronisation_can_be_asked_for() {
    let (_directory, path) = directory();
    let options = SqliteOptions::default().with_synchronous(Synchronous::Full);
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
    let ahead = granted(&store, &request).await.fence;
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

/// Whether this process has the file open.
fn is_open(path: &std::path::Path) -> bool {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|file| file == path)
}

#[tokio::test]
async fn a_short_log_stays_and_a_long_one_is_written_back_when_the_file_is_closed() {
    let (_directory, path) = directory();
    let log = || std::fs::metadata(path.with_extension("db-wal")).unwrap().len();
    let store = Sqlite::open(&path).await.unwrap();
    granted(&store, &request("k")).await;
    drop(store);
    eventually("it is closed", async || !is_open(&path)).await;
    assert_ne!(log(), 0);

    let store = Sqlite::open(&path).await.unwrap();
    let mut number = 0;
    while log() <= 1024 * 1024 {
        granted(&store, &request(&format!("key-{number}"))).await;
        number += 1;
    }
    drop(store);
    eventually("it is written back", async || log() == 0).await;
    let store = Sqlite::open(&path).await.unwrap();
    let last = leasehold::Key::new(&format!("key-{}", number - 1)).unwrap();
    assert!(store.lookup(LookupBy::Key(&last)).await.unwrap().is_some());
}

/// A power cut leaves a log that ends somewhere.
#[tokio::test]
async fn a_log_that_was_torn_loses_the_last_locks_and_no_fence_comes_again() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let early = granted(&store, &request("early")).await.fence;
    let late = granted(&store, &request("late")).await.fence;
    drop(store);
    eventually("it is closed", async || !is_open(&path)).await;
    let log = std::fs::File::options().write(true).open(path.with_extension("db-wal")).unwrap();
    log.set_len(log.metadata().unwrap().len() - 100).unwrap();
    std::fs::remove_file(path.with_extension("db-shm")).unwrap();

    let store = Sqlite::open(&path).await.unwrap();
    let held = store.lookup(LookupBy::Key(&leasehold::Key::new("early").unwrap())).await.unwrap();
    assert_eq!(held.map(|record| record.fence), Some(early), "what came before is there");
    assert!(granted(&store, &request("late")).await.fence > late);
}
