//! Shared locks and permits, and the placeholder by which programs that know none of them see that
//! somebody has the key.

use std::sync::Arc;

use leasehold::backend::{Absence, AcquireRequest, Backend, Extend, LookupBy, Mode, Release};
use leasehold::{LockId, Steal};
use serde_json::{Value, json};
use test_servers::Postgres as Server;
use test_support::postgres::{number, row, session, stuck};
use test_support::{eventually, granted, held, id, key, request, soon, ttl};

use crate::contest::{self, Contest};
use crate::support::{connect, migrated, permit, server, shared};

/// What everybody sees of a key: the row's id, without the part that is the key's own, and its end.
fn seen(server: &Server, key: &str) -> (String, u64) {
    let query = format!("SELECT left(lock_id, 2), expires_at_ms FROM syncguard_locks WHERE key = '{key}'");
    let seen = server.sql(&query);
    let (id, until) = seen.split_once('|').unwrap_or_else(|| panic!("{key}: {seen}"));
    (id.to_owned(), until.parse().unwrap())
}

/// When a grant of ours ends.
fn ends(server: &Server, id: &LockId) -> u64 {
    number(server, &format!("SELECT expires_at_ms FROM syncguard_locks_grants WHERE lock_id = '{}'", id.expose()))
}

fn lasting(request: AcquireRequest, millis: u64) -> AcquireRequest {
    request.with_ttl(ttl(millis))
}

#[tokio::test]
async fn a_shared_lock_is_a_row_of_its_own_and_a_placeholder_for_everybody_else() {
    let server = server().await;
    let store = connect(&server).await;
    for (mode, class, permits, slot) in [(Mode::Shared, "s", i32::MAX, None), (permit(3), "p", 3, Some(0))] {
        server.sql("TRUNCATE syncguard_locks, syncguard_locks_grants");
        let mine = request("order:42").with_mode(mode);
        let grant = granted(&store, &mine).await;
        assert_eq!(grant.slot.map(i32::from), slot);
        let of = |table: &str| -> Value {
            serde_json::from_str(&server.sql(&format!("SELECT row_to_json(t) FROM {table} AS t"))).unwrap()
        };
        let (since, until) = (grant.acquired_at.as_millis(), grant.expires_at.as_millis());
        let details = json!({ "lockId": mine.lock_id.expose(), "holder": mine.holder.as_str() });
        let expected = json!({
            "lock_id": mine.lock_id.expose(), "key": "order:42", "class": class, "permits": permits, "slot": slot,
            "fence": grant.fence.to_string(), "acquired_at_ms": since, "expires_at_ms": until, "user_key": "order:42",
            "details": details,
        });
        assert_eq!(of("syncguard_locks_grants"), expected);
        // 20 characters of the hash of the key.
        let id = format!("~{class}2mg4DeAiuscneC7-48SV");
        let expected = json!({
            "key": "order:42", "lock_id": id, "expires_at_ms": until, "acquired_at_ms": since,
            "fence": grant.fence.to_string(), "user_key": "order:42", "details": null,
        });
        assert_eq!(of("syncguard_locks"), expected);
    }
}

#[tokio::test]
async fn the_placeholder_lasts_as_long_as_the_last_of_the_locks_and_no_longer() {
    let server = server().await;
    let store = connect(&server).await;
    let (short, long) = (lasting(shared("order:42"), 20_000), lasting(shared("order:42"), 90_000));
    granted(&store, &short).await;
    assert_eq!(seen(&server, "order:42"), ("~s".to_owned(), ends(&server, &short.lock_id)));
    let grant = granted(&store, &long).await;
    assert_eq!(seen(&server, "order:42").1, grant.expires_at.as_millis());
    let shortest = lasting(shared("order:42"), 10_000);
    granted(&store, &shortest).await;
    assert_eq!(seen(&server, "order:42").1, grant.expires_at.as_millis());
    store.release(&shortest.lock_id).await.unwrap();
    // One that ends before others changes nothing, and one that ends after them moves it along.
    store.extend(&short.lock_id, ttl(50_000)).await.unwrap();
    assert_eq!(seen(&server, "order:42").1, grant.expires_at.as_millis());
    store.extend(&short.lock_id, ttl(200_000)).await.unwrap();
    assert_eq!(seen(&server, "order:42").1, ends(&server, &short.lock_id));
    // So does one that is to end sooner than it would have.
    store.extend(&short.lock_id, ttl(1_000)).await.unwrap();
    assert_eq!(seen(&server, "order:42").1, ends(&server, &long.lock_id));
    assert_eq!(store.release(&long.lock_id).await.unwrap(), Release::Released);
    assert_eq!(seen(&server, "order:42").1, ends(&server, &short.lock_id));
    assert_eq!(store.release(&short.lock_id).await.unwrap(), Release::Released);
    assert_eq!((row(&server, "order:42"), server.sql("SELECT * FROM syncguard_locks_grants")), Default::default());
}

#[tokio::test]
async fn many_extends_of_one_key_move_the_placeholder_along_with_the_last() {
    let server = server().await;
    let store = connect(&server).await;
    let mut locks = vec![request("plain")];
    for name in ["a", "a", "a", "b", "b"] {
        locks.push(shared(name));
    }
    locks.push(request("c").with_mode(permit(2)));
    for lock in &locks {
        granted(&store, lock).await;
    }
    let wanted: Vec<_> = (1..).zip(&locks).map(|(n, lock)| (lock.lock_id, ttl(60_000 + n * 1000))).collect();
    let mut answers = store.extend_many(&[&wanted[..], &[(id(), ttl(1))]].concat()).await.into_iter();
    let untils: Vec<_> = answers.by_ref().take(locks.len()).collect();
    assert!(untils.iter().all(|answer| matches!(answer, Ok(Extend::Extended { .. }))), "{untils:?}");
    assert_eq!(answers.next().unwrap().unwrap(), Extend::Absent(Absence::NotFound));
    for (name, last) in [("a", 3), ("b", 5), ("c", 6)] {
        assert_eq!(seen(&server, name).1, ends(&server, &locks[last].lock_id), "{name}");
    }
    let released = store.release_many(&locks.iter().map(|lock| lock.lock_id).collect::<Vec<_>>()).await;
    assert!(released.iter().all(|answer| *answer.as_ref().unwrap() == Release::Released), "{released:?}");
    assert_eq!(server.sql("SELECT key FROM syncguard_locks UNION ALL SELECT key FROM syncguard_locks_grants"), "");
}

/// Somebody else, who knows nothing of shared locks, ends the placeholder in a way of its own.
#[tokio::test]
async fn whoever_takes_the_place_of_the_placeholder_ends_all_that_it_stood_for() {
    let server = server().await;
    let store = connect(&server).await;
    let foreign = id();
    let id = foreign.expose();
    for (what, end) in [
        ("another lock", format!("UPDATE syncguard_locks SET lock_id = '{id}'")),
        ("nothing", "DELETE FROM syncguard_locks".to_owned()),
    ] {
        let (mine, other) = (shared("order:42"), shared("order:42"));
        granted(&store, &mine).await;
        granted(&store, &other).await;
        server.sql(&end);
        assert_eq!(store.lookup(LookupBy::Id(&mine.lock_id)).await.unwrap(), None, "{what}");
        let gone = Extend::Absent(Absence::NotFound);
        assert_eq!(store.extend(&mine.lock_id, ttl(60_000)).await.unwrap(), gone, "{what}");
        let many = [(mine.lock_id, ttl(60_000)), (other.lock_id, ttl(60_000))];
        assert!(store.extend_many(&many).await.into_iter().all(|answer| answer.unwrap() == gone), "{what}");
        assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Absent(Absence::NotFound), "{what}");
        if what == "another lock" {
            assert_eq!(held(&store, &shared("order:42")).await.mode, Mode::Exclusive);
            server.sql("DELETE FROM syncguard_locks");
        }
        // Nor do they come back with the next.
        let next = shared("order:42");
        granted(&store, &next).await;
        let found = store.inspect(&key("order:42")).await.unwrap().holders;
        assert_eq!(found.iter().map(|record| record.lock_id).collect::<Vec<_>>(), [next.lock_id], "{what}");
        store.release(&next.lock_id).await.unwrap();
    }
}

#[tokio::test]
async fn a_dead_placeholder_is_taken_over_and_dead_permits_give_their_numbers_back() {
    let server = server().await;
    let store = connect(&server).await;
    let two = || request("order:42").with_mode(permit(2));
    let (first, second) = (two(), two());
    assert_eq!((granted(&store, &first).await.slot, granted(&store, &second).await.slot), (Some(0), Some(1)));
    let end = |id: &LockId| {
        server.sql(&format!("UPDATE syncguard_locks_grants SET expires_at_ms = 1 WHERE lock_id = '{}'", id.expose()));
    };
    held(&store, &two()).await;
    end(&first.lock_id);
    assert_eq!(granted(&store, &two()).await.slot, Some(0));
    server.sql("UPDATE syncguard_locks SET expires_at_ms = 1; UPDATE syncguard_locks_grants SET expires_at_ms = 1");
    assert!(!store.is_locked(&key("order:42")).await.unwrap());
    let alone = request("order:42");
    granted(&store, &alone).await;
    assert!(row(&server, "order:42").contains(alone.lock_id.expose()));
    assert_eq!(store.release(&second.lock_id).await.unwrap(), Release::Absent(Absence::Expired));
    assert_eq!(store.release(&alone.lock_id).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn readers_and_their_extends_wait_for_nobody_who_has_the_advisory_lock() {
    let server = server().await;
    let store = connect(&server).await;
    let (mine, other) = (shared("order:42"), shared("order:42"));
    granted(&store, &mine).await;
    granted(&store, &other).await;
    let application = session(&server).await;
    application.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(hashtext('order:42'))").await.unwrap();
    assert!(matches!(store.extend(&mine.lock_id, ttl(60_000)).await.unwrap(), Extend::Extended { .. }));
    let many = [(mine.lock_id, ttl(60_000)), (other.lock_id, ttl(60_000))];
    assert!(store.extend_many(&many).await.iter().all(|answer| matches!(answer, Ok(Extend::Extended { .. }))));
    assert_eq!(held(&store, &request("order:42")).await.holders, 2, "nor does whoever is refused");
    assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released);
    assert_eq!(stuck(&server), 0);
    // In the last second of what others see, the other library may be about to take it over.
    server.sql(
        "UPDATE syncguard_locks_grants SET expires_at_ms = floor(extract(epoch FROM clock_timestamp()) * 1000) + 400;
         UPDATE syncguard_locks SET expires_at_ms = floor(extract(epoch FROM clock_timestamp()) * 1000) - 400",
    );
    let id = other.lock_id;
    let extended = tokio::spawn(async move { store.extend(&id, ttl(60_000)).await });
    eventually("the extend waits", async || stuck(&server) == 1).await;
    application.batch_execute("COMMIT").await.unwrap();
    let extended = soon("the extend", extended).await.unwrap().unwrap();
    assert!(matches!(extended, Extend::Extended { .. } | Extend::Absent(Absence::Expired)), "{extended:?}");
}

#[tokio::test]
async fn a_thief_takes_the_readers_it_must_and_all_of_them_hear_of_it() {
    let server = server().await;
    let store = connect(&server).await;
    let readers = [shared("order:42"), shared("order:42")];
    for reader in &readers {
        granted(&store, reader).await;
    }
    let mut taken = store.subscribe(leasehold::backend::Topic::Taken).await.unwrap();
    let thief = request("order:42").with_steal(Steal::NEVER.with_same_holder());
    granted(&store, &thief).await;
    for _ in &readers {
        soon("a reader hears of it", taken.next()).await.unwrap();
    }
    assert_eq!(server.sql("SELECT * FROM syncguard_locks_grants"), "");
    assert!(row(&server, "order:42").contains(thief.lock_id.expose()));
}

#[tokio::test]
async fn nothing_is_written_for_a_refused_request_that_does_not_wait() {
    let server = server().await;
    let store = connect(&server).await;
    granted(&store, &shared("order:42")).await;
    let written = || number(&server, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint");
    let before = written();
    for _ in 0..200 {
        held(&store, &request("order:42")).await;
        held(&store, &request("order:42").with_mode(permit(3))).await;
    }
    let bytes = written() - before;
    assert!(bytes < 2000, "{bytes} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_all_extend_at_once_are_all_extended() {
    let server = server().await;
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let store = connect(&server).await;
        tasks.push(tokio::spawn(async move {
            // Each has some of the same keys, in an order of its own.
            let mut locks: Vec<_> = (0..8).map(|n| lasting(shared(&format!("k{n}")), 60_000)).collect();
            fastrand::shuffle(&mut locks);
            for lock in &locks {
                granted(&store, lock).await;
            }
            for _ in 0..15 {
                let wanted: Vec<_> = locks.iter().map(|lock| (lock.lock_id, ttl(60_000))).collect();
                for answer in store.extend_many(&wanted).await {
                    assert!(matches!(answer, Ok(Extend::Extended { .. })), "{answer:?}");
                }
            }
            let ids: Vec<_> = locks.iter().map(|lock| lock.lock_id).collect();
            for answer in store.release_many(&ids).await {
                assert_eq!(answer.unwrap(), Release::Released);
            }
        }));
    }
    for task in tasks {
        soon("a reader", task).await.unwrap();
    }
    assert_eq!(server.sql("SELECT key FROM syncguard_locks UNION ALL SELECT key FROM syncguard_locks_grants"), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_kinds_exclude_each_other_on_servers_whose_transactions_see_less_of_each_other() {
    for level in ["read committed", "repeatable read", "serializable"] {
        let server = Server::with(&[("default_transaction_isolation", level)]);
        migrated(&server).await;
        contest::contend(&Arc::new(server), &Arc::new(Contest::default()), 4, Vec::new()).await;
    }
}
