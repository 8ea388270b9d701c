//! What it takes to see all locks.

use std::collections::{BTreeMap, HashMap};

use leasehold::backend::{Backend, Record, Release};
use leasehold::redis::Redis;
use leasehold::{ListRequest, LockId};
use test_servers::Redis as Server;
use test_support::redis::{HELD, Other, exists, get, index_of, record_of};
use test_support::{check, eventually, granted, held, id, key, request, stealing, ttl};

use crate::support::{connect, joining, permit, shared};

/// Makes the counters of keys that were locked once, and are free.
fn lock_once(server: &Server, keys: usize) {
    let script = "for i = 1, ARGV[1] do
        redis.call('SET', 'syncguard:fence:syncguard:order:' .. i, '17000000000000')
      end";
    server.cli(&["EVAL", script, "0", &keys.to_string()]);
}

async fn everything(store: &Redis, prefix: &str) -> Vec<Record> {
    let (mut records, mut request) = (Vec::new(), ListRequest::new(prefix));
    loop {
        let page = store.list(&request).await.unwrap();
        records.extend(page.records);
        match page.next {
            Some(next) => request = ListRequest::new(prefix).with_cursor(next),
            None => return records,
        }
    }
}

#[tokio::test]
async fn counters_of_keys_that_nobody_holds_are_never_read() {
    let server = Server::start();
    let store = connect(&server).await;
    lock_once(&server, 10_000);
    server.cli(&["CONFIG", "RESETSTAT"]);
    assert_eq!(everything(&store, "").await, []);
    assert_eq!((server.calls("scan"), server.calls("mget")), (0, 0), "nothing is held, which the server knows");

    let (mine, theirs) = (request("order:5"), id());
    granted(&store, &mine).await;
    Other(&server).acquire("order:7", &theirs, 60_000).unwrap();
    for prefix in ["", "o", "order:"] {
        server.cli(&["CONFIG", "RESETSTAT"]);
        let mut found: Vec<_> = everything(&store, prefix).await.into_iter().map(|record| record.lock_id).collect();
        found.sort_by_key(|id| id.expose() != mine.lock_id.expose());
        assert_eq!(found, [mine.lock_id, theirs], "{prefix}");
        // A step that finds something reads it, and its index if that led there.
        assert!(server.calls("mget") <= 4, "{prefix}: {} reads", server.calls("mget"));
    }
    assert_eq!(everything(&store, "f").await, []);
}

/// How many keys the server looked at since this was asked last.
fn keys_looked_at(server: &Server) -> u64 {
    let count = |field| server.info("stats", field).unwrap().parse::<u64>().unwrap();
    let looked_at = count("keyspace_hits") + count("keyspace_misses");
    server.cli(&["CONFIG", "RESETSTAT"]);
    looked_at
}

/// Takes the locks of `NAME:1` and so on, and returns their lock ids in order.
async fn hold(store: &Redis, name: &str, locks: usize) -> Vec<LockId> {
    let mut ids = Vec::new();
    for number in 0..locks {
        let request = request(&format!("{name}:{number}"));
        granted(store, &request).await;
        ids.push(request.lock_id);
    }
    sorted(ids)
}

fn sorted(mut ids: Vec<LockId>) -> Vec<LockId> {
    ids.sort_by(|a, b| a.expose().cmp(b.expose()));
    ids
}

async fn listed(store: &Redis, prefix: &str) -> Vec<LockId> {
    sorted(everything(store, prefix).await.into_iter().map(|record| record.lock_id).collect())
}

#[tokio::test]
async fn a_listing_costs_what_is_held_and_not_what_was_ever_held() {
    let server = Server::start();
    let store = connect(&server).await;
    lock_once(&server, 10_000);
    let mut held = hold(&store, "invoice", 20).await;
    for prefix in ["", "invoice:"] {
        keys_looked_at(&server);
        assert_eq!(listed(&store, prefix).await, held, "{prefix}");
        assert_eq!(server.calls("scan"), 0, "{prefix}");
        // Each of the 20 is counted, and read, and so are the two sets.
        let looked_at = keys_looked_at(&server);
        assert!(looked_at <= 2 * 20 + 4, "{prefix}: {looked_at} keys");
    }
    held.extend(hold(&store, "order", 300).await);
    held = sorted(held);
    keys_looked_at(&server);
    assert_eq!(listed(&store, "").await, held);
    assert_eq!(server.calls("scan"), 0);
    let looked_at = keys_looked_at(&server);
    assert!(looked_at <= 2 * 320 + 40, "{looked_at} keys");
}

#[tokio::test]
async fn locks_that_others_took_are_listed_among_ours() {
    let server = Server::start();
    let store = connect(&server).await;
    lock_once(&server, 5_000);
    let mut held = hold(&store, "invoice", 20).await;
    for number in 0..3 {
        let theirs = id();
        Other(&server).acquire(&format!("theirs:{number}"), &theirs, 60_000).unwrap();
        held.push(theirs);
        assert_eq!(listed(&store, "").await, sorted(held.clone()));
        // As many locks of ours that are gone do not make up for it.
        server.cli(&["SADD", HELD, &record_of(&format!("gone:{number}"))]);
        assert_eq!(listed(&store, "").await, sorted(held.clone()));
    }
    assert_eq!(listed(&store, "theirs:").await, sorted(held.split_off(20)));
}

#[tokio::test]
async fn names_of_others_that_expire_hide_no_lock() {
    let server = Server::start();
    let store = connect(&server).await;
    server.cli(&["SET", "session:1", "{}", "EX", "600"]);
    let held = hold(&store, "order", 20).await;
    assert_eq!(listed(&store, "").await, held);
    assert_ne!(server.calls("scan"), 0, "it could have been a lock");
}

#[tokio::test]
async fn the_set_of_held_locks_has_no_more_than_is_held() {
    let server = Server::start();
    let store = connect(&server).await;
    let ids = hold(&store, "order", 3).await;
    assert_eq!(server.cli(&["SCARD", HELD]), "3");
    store.release_many(&ids[..2]).await.into_iter().for_each(|answer| assert_eq!(answer.unwrap(), Release::Released));
    assert_eq!(server.cli(&["SCARD", HELD]), "1");
    store.release(&ids[2]).await.unwrap();
    assert!(!exists(&server, HELD));
    granted(&store, &request("order:42")).await;
    store.force_release(&key("order:42"), None).await.unwrap();
    assert!(!exists(&server, HELD));

    // What nobody released is forgotten by the next listing.
    let crashed = request("order:42");
    granted(&store, &crashed).await;
    server.cli(&["DEL", &record_of("order:42"), &index_of(&crashed.lock_id)]);
    assert_eq!(server.cli(&["SMEMBERS", HELD]), record_of("order:42"));
    assert_eq!(listed(&store, "").await, []);
    assert!(!exists(&server, HELD));
}

#[tokio::test]
async fn a_set_of_held_locks_that_is_none_is_no_obstacle() {
    let server = Server::start();
    let store = connect(&server).await;
    server.cli(&["SET", HELD, "something else"]);
    let held = hold(&store, "order", 3).await;
    assert_eq!(listed(&store, "").await, held);
    store.release(&held[0]).await.unwrap();
    assert_eq!(listed(&store, "").await, held[1..]);
    assert_eq!(get(&server, HELD), "something else");
}

#[tokio::test]
async fn more_locks_than_are_counted_in_one_go_are_all_listed() {
    let server = Server::start();
    let store = connect(&server).await;
    // As many as a listing counts, of which nothing but the name is left.
    let script = "for i = 1, 10000 do redis.call('SADD', KEYS[1], ARGV[1] .. i) end";
    server.cli(&["EVAL", script, "1", HELD, &record_of("gone:")]);
    let held = hold(&store, "order", 20).await;
    assert_eq!(listed(&store, "").await, held);
    assert_ne!(server.calls("scan"), 0, "too many to be sure");
    server.cli(&["CONFIG", "RESETSTAT"]);
    assert_eq!(listed(&store, "").await, held);
    assert_eq!(server.calls("scan"), 0, "the first listing has forgotten nearly all that is gone");
}

#[tokio::test]
async fn a_stolen_lock_is_listed_once_and_as_the_thief_has_it() {
    let server = Server::start();
    let store = connect(&server).await;
    granted(&store, &request("order:42")).await;
    let since = test_support::redis::now(&server);
    eventually("a millisecond has passed", async || test_support::redis::now(&server) > since + 1).await;
    let thief = stealing("order:42", 0);
    granted(&store, &thief).await;
    let found: Vec<_> = everything(&store, "").await.into_iter().map(|record| record.lock_id).collect();
    assert_eq!(found, [thief.lock_id]);
}

#[tokio::test]
async fn keys_that_look_like_counters_and_indexes_of_nobody_are_listed_as_what_they_are() {
    let server = Server::start();
    let store = connect(&server).await;
    for name in ["fence:syncguards:order", "fence:order", "id:order"] {
        granted(&store, &request(name)).await;
    }
    server.cli(&["SET", "syncguard:id:abcdefghijklmnopqrstuv", "elsewhere"]);
    server.cli(&["SET", "syncguard:id:abcdefghijklmnopqrstuw", "syncguard:id:order"]);
    server.cli(&["RPUSH", "syncguard:id:abcdefghijklmnopqrstux", "a"]);
    for (prefix, count) in [("", 3), ("fence:", 2), ("fence:syncguards", 1), ("id:", 1), ("fence:syncguard:", 0)] {
        assert_eq!(everything(&store, prefix).await.len(), count, "{prefix}");
    }
}

#[tokio::test]
async fn an_examination_tells_how_many_keys_were_ever_locked() {
    let server = Server::start();
    let store = connect(&server).await;
    lock_once(&server, 300);
    let detail = |checks: Vec<leasehold::Check>| check(&checks, "counters").detail.clone();
    assert!(detail(store.examine().await.unwrap()).starts_with("300 fence counters"));
    lock_once(&server, 20_000);
    let told = detail(store.examine().await.unwrap());
    let number: usize = told.strip_prefix("about ").unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((19_000..=20_000).contains(&number), "{told}");
}

/// All pages of a listing, and how often each lock id is on them.
async fn by_pages(store: &Redis, prefix: &str, page_size: usize) -> BTreeMap<String, usize> {
    let (mut seen, mut wanted) = (BTreeMap::new(), ListRequest::new(prefix).with_page_size(page_size));
    loop {
        let page = store.list(&wanted).await.unwrap();
        assert!(page.records.len() <= page_size);
        for record in page.records {
            *seen.entry(record.lock_id.expose().to_owned()).or_default() += 1;
        }
        let Some(next) = page.next else { return seen };
        wanted = ListRequest::new(prefix).with_page_size(page_size).with_cursor(next);
    }
}

#[tokio::test]
async fn a_lock_that_many_share_is_listed_once_for_each_on_as_many_pages_as_it_takes() {
    let server = Server::start();
    let store = connect(&server).await;
    let mut expected = BTreeMap::new();
    for name in ["order:1", "order:2", "order:2", "order:3"] {
        for _ in 0..15 {
            let request = if name == "order:3" { permit(name, 15) } else { shared(name) };
            granted(&store, &request).await;
            expected.insert(request.lock_id.expose().to_owned(), 1);
        }
    }
    for number in 0..7 {
        let request = request(&format!("order:plain:{number}"));
        granted(&store, &request).await;
        expected.insert(request.lock_id.expose().to_owned(), 1);
    }
    for strangers in [false, true] {
        // With names of others that expire it has to look at all of them.
        if strangers {
            server.cli(&["SET", "session:1", "{}", "EX", "600"]);
        }
        server.cli(&["CONFIG", "RESETSTAT"]);
        for prefix in ["", "order:"] {
            for page_size in [1, 4, 7, 1000] {
                assert_eq!(by_pages(&store, prefix, page_size).await, expected, "{prefix:?} {page_size} {strangers}");
            }
        }
        assert_eq!(server.calls("scan") > 0, strangers);
    }
}

#[tokio::test]
async fn a_listing_tells_how_many_wait_and_needs_not_look_at_all_names_for_it() {
    let server = Server::start();
    let store = connect(&server).await;
    // Nobody released it, and somebody else shares it now.
    let crashed = request("order:4").with_ttl(ttl(1));
    granted(&store, &crashed).await;
    let names = [record_of("order:4"), index_of(&crashed.lock_id)];
    eventually("it is over", async || !names.iter().any(|name| exists(&server, name))).await;
    granted(&store, &shared("order:4")).await;
    let (exclusive, reader, free) = (request("order:1"), shared("order:2"), request("order:3"));
    for request in [&exclusive, &reader, &free] {
        granted(&store, request).await;
    }
    for (name, waiting) in [("order:1", 3), ("order:2", 1), ("order:3", 2)] {
        for _ in 0..waiting {
            held(&store, &joining(request(name), 60_000)).await;
        }
    }
    // Kept for the first in line, which is no lock.
    store.release(&free.lock_id).await.unwrap();
    for strangers in [false, true] {
        if strangers {
            server.cli(&["SET", "session:1", "{}", "EX", "600"]);
        }
        for prefix in ["", "order:"] {
            server.cli(&["CONFIG", "RESETSTAT"]);
            let page = store.list(&ListRequest::new(prefix)).await.unwrap();
            let mut keys: Vec<_> = page.records.iter().map(|record| record.key.as_str()).collect();
            keys.sort_unstable();
            assert_eq!(keys, ["order:1", "order:2", "order:4"], "{prefix:?} {strangers}");
            assert_eq!(page.waiting, HashMap::from([(key("order:1"), 3), (key("order:2"), 1)]));
            assert!(!strangers || server.calls("scan") > 0, "{prefix:?}");
        }
        // Names that have expired may be there for another moment.
        eventually("the sets are known to be complete", async || {
            server.cli(&["CONFIG", "RESETSTAT"]);
            store.list(&ListRequest::new("")).await.unwrap();
            strangers || server.calls("scan") == 0
        })
        .await;
    }
}

#[tokio::test]
async fn the_set_of_busy_locks_has_no_more_than_is_busy() {
    let server = Server::start();
    let store = connect(&server).await;
    let (reader, waiter) = (shared("order:1"), joining(request("order:1"), 60_000));
    granted(&store, &reader).await;
    held(&store, &waiter).await;
    let busy = || server.cli(&["SMEMBERS", "syncguard:id:busy"]);
    assert_eq!(busy(), record_of("order:1"));
    store.release(&reader.lock_id).await.unwrap();
    assert_eq!(busy(), record_of("order:1"), "it is kept for the one who waits");
    granted(&store, &waiter).await;
    assert_eq!((busy(), server.cli(&["SMEMBERS", HELD])), (String::new(), record_of("order:1")), "a plain lock");
    // What nobody released is forgotten by the next listing.
    granted(&store, &shared("order:2").with_ttl(ttl(1))).await;
    eventually("it is over", async || !exists(&server, &record_of("order:2"))).await;
    assert_eq!(busy(), record_of("order:2"));
    assert_eq!(listed(&store, "").await, [waiter.lock_id]);
    assert_eq!(busy(), "");
}

#[tokio::test]
async fn a_page_reads_no_more_holders_than_it_has_room_for() {
    let server = Server::start();
    let store = connect(&server).await;
    let mut ids = Vec::new();
    for number in 0..40 {
        for _ in 0..20 {
            let reader = shared(&format!("order:{number}"));
            granted(&store, &reader).await;
            ids.push(reader.lock_id);
        }
    }
    let (mut seen, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut request = ListRequest::new("order:").with_page_size(16);
        if let Some(cursor) = cursor {
            request = request.with_cursor(cursor);
        }
        keys_looked_at(&server);
        let page = store.list(&request).await.unwrap();
        // The first page also counts all that there is, to know whether other programs have any.
        let looked_at = keys_looked_at(&server);
        assert!(looked_at <= 40 * 12 + 2 * 20 * 4, "{looked_at} keys for a page of 16");
        assert!(page.records.len() <= 16);
        seen.extend(page.records.into_iter().map(|record| record.lock_id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(sorted(seen), sorted(ids));
}
