//! How those who wait are stored, and what is kept for them.

use std::time::Duration;

use leasehold::backend::{Absence, Acquire, AcquireRequest, Backend, Event, Line, LookupBy, Release, Topic};
use leasehold::{Holder, ListRequest};
use serde_json::json;
use test_servers::Redis as Server;
use test_support::redis::{Other, exists, get, index_of, json, now, pttl, snapshot};
use test_support::{eventually, granted, held, id, key, request, soon, ttl};

use crate::support::{beside, connect, joining, permit, shared};

const LOCK: &str = "syncguard:order:42";
const FENCE: &str = "syncguard:fence:syncguard:order:42";

#[tokio::test]
async fn a_place_is_kept_for_as_long_as_its_lease() {
    let server = Server::start();
    let store = connect(&server).await;
    granted(&store, &request("order:42")).await;
    let waiter = joining(permit("order:42", 3), 20_000);
    assert_eq!(held(&store, &waiter).await.place, Some(0));
    let index = index_of(&waiter.lock_id);
    let mut place = json(&server, &index);
    let until = place["untilMs"].as_u64().unwrap();
    assert!((now(&server) + 15_000..=now(&server) + 20_000).contains(&until));
    assert_eq!(place.as_object_mut().unwrap().remove("turn").unwrap().as_str().unwrap().len(), 22);
    assert_eq!(
        place,
        json!({
            "lockId": waiter.lock_id.expose(), "untilMs": until, "called": false, "sinceMs": until - 20_000,
            "mode": "permit", "of": 3, "on": LOCK, "key": "order:42", "holder": waiter.holder.as_str(),
        })
    );
    for name in [index.clone(), beside(LOCK, "q"), beside(LOCK, "u")] {
        assert!((15_000..=20_000).contains(&pttl(&server, &name)), "{name:?}");
    }
    // Asking again keeps the place, and what was said first of when it began.
    let again = waiter.clone().with_line(Line::Join { lease: ttl(60_000) });
    assert_eq!(held(&store, &again).await.place, Some(0));
    let later = json(&server, &index);
    assert_eq!(later["sinceMs"], until - 20_000);
    assert!(later["untilMs"].as_u64().unwrap() >= until + 40_000);
    for name in [index, beside(LOCK, "q"), beside(LOCK, "u")] {
        assert!((55_000..=60_000).contains(&pttl(&server, &name)), "{name:?}");
    }
    assert_eq!(store.release(&waiter.lock_id).await.unwrap(), Release::Absent(Absence::NotFound));
    assert!(!exists(&server, &beside(LOCK, "q")) && !exists(&server, &beside(LOCK, "u")));
}

#[tokio::test]
async fn what_is_released_is_kept_from_others_until_the_first_in_line_has_had_its_turn() {
    let server = Server::start();
    let store = connect(&server).await;
    let (holder, first) = (request("order:42"), joining(request("order:42"), 60_000));
    granted(&store, &holder).await;
    held(&store, &first).await;
    assert_eq!(store.release(&holder.lock_id).await.unwrap(), Release::Released);

    let placeholder = json(&server, LOCK);
    assert!(placeholder["lockId"].as_str().unwrap().starts_with("~q"), "{placeholder}");
    let until = json(&server, &index_of(&first.lock_id))["untilMs"].as_u64().unwrap();
    assert!(until <= now(&server) + 2000, "its lease was cut");
    assert_eq!(placeholder["expiresAtMs"], until - 1000);
    assert!((1..=2000).contains(&pttl(&server, LOCK)));
    assert_eq!(placeholder["holder"], first.holder.as_str());
    assert_eq!(Other(&server).acquire("order:42", &id(), 1000), None);
    let refused = held(&store, &request("order:42")).await;
    assert_eq!((refused.holders, refused.fence), (0, None));
    assert_eq!(refused.expires_at.as_millis(), until - 1000);
    assert!(!store.is_locked(&key("order:42")).await.unwrap(), "nobody holds it");
    assert!(store.lookup(LookupBy::Key(&key("order:42"))).await.unwrap().is_none());
    assert!(store.list(&ListRequest::new("")).await.unwrap().records.is_empty());

    store.release(&first.lock_id).await.unwrap();
    assert_eq!(snapshot(&server).into_keys().collect::<Vec<_>>(), [FENCE]);
    let theirs = id();
    assert!(Other(&server).acquire("order:42", &theirs, 30_000).is_some());
}

#[tokio::test]
async fn whoever_was_called_and_is_gone_is_passed_over() {
    let server = Server::start();
    let store = connect(&server).await;
    let holder = request("order:42");
    granted(&store, &holder).await;
    let (gone, next) = (joining(request("order:42"), 60_000), joining(request("order:42"), 60_000));
    for waiter in [&gone, &next] {
        held(&store, waiter).await;
    }
    store.release(&holder.lock_id).await.unwrap();
    assert_eq!(held(&store, &next).await.place, Some(1));
    eventually("its turn is over", async || matches!(store.acquire(&next).await.unwrap(), Acquire::Granted(_))).await;
    store.release(&next.lock_id).await.unwrap();
    assert_eq!(snapshot(&server).into_keys().collect::<Vec<_>>(), [FENCE]);
}

#[tokio::test]
async fn the_second_in_line_is_told_too_if_nobody_heard_that_the_first_was_called() {
    let server = Server::start();
    let store = connect(&server).await;
    let holder = request("order:42");
    granted(&store, &holder).await;
    let waiters: Vec<_> = (0..3).map(|_| joining(request("order:42"), 60_000)).collect();
    for waiter in &waiters {
        held(&store, waiter).await;
    }
    let (second, third) = (&waiters[1], &waiters[2]);
    let mut told = store.subscribe(Topic::Turn(&second.key, &second.lock_id)).await.unwrap();
    let mut not_told = store.subscribe(Topic::Turn(&third.key, &third.lock_id)).await.unwrap();
    store.release(&holder.lock_id).await.unwrap();
    assert_eq!(soon("the second", told.next()).await, Some(Event::Freed));
    assert_eq!(held(&store, second).await.place, Some(1), "it is still the turn of the first");
    assert!(json(&server, &index_of(&second.lock_id))["untilMs"].as_u64().unwrap() > now(&server) + 30_000);
    let quiet = tokio::time::timeout(Duration::from_millis(200), not_told.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
}

#[tokio::test]
async fn channels_tell_no_lock_ids() {
    let server = Server::start();
    let store = connect(&server).await;
    let waiter = joining(request("order:42"), 60_000);
    let _turn = store.subscribe(Topic::Turn(&waiter.key, &waiter.lock_id)).await.unwrap();
    let channels = server.cli(&["PUBSUB", "CHANNELS", "*"]);
    assert_eq!(channels.lines().count(), 2, "{channels}");
    assert!(!channels.contains(waiter.lock_id.expose()));
}

#[tokio::test]
async fn those_in_line_hear_of_a_release_by_a_program_that_knows_of_no_line() {
    let server = Server::start();
    let store = connect(&server).await;
    let waiter = joining(request("order:42"), 60_000);
    let mut turn = store.subscribe(Topic::Turn(&waiter.key, &waiter.lock_id)).await.unwrap();
    server.cli(&["PUBLISH", "syncguard:order:42:freed", "1"]);
    assert_eq!(soon("the release", turn.next()).await, Some(Event::Freed));
}

#[tokio::test]
async fn a_server_without_memory_still_hands_a_lock_on() {
    let server = Server::start();
    let store = connect(&server).await;
    let holders = [request("order:1"), shared("order:2"), permit("order:3", 1)];
    let waiters = ["order:1", "order:2", "order:3"].map(|name| joining(request(name), 60_000));
    for (holder, waiter) in holders.iter().zip(&waiters) {
        granted(&store, holder).await;
        held(&store, waiter).await;
    }
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    for (holder, waiter) in holders.iter().zip(&waiters) {
        assert_eq!(store.release(&holder.lock_id).await.unwrap(), Release::Released);
        assert!(json(&server, &index_of(&waiter.lock_id))["called"].as_bool().unwrap());
    }
}

#[tokio::test]
async fn many_places_and_grants_are_given_up_at_once() {
    let server = Server::start();
    let store = connect(&server).await;
    let exclusive = request("order:1");
    let (reader, waiter) = (shared("order:2"), joining(request("order:2"), 60_000));
    let other = joining(request("order:1"), 60_000);
    granted(&store, &exclusive).await;
    granted(&store, &reader).await;
    held(&store, &waiter).await;
    held(&store, &other).await;
    let ids = [exclusive.lock_id, reader.lock_id, waiter.lock_id, id()];
    let locks: Vec<_> = ids.iter().map(|id| (*id, ttl(90_000))).collect();
    let extended: Vec<_> = store.extend_many(&locks).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        extended.iter().filter(|answer| matches!(answer, leasehold::backend::Extend::Extended { .. })).count(),
        2
    );
    let released: Vec<_> = store.release_many(&ids).await.into_iter().map(Result::unwrap).collect();
    let absent = Release::Absent(Absence::NotFound);
    assert_eq!(released, [Release::Released, Release::Released, absent, absent]);
    assert!(!exists(&server, "syncguard:order:2"));
    granted(&store, &other).await;
}

#[tokio::test]
async fn a_line_of_which_nothing_but_dead_names_is_left_keeps_nobody_waiting() {
    let server = Server::start();
    let store = connect(&server).await;
    let holder = request("order:42");
    granted(&store, &holder).await;
    let waiters: Vec<_> = (0..5).map(|_| joining(request("order:42"), 60_000)).collect();
    for waiter in &waiters {
        held(&store, waiter).await;
        server.cli(&["DEL", &index_of(&waiter.lock_id)]);
    }
    assert_eq!(store.release(&holder.lock_id).await.unwrap(), Release::Released);
    assert_eq!(get(&server, LOCK), "");
    granted(&store, &request("order:42").with_line(Line::Heed)).await;
    assert!(!exists(&server, &beside(LOCK, "q")));
}

#[tokio::test]
async fn a_name_with_signs_of_json_is_left_out_of_what_other_programs_see() {
    let server = Server::start();
    let store = connect(&server).await;
    let holder = request("order:42");
    granted(&store, &holder).await;
    let named = joining(request("order:42"), 60_000).with_holder(Holder::new("db-1/\"report\"").unwrap());
    held(&store, &named).await;
    store.release(&holder.lock_id).await.unwrap();
    assert_eq!(json(&server, LOCK)["holder"], json!(null));
    let refused = held(&store, &request("order:42")).await;
    assert_eq!(refused.holder, Some(named.holder.clone()));
    granted(&store, &named).await;
}

#[tokio::test]
async fn those_in_line_are_not_passed_when_a_lock_runs_out_that_nobody_released() {
    let server = Server::start();
    let store = connect(&server).await;
    granted(&store, &request("order:42").with_ttl(ttl(1))).await;
    let (first, late) = (joining(request("order:42"), 60_000), request("order:42"));
    held(&store, &first).await;
    eventually("it is over", async || !exists(&server, LOCK)).await;
    for polite in [late.clone().with_line(Line::Heed), joining(shared("order:42"), 60_000)] {
        let refused = held(&store, &polite).await;
        assert_eq!((refused.holders, refused.holder), (0, Some(first.holder.clone())));
    }
    // They called the first, so it is kept from all others now.
    held(&store, &late).await;
    granted(&store, &first).await;
}

#[tokio::test]
async fn places_that_have_ended_do_not_count() {
    let server = Server::start();
    let store = connect(&server).await;
    granted(&store, &request("order:42")).await;
    let waiters: Vec<_> = [60_000, 1, 1, 60_000].map(|lease| joining(request("order:42"), lease)).into();
    for waiter in &waiters {
        held(&store, waiter).await;
    }
    let ended = |waiter: &AcquireRequest| !exists(&server, &index_of(&waiter.lock_id));
    eventually("two of them are over", async || waiters[1..3].iter().all(ended)).await;
    assert_eq!(held(&store, &waiters[3]).await.place, Some(1));
    assert_eq!(store.inspect(&key("order:42")).await.unwrap().waiters.len(), 2);
    let page = store.list(&ListRequest::new("")).await.unwrap();
    assert_eq!(page.waiting[&key("order:42")], 2);
}

#[tokio::test]
async fn only_the_first_is_called_if_it_listens() {
    let server = Server::start();
    let store = connect(&server).await;
    let holder = request("order:42");
    granted(&store, &holder).await;
    let waiters: Vec<_> = (0..2).map(|_| joining(request("order:42"), 60_000)).collect();
    let mut turns = Vec::new();
    for waiter in &waiters {
        held(&store, waiter).await;
        turns.push(store.subscribe(Topic::Turn(&waiter.key, &waiter.lock_id)).await.unwrap());
    }
    let sent = server.calls("publish");
    store.release(&holder.lock_id).await.unwrap();
    assert_eq!(soon("its turn", turns[0].next()).await, Some(Event::Freed));
    assert_eq!(server.calls("publish") - sent, 1, "one message, whoever waits");
}

/// What is stored then is as if the clock of the server had been set back by an hour.
#[tokio::test]
async fn who_was_called_before_the_clock_was_set_back_is_called_again() {
    let server = Server::start();
    let store = connect(&server).await;
    let waiter = || joining(request("order:42"), 60_000);
    let (holder, dead, next) = (request("order:42"), waiter(), waiter());
    granted(&store, &holder).await;
    held(&store, &dead).await;
    store.release(&holder.lock_id).await.unwrap();
    let (index, hour) = (index_of(&dead.lock_id), 3_600_000);
    for (name, field) in [(index.as_str(), "untilMs"), (LOCK, "expiresAtMs")] {
        let before = json(&server, name)[field].as_u64().unwrap();
        let stored = get(&server, name).replace(&before.to_string(), &(before + hour).to_string());
        server.cli(&["SET", name, &stored, "PX", "3600000"]);
    }
    server.cli(&["ZADD", &beside(LOCK, "u"), &(now(&server) + hour).to_string(), dead.lock_id.expose()]);
    let found = held(&store, &next).await;
    assert!(found.free_in() <= Line::CALL_LEASE, "{found:?}");
    soon("it is passed over", async {
        while let Acquire::Held(_) = store.acquire(&next).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}
