//! How locks are stored that several hold, and what other programs see of them.

use std::collections::BTreeSet;

use leasehold::Holder;
use leasehold::backend::{Absence, AcquireAll, Backend, Extend, LookupBy, Mode, Release};
use serde_json::json;
use test_servers::Redis as Server;
use test_support::redis::{Other, counter_of, exists, get, index_of, json, now, pttl, record_of, snapshot};
use test_support::{eventually, granted, held, id, key, request, stealing, ttl};

use crate::support::{beside, connect, joining, permit, shared};

const LOCK: &str = "syncguard:order:42";
const FENCE: &str = "syncguard:fence:syncguard:order:42";
const BUSY: &str = "syncguard:id:busy";

fn names(server: &Server) -> BTreeSet<String> {
    snapshot(server).into_keys().collect()
}

fn expected(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The placeholder ends with the last of those it stands for, and so does what is beside it.
fn covers(server: &Server, letters: &[&str], until: u64) {
    assert_eq!(json(server, LOCK)["expiresAtMs"], until);
    for name in letters.iter().map(|letter| beside(LOCK, letter)).chain([LOCK.to_owned()]) {
        let left = until + 1000 - now(server);
        let kept = u64::try_from(pttl(server, &name)).unwrap();
        assert!(kept <= left + 1 && kept + 1000 > left, "{name:?}: {kept} of {left} ms");
    }
}

#[tokio::test]
async fn those_who_share_a_lock_stand_beside_a_placeholder_that_lasts_as_long_as_they_do() {
    let server = Server::start();
    let store = connect(&server).await;
    let (short, long) = (shared("order:42"), shared("order:42").with_ttl(ttl(90_000)));
    let first = granted(&store, &short).await;
    covers(&server, &["g", "e"], first.expires_at.as_millis());
    let second = granted(&store, &long).await;
    assert!(second.fence > first.fence && first.slot.is_none());
    covers(&server, &["g", "e"], second.expires_at.as_millis());

    let (one, two) = (index_of(&short.lock_id), index_of(&long.lock_id));
    let all = [LOCK, FENCE, BUSY, &one, &two, &beside(LOCK, "g"), &beside(LOCK, "e")];
    assert_eq!(names(&server), expected(&all));
    let placeholder = json(&server, LOCK);
    let id = placeholder["lockId"].as_str().unwrap();
    assert!(id.starts_with("~s") && id.len() == 22, "{id}");
    assert_eq!(placeholder["fence"], format!("{:015}", second.fence.get()));
    assert_eq!(placeholder["acquiredAtMs"], second.acquired_at.as_millis());
    assert_eq!(
        json(&server, &one),
        json!({
            "lockId": short.lock_id.expose(), "expiresAtMs": first.expires_at.as_millis(), "mode": "shared", "on": LOCK,
            "acquiredAtMs": first.acquired_at.as_millis(), "key": "order:42",
            "fence": format!("{:015}", first.fence.get()), "holder": short.holder.as_str(),
        })
    );

    // Whoever leaves, and whoever stays for longer, moves the end of it.
    assert_eq!(store.release(&long.lock_id).await.unwrap(), Release::Released);
    covers(&server, &[], first.expires_at.as_millis());
    let Extend::Extended { expires_at } = store.extend(&short.lock_id, ttl(120_000)).await.unwrap() else {
        panic!("not extended");
    };
    covers(&server, &["g", "e"], expires_at.as_millis());
    assert_eq!(store.lookup(LookupBy::Id(&short.lock_id)).await.unwrap().unwrap().expires_at, expires_at);
    let Extend::Extended { expires_at } = store.extend(&short.lock_id, ttl(5_000)).await.unwrap() else {
        panic!("not extended");
    };
    covers(&server, &["g", "e"], expires_at.as_millis());
    assert_eq!(store.release(&short.lock_id).await.unwrap(), Release::Released);
    assert_eq!(names(&server), expected(&[FENCE]));
}

#[tokio::test]
async fn permits_leave_nothing_when_the_last_is_given_back() {
    let server = Server::start();
    let store = connect(&server).await;
    let permits: Vec<_> = (0..5).map(|_| permit("order:42", 5)).collect();
    for (slot, permit) in (0..).zip(&permits) {
        assert_eq!(granted(&store, permit).await.slot, Some(slot));
    }
    let record = store.lookup(LookupBy::Id(&permits[3].lock_id)).await.unwrap().unwrap();
    assert_eq!((record.slot, record.mode), (Some(3), permits[3].mode));
    let refused = held(&store, &permit("order:42", 5)).await;
    assert_eq!((refused.holders, refused.mode), (5, permits[0].mode));
    assert!(exists(&server, &beside(LOCK, "b")));
    for at in [1, 3] {
        store.release(&permits[at].lock_id).await.unwrap();
    }
    let again = permit("order:42", 5);
    assert_eq!(granted(&store, &again).await.slot, Some(1), "the lowest that is free");
    for id in [0, 2, 4].map(|at| permits[at].lock_id).iter().chain([&again.lock_id]) {
        assert_eq!(store.release(id).await.unwrap(), Release::Released);
    }
    assert_eq!(names(&server), expected(&[FENCE]));
}

#[tokio::test]
async fn whoever_dies_makes_room_for_the_next() {
    let server = Server::start();
    let store = connect(&server).await;
    let (short, long) = (permit("order:42", 2).with_ttl(ttl(100)), permit("order:42", 2));
    granted(&store, &short).await;
    granted(&store, &long).await;
    let refused = held(&store, &permit("order:42", 2)).await;
    assert!(refused.expires_at < refused.now + std::time::Duration::from_millis(200), "{refused:?}");
    eventually("the first of them is dead", async || {
        store.lookup(LookupBy::Id(&short.lock_id)).await.unwrap().is_none()
    })
    .await;
    assert_eq!(store.inspect(&key("order:42")).await.unwrap().holders.len(), 1);
    assert!(matches!(store.extend(&short.lock_id, ttl(1000)).await.unwrap(), Extend::Absent(_)));
    assert_eq!(granted(&store, &permit("order:42", 2)).await.slot, Some(0));
}

#[tokio::test]
async fn other_programs_see_a_lock_that_they_can_neither_have_nor_end() {
    let server = Server::start();
    let store = connect(&server).await;
    let other = Other(&server);
    for readers in [[shared("order:42"), shared("order:42")], [permit("order:42", 9), permit("order:42", 9)]] {
        for reader in &readers {
            granted(&store, reader).await;
        }
        assert_eq!(other.acquire("order:42", &id(), 1000), None);
        for reader in &readers {
            assert!(!other.release(&reader.lock_id) && !other.extend(&reader.lock_id, 1000));
        }
        store.release(&readers[0].lock_id).await.unwrap();
        assert_eq!(other.acquire("order:42", &id(), 1000), None);
        store.release(&readers[1].lock_id).await.unwrap();
        let theirs = id();
        assert!(other.acquire("order:42", &theirs, 30_000).is_some());
        for refused in [shared("order:42"), permit("order:42", 9), joining(shared("order:42"), 5_000)] {
            assert_eq!(held(&store, &refused).await.mode, Mode::Exclusive);
        }
        assert!(other.release(&theirs));
        assert!(other.acquire("order:42", &theirs, 1).is_some(), "a line of which it knows nothing is passed");
        eventually("it is over", async || !store.is_locked(&key("order:42")).await.unwrap()).await;
        server.cli(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn a_placeholder_has_a_name_only_if_all_have_the_same() {
    let server = Server::start();
    let store = connect(&server).await;
    let named = |name: &str| shared("order:42").with_holder(Holder::new(name).unwrap());
    for (names, expected) in [
        (vec!["a"], json!("a")),
        (vec!["a", "a", "a"], json!("a")),
        (vec!["a", "b"], json!(null)),
        (vec!["a", "b", "a"], json!(null)),
        (vec!["a", "a\",\"holder\":\"b"], json!(null)),
    ] {
        for name in &names {
            granted(&store, &named(name)).await;
        }
        assert_eq!(json(&server, LOCK)["holder"], expected, "{names:?}");
        assert_eq!(store.force_release(&key("order:42"), None).await.unwrap().len(), names.len());
    }
}

#[tokio::test]
async fn those_whom_another_program_overruled_hold_nothing_any_more() {
    let server = Server::start();
    let store = connect(&server).await;
    let reader = shared("order:42");
    granted(&store, &reader).await;
    // As a program does that takes what it knows of by force.
    server.cli(&["DEL", LOCK]);
    let theirs = id();
    assert!(Other(&server).acquire("order:42", &theirs, 30_000).is_some());
    let gone = async || {
        assert_eq!(store.extend(&reader.lock_id, ttl(60_000)).await.unwrap(), Extend::Absent(Absence::NotFound));
        assert_eq!(store.release(&reader.lock_id).await.unwrap(), Release::Absent(Absence::NotFound));
        assert!(store.lookup(LookupBy::Id(&reader.lock_id)).await.unwrap().is_none());
    };
    gone().await;
    assert_eq!(store.inspect(&key("order:42")).await.unwrap().holders[0].lock_id, theirs);
    assert!(Other(&server).release(&theirs));
    let next = shared("order:42");
    granted(&store, &next).await;
    gone().await;
    let holders = store.inspect(&key("order:42")).await.unwrap().holders;
    assert_eq!(holders.iter().map(|record| record.lock_id).collect::<Vec<_>>(), [next.lock_id]);
}

#[tokio::test]
async fn an_exclusive_lock_is_stored_as_ever_whoever_had_the_key_before() {
    let server = Server::start();
    let store = connect(&server).await;
    let mut seen = BTreeSet::new();
    for others in [vec![], vec![shared("order:42"), shared("order:42")], vec![permit("order:42", 3)]] {
        for reader in &others {
            granted(&store, reader).await;
        }
        let since = now(&server);
        eventually("a millisecond has passed", async || now(&server) > since + 1).await;
        let thief = stealing("order:42", 0);
        let grant = granted(&store, &thief).await;
        let (times, index) = (grant.acquired_at.as_millis(), index_of(&thief.lock_id));
        let raw = get(&server, LOCK);
        let fence = format!("{:015}", grant.fence.get());
        let same = raw.replace(&fence, "FENCE").replace(thief.lock_id.expose(), "ID");
        seen.insert(same.replace(&(times + 30_000).to_string(), "END").replace(&times.to_string(), "NOW"));
        assert_eq!(get(&server, &index), LOCK);
        assert_eq!(names(&server), expected(&[LOCK, FENCE, &index, "syncguard:id:held"]));
        for reader in &others {
            assert_eq!(store.release(&reader.lock_id).await.unwrap(), Release::Absent(Absence::NotFound));
        }
        store.release(&thief.lock_id).await.unwrap();
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
}

#[tokio::test]
async fn names_with_signs_that_mean_something_in_json_are_found_again() {
    let server = Server::start();
    let store = connect(&server).await;
    for name in ["a/b", "a\"b\\c", "é\u{1F600}", "\",\"acquiredAtMs\":1", "{\"lockId\":\"x\"", "a\tb"] {
        let (reader, waiter) = (shared(name), joining(request(name), 60_000));
        granted(&store, &reader).await;
        assert_eq!(held(&store, &waiter).await.place, Some(0), "{name}");
        assert!(matches!(store.extend(&reader.lock_id, ttl(60_000)).await.unwrap(), Extend::Extended { .. }), "{name}");
        let inspected = store.inspect(&key(name)).await.unwrap();
        assert_eq!((inspected.holders.len(), inspected.waiters.len()), (1, 1), "{name}");
        assert_eq!(store.release(&reader.lock_id).await.unwrap(), Release::Released, "{name}");
        assert_eq!(get(&server, &record_of(name)).get(..13), Some("{\"lockId\":\"~q"), "{name}");
        granted(&store, &waiter).await;
        assert_eq!(store.release(&waiter.lock_id).await.unwrap(), Release::Released, "{name}");
    }
    assert!(names(&server).iter().all(|name| name.contains(":fence:")), "{:?}", names(&server));
}

#[tokio::test]
async fn several_locks_have_one_fence_above_all_that_were_granted_for_any_of_them() {
    let server = Server::start();
    let store = connect(&server).await;
    let names = ["order:1", "order:2", "order:3"];
    let ahead = 90_000_000_000_000_u64;
    server.cli(&["SET", &counter_of("order:2"), &ahead.to_string()]);
    let wanted = [request("order:1"), shared("order:2"), permit("order:3", 2)];
    let AcquireAll::Granted(grants) = store.acquire_all(&wanted).await.unwrap() else { panic!("refused") };
    for (grant, name) in grants.iter().zip(names) {
        assert_eq!(grant.fence.get(), ahead + 1);
        assert_eq!(get(&server, &counter_of(name)), (ahead + 1).to_string());
    }
    for one in [&wanted[..1], &wanted[1..]] {
        let AcquireAll::Granted(again) = store.acquire_all(one).await.unwrap() else { panic!("refused") };
        assert!(again.iter().all(|grant| grants.contains(grant)), "the same again");
    }
    for pair in [[request("a"), request("a")], [request("a"), request("b").with_lock_id(wanted[0].lock_id)]] {
        let mut pair = pair;
        pair[0].lock_id = wanted[0].lock_id;
        assert!(store.acquire_all(&pair).await.is_err());
    }
}
