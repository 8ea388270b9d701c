//! Readers and permits: what their document looks like, also to programs that know neither.

use std::time::Duration;

use leasehold::backend::{Acquire, AcquireRequest, Backend, Event, Extend, Line, LookupBy, Mode, Release, Topic};
use leasehold::{ErrorCode, ListRequest, LockId, Loss};
use serde_json::{Value, json};
use test_servers::Firestore;
use test_support::{StoreServer, connect, granted, held, id, key, request, soon, stealing, ttl};

fn reader(name: &str) -> AcquireRequest {
    request(name).with_mode(Mode::Shared)
}

fn permit(name: &str, of: u16) -> AcquireRequest {
    request(name).with_mode(Mode::Permit { of: of.try_into().unwrap() })
}

fn fields(server: &Firestore, name: &str) -> Value {
    server.document(&format!("locks/{name}")).unwrap().fields
}

fn integer(value: &Value) -> u64 {
    value["integerValue"].as_str().unwrap().parse().unwrap()
}

/// All ids that a document is found by, apart from its own.
fn ids(fields: &Value) -> Vec<&str> {
    let values = fields["ids"]["arrayValue"]["values"].as_array().unwrap();
    values.iter().map(|id| id["stringValue"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_document_of_readers_and_permits_is_a_placeholder_with_those_who_hold_it_beside() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let (first, second) = (permit("order:42", 3), permit("order:42", 3));
    let grants = [granted(&*store, &first).await, granted(&*store, &second).await];
    let document = fields(&server, "order:42");
    let entry = |request: &AcquireRequest, index: usize| {
        json!({"mapValue": {"fields": {
            "lockId": {"stringValue": request.lock_id.expose()},
            "fence": {"stringValue": grants[index].fence.to_string()},
            "acquiredAtMs": {"integerValue": grants[index].acquired_at.as_millis().to_string()},
            "expiresAtMs": {"integerValue": grants[index].expires_at.as_millis().to_string()},
            "mode": {"stringValue": "permit"},
            "of": {"integerValue": "3"},
            "slot": {"integerValue": index.to_string()},
            "holder": {"stringValue": request.holder.as_str()},
        }}})
    };
    let expected = json!({
        "lockId": document["lockId"],
        "expiresAtMs": {"integerValue": grants[1].expires_at.as_millis().to_string()},
        "acquiredAtMs": {"integerValue": grants[1].acquired_at.as_millis().to_string()},
        "key": {"stringValue": "order:42"},
        "fence": {"stringValue": grants[1].fence.to_string()},
        "holder": {"stringValue": first.holder.as_str()},
        "grants": {"arrayValue": {"values": [entry(&first, 0), entry(&second, 1)]}},
        "ids": {"arrayValue": {"values": [
            {"stringValue": first.lock_id.expose()}, {"stringValue": second.lock_id.expose()},
        ]}},
    });
    assert_eq!(document, expected);
    assert!(document["lockId"]["stringValue"].as_str().unwrap().starts_with("~p"));
    let shared = reader("page");
    granted(&*store, &shared).await;
    let document = fields(&server, "page");
    let placeholder = document["lockId"]["stringValue"].as_str().unwrap();
    assert!(placeholder.starts_with("~s") && placeholder.len() == LockId::LEN, "{document}");
    assert_eq!(ids(&document), [shared.lock_id.expose()]);
    assert_eq!(store.release(&shared.lock_id).await.unwrap(), Release::Released);
    assert!(server.document("locks/page").is_none());
}

#[tokio::test]
async fn an_exclusive_lock_is_the_plain_document_whatever_was_said_of_the_line() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    for line in [Line::Ignore, Line::Heed, Line::Join { lease: ttl(9000) }] {
        let mine = request("order:42").with_line(line);
        granted(&*store, &mine).await;
        let document = fields(&server, "order:42");
        let names: Vec<_> = document.as_object().unwrap().keys().collect();
        assert_eq!(names, ["acquiredAtMs", "expiresAtMs", "fence", "holder", "key", "lockId"], "{line:?}");
        assert_eq!(document["lockId"]["stringValue"], mine.lock_id.expose());
        store.release(&mine.lock_id).await.unwrap();
        assert!(server.document("locks/order:42").is_none(), "{line:?}");
    }
}

#[tokio::test]
async fn a_placeholder_ends_with_the_last_of_those_it_stands_for() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let (long, short) = (reader("page").with_ttl(ttl(60_000)), reader("page").with_ttl(ttl(5_000)));
    let expiry = || integer(&fields(&server, "page")["expiresAtMs"]);
    let end = granted(&*store, &long).await.expires_at.as_millis();
    let short_end = granted(&*store, &short).await.expires_at.as_millis();
    assert_eq!(expiry(), end);
    let Extend::Extended { expires_at } = store.extend(&short.lock_id, ttl(90_000)).await.unwrap() else {
        panic!("lost")
    };
    assert!(expires_at.as_millis() > end && short_end < end);
    assert_eq!(expiry(), expires_at.as_millis());
    store.extend(&short.lock_id, ttl(5_000)).await.unwrap();
    assert_eq!(expiry(), end);
    store.release(&long.lock_id).await.unwrap();
    assert!(expiry() < end);
}

#[tokio::test]
async fn readers_permits_and_those_who_wait_keep_the_other_library_out_and_it_keeps_them_out() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let mut other = server.other_library().await;
    for mine in [reader("order:42"), permit("order:42", 2)] {
        granted(&*store, &mine).await;
        assert_eq!(other.acquire("order:42", &id(), 30_000).await, None, "{:?}", mine.mode);
        let waiter = request("order:42").with_line(Line::Join { lease: ttl(9000) });
        held(&*store, &waiter).await;
        store.release(&mine.lock_id).await.unwrap();
        // It is kept for the one who was called.
        let placeholder = fields(&server, "order:42")["lockId"]["stringValue"].as_str().unwrap().to_owned();
        assert!(placeholder.starts_with("~q"), "{placeholder}");
        assert_eq!(other.acquire("order:42", &id(), 30_000).await, None, "{:?}", mine.mode);
        store.release(&waiter.lock_id).await.unwrap();
        let theirs = id();
        assert!(other.acquire("order:42", &theirs, 30_000).await.is_some());
        assert_eq!(held(&*store, &mine).await.mode, Mode::Exclusive);
        assert!(other.release(&theirs).await);
    }
}

#[tokio::test]
async fn a_placeholder_that_stands_for_nobody_is_never_granted_over() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let mine = reader("page");
    granted(&*store, &mine).await;
    let whole = fields(&server, "page");
    let array = |values: Value| json!({"arrayValue": {"values": values}});
    for broken in [json!(null), array(json!([])), array(json!([{"stringValue": "x"}]))] {
        let mut fields = whole.clone();
        match broken {
            Value::Null => drop(fields.as_object_mut().unwrap().remove("grants")),
            broken => fields["grants"] = broken,
        }
        server.set_document("locks/page", &fields);
        for wanted in [request("page"), reader("page")] {
            let error = store.acquire(&wanted).await.unwrap_err();
            assert_eq!(error.code(), ErrorCode::Internal, "{error:?}");
        }
        assert_eq!(server.document("locks/page").unwrap().fields, fields, "and left as it was");
    }
}

#[tokio::test]
async fn many_of_one_key_are_extended_and_released_in_one_write() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    // So few that one question is enough for them, and so many that it is not.
    for count in [3u16, 20] {
        let mut mine: Vec<_> = (0..count).map(|_| permit("order:42", count)).collect();
        mine.push(request("order:43"));
        for request in &mine {
            granted(&*store, request).await;
        }
        let locks: Vec<_> = mine.iter().map(|request| (request.lock_id, ttl(60_000))).collect();
        server.take_counts();
        let extended = store.extend_many(&locks).await;
        assert!(extended.iter().all(|answer| matches!(answer, Ok(Extend::Extended { .. }))), "{extended:?}");
        let counts = server.take_counts();
        assert_eq!((counts.reads, counts.writes, counts.calls["BatchWrite"]), (2, 2, 1), "{counts:?}");
        let ids: Vec<_> = locks.iter().map(|(id, _)| *id).collect();
        let released = store.release_many(&ids).await;
        assert!(released.iter().all(|answer| matches!(answer, Ok(Release::Released))), "{released:?}");
        assert_eq!(server.take_counts().deletes, 2);
    }
}

#[tokio::test]
async fn a_listing_goes_through_those_who_share_a_key_page_by_page() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let mut expected = Vec::new();
    for name in ["a", "b", "c"] {
        for _ in 0..5 {
            let mine = reader(name);
            granted(&*store, &mine).await;
            expected.push(mine.lock_id);
        }
        let alone = request(&format!("{name}:alone"));
        granted(&*store, &alone).await;
        expected.push(alone.lock_id);
    }
    held(&*store, &request("b").with_line(Line::Join { lease: ttl(60_000) })).await;
    for size in [1, 2, 3, 5, 6, 7, 100] {
        let (mut found, mut wanted) = (Vec::new(), ListRequest::new("").with_page_size(size));
        loop {
            let page = store.list(&wanted).await.unwrap();
            assert!(page.records.len() <= size, "{size}");
            let has_b = page.records.iter().any(|record| record.key.as_str() == "b");
            assert_eq!(page.waiting.get(&key("b")), has_b.then_some(&1), "{size}");
            assert_eq!(page.waiting.len(), usize::from(has_b));
            found.extend(page.records.iter().map(|record| record.lock_id));
            match page.next {
                Some(next) => wanted = wanted.with_cursor(next),
                None => break,
            }
        }
        assert_eq!(found, expected, "{size}");
    }
    for nonsense in ["1.:a", "1.x:a", ".1:a", "1.000000000000007:"] {
        let error = store.list(&ListRequest::new("").with_cursor(nonsense)).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{nonsense}: {error:?}");
    }
}

#[tokio::test]
async fn every_one_of_several_that_were_taken_is_told_once() {
    for how in [Loss::Stolen, Loss::ForceReleased] {
        let server = Firestore::start();
        let store = connect(&server.url()).await;
        let mut taken = store.subscribe(Topic::Taken).await.unwrap();
        let mut fences = Vec::new();
        for _ in 0..3 {
            fences.push(granted(&*store, &reader("page")).await.fence);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        if how == Loss::Stolen {
            granted(&*store, &stealing("page", 1)).await;
        } else {
            assert_eq!(store.force_release(&key("page"), None).await.unwrap().len(), 3);
        }
        for fence in fences {
            let event = Event::Taken { key: key("page"), fence, how };
            assert_eq!(soon("the loss", taken.next()).await, Some(event));
        }
    }
}

#[tokio::test]
async fn a_watcher_hears_of_each_who_comes_to_share_a_key_also_with_one_that_has_held_it_for_long() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    granted(&*store, &reader("page")).await;
    let mut document = fields(&server, "page");
    let long_ago = json!({"integerValue": "1700000000000"});
    document["acquiredAtMs"] = long_ago.clone();
    document["grants"]["arrayValue"]["values"][0]["mapValue"]["fields"]["acquiredAtMs"] = long_ago;
    server.set_document("locks/page", &document);
    let mut watched = store.subscribe(Topic::Granted).await.unwrap();
    for _ in 0..3 {
        let mine = reader("page");
        let fence = granted(&*store, &mine).await.fence;
        let event = soon("the grant", watched.next()).await;
        assert_eq!(event, Some(Event::Granted { key: key("page"), fence, holder: Some(mine.holder.clone()) }));
        store.extend(&mine.lock_id, ttl(60_000)).await.unwrap();
    }
    let quiet = tokio::time::timeout(Duration::from_millis(150), watched.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
}

#[tokio::test]
async fn a_lock_that_cannot_be_shown_is_respected_in_every_mode_and_released_by_its_id() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let theirs = id();
    granted(&*store, &request("order:42").with_lock_id(theirs)).await;
    let mut odd = fields(&server, "order:42");
    odd["fence"] = json!({"stringValue": "seven"});
    server.set_document("locks/order:42", &odd);
    for wanted in [request("order:42"), reader("order:42").with_line(Line::Join { lease: ttl(9000) })] {
        let contention = held(&*store, &wanted).await;
        assert_eq!((contention.holders, contention.place, contention.fence), (1, None, None));
    }
    assert!(store.is_locked(&key("order:42")).await.unwrap());
    assert_eq!(store.lookup(LookupBy::Key(&key("order:42"))).await.unwrap_err().code(), ErrorCode::Internal);
    assert_eq!(store.inspect(&key("order:42")).await.unwrap_err().code(), ErrorCode::Internal);
    assert!(matches!(store.extend(&theirs, ttl(60_000)).await.unwrap(), Extend::Extended { .. }));
    assert_eq!(store.release(&theirs).await.unwrap(), Release::Released);
    assert!(matches!(store.acquire(&request("order:42")).await.unwrap(), Acquire::Granted(_)));
}
