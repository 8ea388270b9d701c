//! Many locks in one call.

use std::path::Path;

use leasehold::backend::{Absence, Backend, Extend, LookupBy, MOST_AT_ONCE, Release};
use leasehold::sqlite::Sqlite;
use leasehold::{ErrorCode, LockId, Operation, Ttl};
use test_support::{granted, request};

use crate::support::{directory, raw};

/// How many transactions the log has: each ends with a page that tells the size of the database.
fn transactions(path: &Path) -> usize {
    let log = std::fs::read(path.with_extension("db-wal")).unwrap();
    let page = u32::from_be_bytes(log[8..12].try_into().unwrap()) as usize;
    log[32..].chunks(24 + page).filter(|frame| frame[4..8] != [0; 4]).count()
}

/// As many locks as one call may be about.
async fn hold(store: &Sqlite) -> Vec<LockId> {
    let mut ids = Vec::new();
    for number in 0..MOST_AT_ONCE {
        let request = request(&format!("key-{number}"));
        granted(store, &request).await;
        ids.push(request.lock_id);
    }
    ids
}

#[tokio::test]
async fn many_locks_are_extended_and_released_in_one_transaction() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let ids = hold(&store).await;
    let ttl = Ttl::from_millis(3_600_000).unwrap();
    let before = transactions(&path);
    let locks: Vec<_> = ids.iter().map(|id| (*id, ttl)).collect();
    let extended = store.extend_many(&locks).await;
    assert_eq!(transactions(&path), before + 1);
    for (id, answer) in ids.iter().zip(extended) {
        let record = store.lookup(LookupBy::Id(id)).await.unwrap().unwrap();
        assert_eq!(answer.unwrap(), Extend::Extended { expires_at: record.expires_at });
    }
    let released = store.release_many(&ids).await;
    assert_eq!(transactions(&path), before + 2);
    assert_eq!(released.len(), ids.len());
    assert!(released.into_iter().all(|answer| answer.unwrap() == Release::Released));
    assert!(store.extend_many(&[]).await.is_empty());
}

#[tokio::test]
async fn each_of_many_locks_is_decided_on_by_itself() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let mut ids = hold(&store).await;
    let set = |id: &LockId, expiry: i64| {
        let sql = "UPDATE locks SET expires_at_ms = ?2 WHERE lock_id = ?1";
        raw(&path).execute(sql, rusqlite::params![id.expose(), expiry]).unwrap();
    };
    set(&ids[3], 1);
    // The row makes no sense.
    set(&ids[5], -1);
    ids[7] = LockId::random().unwrap();
    let locks: Vec<_> = ids.iter().map(|id| (*id, Ttl::default())).collect();
    let extended = store.extend_many(&locks).await;
    let released = store.release_many(&ids).await;
    assert_eq!((extended.len(), released.len()), (ids.len(), ids.len()));
    for (number, (extended, released)) in extended.into_iter().zip(released).enumerate() {
        match number {
            3 | 7 => {
                let absence = if number == 3 { Absence::Expired } else { Absence::NotFound };
                assert_eq!(extended.unwrap(), Extend::Absent(absence), "{number}");
                assert_eq!(released.unwrap(), Release::Absent(absence), "{number}");
            }
            5 => {
                let (extended, released) = (extended.unwrap_err(), released.unwrap_err());
                assert_eq!((extended.code(), extended.operation()), (ErrorCode::Internal, Some(Operation::Extend)));
                assert_eq!((released.code(), released.operation()), (ErrorCode::Internal, Some(Operation::Release)));
            }
            _ => {
                assert!(matches!(extended.unwrap(), Extend::Extended { .. }), "{number}");
                assert_eq!(released.unwrap(), Release::Released, "{number}");
            }
        }
    }
}
