//! Times in the file that make no sense.

use leasehold::backend::{Acquire, Backend};
use leasehold::sqlite::Sqlite;
use leasehold::{ErrorCode, Verdict};
use test_support::{check, granted, request};

use crate::support::{directory, raw, refused};

/// A hundred years, in microseconds.
const CENTURY_US: i64 = 100 * 365 * 24 * 60 * 60 * 1_000_000;

#[tokio::test]
async fn a_clock_that_makes_no_sense_is_refused_and_lets_nobody_in() {
    let (_directory, path) = directory();
    let held = request("k");
    granted(&Sqlite::open(&path).await.unwrap(), &held).await;
    let offset: i64 = raw(&path).query_row("SELECT offset_us FROM clock", [], |row| row.get(0)).unwrap();
    for wrong in [i64::MAX, i64::MIN, offset + CENTURY_US, -CENTURY_US] {
        raw(&path).execute("UPDATE clock SET offset_us = ?1", [wrong]).unwrap();
        let error = refused(&path).await;
        assert_eq!(error.code(), ErrorCode::Internal, "{wrong}");
        assert!(error.to_string().contains("clock"), "{error}");
    }
    raw(&path).execute("UPDATE clock SET offset_us = ?1", [offset]).unwrap();
    let store = Sqlite::open(&path).await.unwrap();
    assert!(store.is_locked(&held.key).await.unwrap(), "what was held is held");
}

#[tokio::test]
async fn a_last_grant_that_makes_no_sense_does_not_set_the_clock_of_the_next_boot() {
    let (_directory, path) = directory();
    granted(&Sqlite::open(&path).await.unwrap(), &request("k")).await;
    raw(&path).execute("UPDATE clock SET boot = 'the boot before'", []).unwrap();
    for wrong in [i64::MAX, i64::MAX / 1000, 10_000_000_000_000] {
        raw(&path).execute("UPDATE locks SET acquired_at_ms = ?1", [wrong]).unwrap();
        assert_eq!(refused(&path).await.code(), ErrorCode::Internal, "{wrong}");
    }
    // What the documentation tells to do.
    raw(&path)
        .execute_batch(
            "DELETE FROM clock; UPDATE locks SET lock_id = NULL, holder = NULL, metadata = NULL, acquired_at_ms = 0;",
        )
        .unwrap();
    granted(&Sqlite::open(&path).await.unwrap(), &request("k")).await;
}

#[tokio::test]
async fn an_expiry_that_makes_no_sense_lets_nobody_in() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    granted(&store, &request("k")).await;
    for column in ["expires_at_ms", "acquired_at_ms"] {
        raw(&path).execute(&format!("UPDATE locks SET {column} = -{column}"), []).unwrap();
        let error = store.acquire(&request("k")).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Internal);
        raw(&path).execute(&format!("UPDATE locks SET {column} = -{column}"), []).unwrap();
        assert!(matches!(store.acquire(&request("k")).await.unwrap(), Acquire::Held(_)));
    }
}

#[tokio::test]
async fn an_examination_tells_of_times_that_make_no_sense() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    granted(&store, &request("k")).await;
    let verdicts = async || {
        let checks = store.examine().await.unwrap();
        (check(&checks, "rows").verdict, check(&checks, "boot clock").verdict)
    };
    assert_eq!(verdicts().await, (Verdict::Ok, Verdict::Ok));
    for wrong in ["acquired_at_ms = -1", "expires_at_ms = -1", "expires_at_ms = 9223372036854775807"] {
        let rows = "CREATE TEMP TABLE kept AS SELECT key, acquired_at_ms, expires_at_ms FROM locks";
        let back = "UPDATE locks SET acquired_at_ms = kept.acquired_at_ms, expires_at_ms = kept.expires_at_ms
                    FROM kept WHERE kept.key = locks.key";
        let other = raw(&path);
        other.execute_batch(rows).unwrap();
        other.execute(&format!("UPDATE locks SET {wrong}"), []).unwrap();
        assert_eq!(verdicts().await, (Verdict::Warn, Verdict::Ok), "{wrong}");
        other.execute(back, []).unwrap();
        assert_eq!(verdicts().await, (Verdict::Ok, Verdict::Ok));
    }
    raw(&path).execute("UPDATE clock SET offset_us = offset_us + 5000000", []).unwrap();
    assert_eq!(verdicts().await, (Verdict::Ok, Verdict::Fail), "others will go by another time");
}
