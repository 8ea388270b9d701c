//! Rows that are no locks break nothing, and are told of without being repeated.

use leasehold::backend::{Absence, Backend, LookupBy, Release};
use leasehold::{Error, ErrorCode, ListRequest};
use test_servers::Postgres as Server;
use test_support::postgres::now;
use test_support::{everything_said, held, id, key, request, ttl};

use crate::support::{connect, server};

fn put(
    server: &Server,
    key: &str,
    lock_id: &str,
    (until, since): (i64, i64),
    fence: &str,
    user_key: &str,
    details: &str,
) {
    server.sql(&format!(
        "INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, details)
        VALUES ('{key}', '{lock_id}', {until}, {since}, '{fence}', '{user_key}', {details})"
    ));
}

/// Something that is not a lock, said as an error that says what to do and repeats nothing.
#[track_caller]
fn assert_not_a_lock(error: &Error, what: &str) {
    assert_eq!(error.code(), ErrorCode::Internal, "{what}: {error:?}");
    assert!(error.hint().is_some_and(|hint| hint.contains("remove the row")), "{what}: {error:?}");
    assert!(!everything_said(error).contains("s3cret"), "{what}: {error:?}");
}

#[tokio::test]
async fn a_row_with_an_odd_id_or_fence_is_held_against_us_and_an_error_to_who_asks_for_it() {
    let server = server().await;
    let store = connect(&server).await;
    let until = i64::try_from(now(&server)).unwrap() + 60_000;
    let good = id();
    for (name, lock_id, fence) in [
        ("id", "s3cret", "000000000000001"),
        ("fence", good.expose(), "s3cret"),
        ("negative", "AAAAAAAAAAAAAAAAAAAAAA", "-00000000000001"),
        ("beyond", "BBBBBBBBBBBBBBBBBBBBBA", "999999999999999"),
        ("empty", "CCCCCCCCCCCCCCCCCCCCCA", ""),
    ] {
        put(&server, name, lock_id, (until, 1), fence, name, "NULL");
        assert_eq!(held(&store, &request(name)).await.holder, None);
        assert!(store.is_locked(&key(name)).await.unwrap());
        assert_not_a_lock(&store.lookup(LookupBy::Key(&key(name))).await.unwrap_err(), name);
        assert_not_a_lock(&store.force_release(&key(name), None).await.unwrap_err(), name);
        assert!(!store.is_locked(&key(name)).await.unwrap(), "{name}: force removes it all the same");
    }
}

#[tokio::test]
async fn times_that_cannot_be_are_taken_for_what_they_are() {
    let server = server().await;
    let store = connect(&server).await;
    put(&server, "ever", id().expose(), (i64::MAX, i64::MIN), "000000000000001", "ever", "NULL");
    put(&server, "never", id().expose(), (i64::MIN, i64::MAX), "000000000000001", "never", "NULL");
    let contention = held(&store, &request("ever")).await;
    assert!(contention.expires_at > contention.now && contention.acquired_at.as_millis() == 0, "{contention:?}");
    assert!(store.lookup(LookupBy::Key(&key("ever"))).await.unwrap().is_some());
    assert!(!store.is_locked(&key("never")).await.unwrap());
    assert!(store.acquire(&request("never")).await.is_ok());
}

#[tokio::test]
async fn details_of_any_shape_are_no_error() {
    let server = server().await;
    let store = connect(&server).await;
    let until = i64::try_from(now(&server)).unwrap() + 60_000;
    for (number, details) in [
        "null",
        "1",
        "\"text\"",
        "[]",
        "{}",
        "{\"lockId\": 1}",
        "{\"lockId\": \"ID\", \"holder\": 7, \"metadata\": {}}",
    ]
    .into_iter()
    .enumerate()
    {
        let (name, lock_id) = (format!("order:{number}"), id());
        let details = format!("'{}'", details.replace("ID", lock_id.expose()));
        put(&server, &name, lock_id.expose(), (until, 1), "000000000000001", &name, &details);
        assert_eq!(held(&store, &request(&name)).await.holder, None);
        let mut same_holder = request(&name);
        same_holder.steal = leasehold::Steal::NEVER.with_same_holder();
        held(&store, &same_holder).await;
        let record = store.lookup(LookupBy::Id(&lock_id)).await.unwrap().unwrap();
        assert_eq!((record.holder, record.metadata.is_empty()), (None, true));
        assert!(store.extend(&lock_id, ttl(90_000)).await.is_ok());
        assert_eq!(store.release(&lock_id).await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn a_listing_passes_over_garbage_and_ends_behind_the_last_lock() {
    let server = server().await;
    let store = connect(&server).await;
    let until = i64::try_from(now(&server)).unwrap() + 60_000;
    for number in 0..7 {
        put(
            &server,
            &format!("a{number}"),
            &format!("garbage {number}"),
            (until, 1),
            "1",
            &format!("a{number}"),
            "NULL",
        );
        let real = id();
        put(
            &server,
            &format!("b{number}"),
            real.expose(),
            (until, 1),
            "000000000000001",
            &format!("b{number}"),
            "NULL",
        );
    }
    // A key that is stored under another name than its own comes late by the one, and first by the
    // other.
    put(&server, "c", id().expose(), (until, 1), "000000000000001", "\u{1}first", "NULL");
    put(&server, "d", id().expose(), (until, 1), "000000000000001", "d", "NULL");
    for limit in [1, 2, 3, 7, 100] {
        let (mut found, mut cursor) = (Vec::new(), None);
        for _ in 0..40 {
            let mut request = ListRequest::new("").with_page_size(limit);
            if let Some(cursor) = cursor.take() {
                request = request.with_cursor(cursor);
            }
            let page = store.list(&request).await.unwrap();
            assert!(page.records.len() <= limit);
            found.extend(page.records.into_iter().map(|record| record.key.as_str().to_owned()));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, ["b0", "b1", "b2", "b3", "b4", "b5", "b6", "\u{1}first", "d"], "pages of {limit}");
    }
}

#[tokio::test]
async fn an_id_that_is_another_keys_is_refused_while_that_is_held_and_free_afterwards() {
    let server = server().await;
    let store = connect(&server).await;
    let mine = request("order:42");
    assert!(store.acquire(&mine).await.is_ok());
    let elsewhere = request("order:43").with_lock_id(mine.lock_id);
    let error = store.acquire(&elsewhere).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
    assert!(!store.is_locked(&key("order:43")).await.unwrap());
    assert!(store.is_locked(&key("order:42")).await.unwrap());
    server.sql("UPDATE syncguard_locks SET expires_at_ms = 1");
    assert!(store.acquire(&elsewhere).await.is_ok());
    assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released);
    assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Absent(Absence::NotFound));
}
