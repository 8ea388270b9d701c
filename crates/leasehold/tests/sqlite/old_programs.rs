//! Programs on the same file that know neither lines nor shared locks: what they write and read,
//! statement by statement. Their schema is the one in `schema.sql`, which has not changed.

use std::path::Path;

use leasehold::backend::{Acquire, Backend, Event, LookupBy, Topic};
use leasehold::sqlite::Sqlite;
use leasehold::{ErrorCode, ListRequest, LockId};
use test_support::{granted, held, key, request, soon};

use crate::support::{count, directory, raw, reader, waiter, waits};

/// A file that only such a program has ever opened.
fn old_file(path: &Path) {
    let file = raw(path);
    file.pragma_update(None, "journal_mode", "wal").unwrap();
    file.execute_batch(include_str!("../../src/sqlite/schema.sql")).unwrap();
    file.pragma_update(None, "application_id", 0x6c65_6173).unwrap();
    file.pragma_update(None, "user_version", 1).unwrap();
}

fn has_tables(path: &Path) -> bool {
    count(path, "SELECT count(*) FROM sqlite_schema WHERE name IN ('grants', 'line')") == 2
}

/// Whether such a program finds the lock held: it reads the row as a lock, and fails if it is none.
fn is_held(path: &Path, name: &str, now_ms: u64) -> bool {
    let sql = "SELECT lock_id, expires_at_ms, holder FROM locks WHERE key = ?1";
    let row = raw(path).query_row(sql, [name], |row| {
        Ok((row.get::<_, Option<String>>(0)?, row.get::<_, i64>(1)?, row.get::<_, Option<String>>(2)?))
    });
    let (id, expires_at, holder) = row.unwrap();
    holder.inspect(|name| drop(leasehold::Holder::new(name).unwrap()));
    id.map(|id| id.parse::<LockId>().unwrap()).is_some() && u64::try_from(expires_at).unwrap() + 1000 > now_ms
}

#[tokio::test]
async fn they_see_a_held_lock_where_somebody_shares_it_or_was_called() {
    let (_directory, path) = directory();
    old_file(&path);
    let store = Sqlite::open(&path).await.unwrap();
    let now = async || store.now().await.unwrap().as_millis();
    let shares = reader("k");
    granted(&store, &shares).await;
    assert!(is_held(&path, "k", now().await));
    let first = waiter("k");
    waits(&store, &first, 0).await;
    store.release(&shares.lock_id).await.unwrap();
    assert!(is_held(&path, "k", now().await), "kept for the first in line");
    store.release(&first.lock_id).await.unwrap();
    assert!(!is_held(&path, "k", now().await), "for nobody");
    assert_eq!(count(&path, "PRAGMA user_version"), 1);
}

#[tokio::test]
async fn what_they_end_by_force_is_over_for_all_who_shared_it() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let readers = [reader("k"), reader("k")];
    for request in &readers {
        granted(&store, request).await;
    }
    let forced = "UPDATE locks SET lock_id = NULL, holder = NULL, metadata = NULL WHERE key = 'k'";
    raw(&path).execute(forced, []).unwrap();
    for request in &readers {
        assert_eq!(store.lookup(LookupBy::Id(&request.lock_id)).await.unwrap(), None);
    }
    assert!(store.list(&ListRequest::new("")).await.unwrap().records.is_empty());
    // Nor does it come to life again with others.
    let later = reader("k");
    granted(&store, &later).await;
    assert_eq!(store.inspect(&later.key).await.unwrap().holders.len(), 1);
    granted(&store, &readers[0]).await;
    assert_eq!(store.inspect(&later.key).await.unwrap().holders.len(), 2);
}

#[tokio::test]
async fn those_in_line_hear_when_they_release_a_lock() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let theirs = request("k");
    granted(&store, &theirs).await;
    let first = waiter("k");
    waits(&store, &first, 0).await;
    let mut turn = store.subscribe(Topic::Turn(&first.key, &first.lock_id)).await.unwrap();
    let old = raw(&path);
    old.execute("UPDATE locks SET lock_id = NULL WHERE lock_id = ?1", [theirs.lock_id.expose()]).unwrap();
    let address: String =
        old.query_row("SELECT address FROM listeners WHERE topic = 'freed:k'", [], |row| row.get(0)).unwrap();
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    socket.send_to(b"Fk", path.with_extension("db-listeners").join(address)).unwrap();
    assert_eq!(soon("that it is free", turn.next()).await, Some(Event::Freed));
    granted(&store, &first).await;
}

#[tokio::test]
async fn whoever_only_looks_reads_their_files_and_sees_what_comes_later() {
    for in_use in [false, true] {
        let (_directory, path) = directory();
        old_file(&path);
        let old = raw(&path);
        old.execute("INSERT INTO locks VALUES ('old', 7, '0123456789012345678901', 1, 9000000000000, NULL, NULL)", [])
            .unwrap();
        let _keeps_the_log = in_use.then_some(old);
        let looker = Sqlite::open_read_only(&path).await.unwrap();
        assert!(looker.is_locked(&key("old")).await.unwrap());
        assert_eq!(looker.list(&ListRequest::new("")).await.unwrap().records.len(), 1);
        assert_eq!(looker.inspect(&key("old")).await.unwrap().holders.len(), 1);
        assert!(!has_tables(&path), "looking makes nothing");

        let store = Sqlite::open(&path).await.unwrap();
        assert!(has_tables(&path));
        granted(&store, &reader("new")).await;
        waits(&store, &waiter("new"), 0).await;
        let inspected = looker.inspect(&key("new")).await.unwrap();
        assert_eq!((inspected.holders.len(), inspected.waiters.len()), (1, 1), "{in_use}");
        let page = looker.list(&ListRequest::new("")).await.unwrap();
        assert_eq!((page.records.len(), page.waiting.len()), (2, 1));
        let error = looker.acquire_all(&[request("x")]).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::AuthFailed);
        assert!(matches!(store.acquire(&request("old")).await.unwrap(), Acquire::Held(_)));
        assert_eq!(held(&store, &request("new")).await.holders, 1);
    }
}
