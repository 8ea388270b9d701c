//! Locks that are shared, permits, and several locks at once.

use std::num::NonZeroU16;

use leasehold::backend::{Absence, AcquireAll, AcquireRequest, Backend, Extend, LookupBy, Mode, Release};
use leasehold::sqlite::Sqlite;
use leasehold::{ErrorCode, ListRequest, LockId, Ttl, Verdict};
use test_support::{check, eventually, granted, held, key, request};

use crate::support::{count, directory, raw, reader, waiter, waits};

fn permit(name: &str, of: u16) -> AcquireRequest {
    request(name).with_mode(Mode::Permit { of: NonZeroU16::new(of).unwrap() })
}

async fn all(store: &Sqlite, names: &[&str]) -> AcquireAll {
    let requests: Vec<_> = names.iter().map(|name| request(name)).collect();
    store.acquire_all(&requests).await.unwrap()
}

#[tokio::test]
async fn placeholders_cannot_be_looked_up_extended_or_released() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let held_by_one = request("kept");
    granted(&store, &held_by_one).await;
    waits(&store, &waiter("kept"), 0).await;
    store.release(&held_by_one.lock_id).await.unwrap();
    granted(&store, &reader("shared")).await;
    granted(&store, &permit("permits", 2)).await;
    let ids = |sql: &str| -> Vec<String> {
        let database = raw(&path);
        let mut statement = database.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let placeholders = ids("SELECT lock_id FROM locks ORDER BY lock_id");
    assert_eq!(placeholders.iter().map(|id| &id[..2]).collect::<Vec<_>>(), ["-p", "-q", "-s"]);
    for placeholder in &placeholders {
        let id: LockId = placeholder.parse().unwrap();
        assert_eq!(store.release(&id).await.unwrap(), Release::Absent(Absence::NotFound));
        assert_eq!(store.extend(&id, Ttl::default()).await.unwrap(), Extend::Absent(Absence::NotFound));
        assert_eq!(store.lookup(LookupBy::Id(&id)).await.unwrap(), None);
    }
    assert_eq!(ids("SELECT lock_id FROM locks ORDER BY lock_id"), placeholders);
    assert!(!store.is_locked(&key("kept")).await.unwrap());
    let listed = store.list(&ListRequest::new("")).await.unwrap().records;
    assert_eq!(listed.iter().map(|record| record.key.as_str()).collect::<Vec<_>>(), ["permits", "shared"]);
}

#[tokio::test]
async fn a_lock_id_that_looks_like_a_placeholder_is_one_for_no_key_but_its_own() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let odd = request("k").with_lock_id("-s00000000000000000000".parse().unwrap());
    let fence = granted(&store, &odd).await.fence;
    assert_eq!(store.lookup(LookupBy::Id(&odd.lock_id)).await.unwrap().unwrap().fence, fence);
    assert!(matches!(store.extend(&odd.lock_id, Ttl::default()).await.unwrap(), Extend::Extended { .. }));
    assert_eq!(store.release(&odd.lock_id).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn an_id_has_one_key_whatever_it_does_there() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let (alone, shares, waiting) = (request("alone"), reader("shared"), waiter("alone"));
    granted(&store, &alone).await;
    granted(&store, &shares).await;
    waits(&store, &waiting, 0).await;
    for taken in [&alone, &shares, &waiting] {
        for name in ["free", "shared"] {
            if taken.key.as_str() == name {
                continue;
            }
            for wanted in [request(name), reader(name), waiter(name)] {
                let wanted = wanted.with_lock_id(taken.lock_id);
                if name == "shared" && wanted.is_plain() && taken.key.as_str() == "alone" {
                    // Whoever is refused anyway need not hear that.
                    continue;
                }
                let error = store.acquire(&wanted).await.unwrap_err();
                assert_eq!(error.code(), ErrorCode::InvalidArgument, "{wanted:?}");
            }
        }
        let both = [request("free"), request("more").with_lock_id(taken.lock_id)];
        assert_eq!(store.acquire_all(&both).await.unwrap_err().code(), ErrorCode::InvalidArgument);
        assert!(!store.is_locked(&key("free")).await.unwrap());
    }
}

#[tokio::test]
async fn several_locks_are_taken_in_one_transaction_or_none_is() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let AcquireAll::Granted(grants) = all(&store, &["a", "b", "c"]).await else { panic!("held") };
    assert!(grants.iter().all(|grant| grant.fence == grants[0].fence));
    let AcquireAll::Held { which, .. } = all(&store, &["d", "b"]).await else { panic!("granted") };
    assert_eq!(which, 1);
    assert!(!store.is_locked(&key("d")).await.unwrap());
    let twice = request("e");
    for wrong in [
        vec![twice.clone(), request("e")],
        vec![twice.clone(), request("f").with_lock_id(twice.lock_id)],
        (0..33).map(|number| request(&format!("key-{number}"))).collect(),
    ] {
        let error = store.acquire_all(&wrong).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
    }
    assert!(!store.is_locked(&key("e")).await.unwrap());
}

#[tokio::test]
async fn a_row_that_makes_no_sense_lets_nobody_in_and_leaves_nothing_half_done() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let (first, second) = (reader("k"), reader("k"));
    granted(&store, &first).await;
    granted(&store, &second).await;
    waits(&store, &waiter("k"), 0).await;
    let odd = raw(&path);
    odd.execute_batch("PRAGMA ignore_check_constraints = on").unwrap();
    let tables =
        "CREATE TEMP TABLE kept_grants AS SELECT * FROM grants; CREATE TEMP TABLE kept_line AS SELECT * FROM line";
    odd.execute_batch(tables).unwrap();
    for wrong in [
        "UPDATE grants SET expires_at_ms = 9223372036854775807, mode = 'borrowed'",
        "UPDATE grants SET acquired_at_ms = -1",
        "UPDATE grants SET lock_id = 'short' WHERE fence = (SELECT min(fence) FROM grants)",
        "UPDATE grants SET holder = x'ff'",
        "UPDATE grants SET metadata = '['",
        "UPDATE grants SET fence = -fence",
        "UPDATE line SET mode = 'permit', permits = 0",
        "UPDATE line SET mode = 'permit', permits = 70000",
        "UPDATE line SET until_ms = 'never'",
        "UPDATE line SET since_ms = -1",
        "UPDATE line SET lock_id = '-'",
        "UPDATE line SET holder = ''",
    ] {
        odd.execute(wrong, []).unwrap();
        let wanted = [waiter("k"), reader("k"), request("k"), permit("k", 3)];
        for request in &wanted {
            let error = store.acquire(request).await.unwrap_err();
            assert_eq!(error.code(), ErrorCode::Internal, "{wrong}");
        }
        let error = store.acquire_all(&[request("free"), reader("k")]).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Internal, "{wrong}");
        assert!(!store.is_locked(&key("free")).await.unwrap());
        let back = "DELETE FROM grants; INSERT INTO grants SELECT * FROM kept_grants;
                    DELETE FROM line; INSERT INTO line SELECT * FROM kept_line";
        odd.execute_batch(back).unwrap();
    }
    let inspected = store.inspect(&first.key).await.unwrap();
    assert_eq!((inspected.holders.len(), inspected.waiters.len()), (2, 1));
    for id in [first.lock_id, second.lock_id] {
        assert_eq!(store.release(&id).await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn an_examination_tells_of_grants_and_places_whose_times_make_no_sense() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    granted(&store, &reader("k")).await;
    waits(&store, &waiter("k"), 0).await;
    let verdict = async || check(&store.examine().await.unwrap(), "rows").verdict;
    for (wrong, right) in [
        ("UPDATE grants SET acquired_at_ms = -acquired_at_ms", "UPDATE grants SET acquired_at_ms = -acquired_at_ms"),
        ("UPDATE line SET until_ms = until_ms + 400000000000", "UPDATE line SET until_ms = until_ms - 400000000000"),
    ] {
        assert_eq!(verdict().await, Verdict::Ok);
        raw(&path).execute(wrong, []).unwrap();
        assert_eq!(verdict().await, Verdict::Warn, "{wrong}");
        raw(&path).execute(right, []).unwrap();
    }
}

#[tokio::test]
async fn dead_grants_are_swept_and_their_fences_kept() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let fence = granted(&store, &reader("k").with_ttl(Ttl::from_millis(1).unwrap())).await.fence;
    eventually("none is left", async || count(&path, "SELECT count(*) FROM grants") == 0).await;
    assert_eq!(count(&path, "SELECT count(*) FROM locks WHERE lock_id IS NOT NULL"), 0);
    assert!(granted(&store, &reader("k")).await.fence > fence);
}

#[tokio::test]
async fn a_thousand_readers_are_listed_page_by_page() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    for _ in 0..1000 {
        granted(&store, &reader("k")).await;
    }
    granted(&store, &request("l")).await;
    waits(&store, &waiter("k"), 0).await;
    let mut seen = Vec::new();
    let mut page = store.list(&ListRequest::new("").with_page_size(300)).await.unwrap();
    loop {
        assert_eq!(page.waiting.get(&key("k")), page.records.iter().any(|it| it.key == key("k")).then_some(&1));
        seen.extend(page.records.iter().map(|record| record.lock_id));
        let Some(next) = page.next else { break };
        page = store.list(&ListRequest::new("").with_page_size(300).with_cursor(next)).await.unwrap();
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 1001);
    assert_eq!(held(&store, &request("k")).await.holders, 1000);
}
