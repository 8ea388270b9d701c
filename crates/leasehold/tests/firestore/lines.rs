//! The line of those who wait for a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::backend::{
    Absence, Acquire, AcquireRequest, Backend, Event, Extend, Line, Mode, Release, Subscription, Topic,
};
use leasehold::{ErrorCode, Locks};
use serde_json::{Value, json};
use test_servers::{Firestore, FirestoreFault};
use test_support::{connect, eventually, granted, held, id, key, request, soon, ttl};

/// Longer than news takes, and shorter than anybody waits without.
const QUIET: Duration = Duration::from_millis(150);

fn joining(name: &str) -> AcquireRequest {
    request(name).with_line(Line::Join { lease: ttl(60_000) })
}

async fn place(store: &dyn Backend, request: &AcquireRequest) -> Option<u32> {
    held(store, request).await.place
}

fn fields(server: &Firestore) -> Value {
    server.document("locks/order:42").unwrap().fields
}

async fn is_quiet(subscription: &mut Subscription) -> bool {
    tokio::time::timeout(QUIET, subscription.next()).await.is_err()
}

#[tokio::test]
async fn the_document_of_a_held_lock_has_the_line_beside_it_and_is_that_of_the_called_one_once_released() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let holder = request("order:42");
    let grant = granted(&*store, &holder).await;
    let plain = fields(&server);
    let (first, second) = (joining("order:42"), joining("order:42").with_mode(Mode::Shared));
    assert_eq!(place(&*store, &first).await, Some(0));
    assert_eq!(place(&*store, &second).await, Some(1));
    let mut with_line = fields(&server);
    let line = with_line.as_object_mut().unwrap().remove("line").unwrap();
    let ids = with_line.as_object_mut().unwrap().remove("ids").unwrap();
    assert_eq!(with_line, plain, "the lock is as it was");
    let id = |request: &AcquireRequest| json!({"stringValue": request.lock_id.expose()});
    assert_eq!(ids, json!({"arrayValue": {"values": [id(&first), id(&second)]}}));
    let waiters = store.inspect(&key("order:42")).await.unwrap().waiters;
    let entry = |index: usize, mode: &str| {
        json!({"mapValue": {"fields": {
            "lockId": {"stringValue": waiters[index].lock_id.expose()},
            "mode": {"stringValue": mode},
            "sinceMs": {"integerValue": waiters[index].since.as_millis().to_string()},
            "untilMs": {"integerValue": waiters[index].until.as_millis().to_string()},
            "holder": {"stringValue": first.holder.as_str()},
        }}})
    };
    assert_eq!(line, json!({"arrayValue": {"values": [entry(0, "exclusive"), entry(1, "shared")]}}));

    assert_eq!(store.release(&holder.lock_id).await.unwrap(), Release::Released);
    let kept = fields(&server);
    let called = store.inspect(&key("order:42")).await.unwrap().waiters[0].until;
    assert!(kept["lockId"]["stringValue"].as_str().unwrap().starts_with("~q"), "{kept}");
    assert_eq!(kept["expiresAtMs"]["integerValue"], (called.as_millis() - 1000).to_string());
    assert_eq!(kept["fence"]["stringValue"], grant.fence.to_string());
    assert_eq!(kept["line"]["arrayValue"]["values"][0]["mapValue"]["fields"]["called"], json!({"booleanValue": true}));
    assert!(granted(&*store, &first).await.fence > grant.fence);
    store.release(&second.lock_id).await.unwrap();
    let plain = fields(&server);
    assert!(plain.get("line").is_none() && plain.get("ids").is_none(), "{plain}");
}

#[tokio::test]
async fn a_waiter_that_is_stopped_while_it_joins_never_holds_up_the_holder() {
    let server = Firestore::start();
    let (holder, others) = (connect(&server.url()).await, connect(&server.url()).await);
    let mine = request("order:42");
    granted(&*holder, &mine).await;
    let mut stopped = tokio::task::JoinSet::new();
    for step in ["BatchGetDocuments", "RunQuery", "Commit"] {
        let fault = FirestoreFault::silence().on(step);
        // Also the commit stands still before it is carried out, so that nobody gets a place.
        server.inject(if step == "Commit" { fault.times(1) } else { fault.after().times(1) });
        let others = others.clone();
        stopped.spawn(async move { others.acquire(&joining("order:42")).await });
        eventually("it stands still", async || server.fault_hits() == 1).await;
        assert!(matches!(holder.extend(&mine.lock_id, ttl(60_000)).await.unwrap(), Extend::Extended { .. }), "{step}");
        server.clear_faults();
    }
    assert_eq!(server.calls("Commit"), 5, "a grant, three extends, and one that stands still");
}

#[tokio::test]
async fn one_id_is_in_one_line_and_neither_joins_nor_takes_another_key() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    for name in ["order:42", "other"] {
        granted(&*store, &request(name)).await;
    }
    let waiting = joining("order:42");
    place(&*store, &waiting).await;
    for name in ["other", "free"] {
        let error = store.acquire(&waiting.clone().with_key(key(name))).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{name}: {error:?}");
    }
    assert!(store.inspect(&key("other")).await.unwrap().waiters.is_empty());
    assert_eq!(place(&*store, &waiting).await, Some(0));
}

#[tokio::test]
async fn those_who_come_together_all_get_a_place_and_are_let_in_in_that_order() {
    for optimistic in [false, true] {
        let server = Firestore::start();
        server.set_optimistic(optimistic);
        let store = connect(&server.url()).await;
        let holder = request("order:42");
        granted(&*store, &holder).await;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..12 {
            let store: Arc<dyn Backend> = store.clone();
            tasks.spawn(async move {
                let mine = joining("order:42");
                place(&*store, &mine).await;
                mine
            });
        }
        let waiting = tasks.join_all().await;
        let line = store.inspect(&key("order:42")).await.unwrap().waiters;
        assert_eq!(line.len(), waiting.len());
        store.release(&holder.lock_id).await.unwrap();
        for place in line {
            let next = waiting.iter().find(|request| request.lock_id == place.lock_id).unwrap();
            // All ask at once, and only the first in line gets it.
            let asked = waiting.iter().filter(|request| request.lock_id != place.lock_id).take(3);
            for other in asked.map(|other| other.clone().with_line(Line::Heed).with_lock_id(id())) {
                assert!(matches!(store.acquire(&other).await.unwrap(), Acquire::Held(_)));
            }
            granted(&*store, next).await;
            store.release(&next.lock_id).await.unwrap();
        }
        assert!(server.document("locks/order:42").is_none());
    }
}

#[tokio::test]
async fn a_turn_is_told_to_its_owner_and_to_nobody_else_however_many_listen_to_the_document() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let holder = request("order:42");
    granted(&*store, &holder).await;
    let line = [joining("order:42"), joining("order:42"), joining("order:42")];
    let mut turns = Vec::new();
    for waiter in &line {
        place(&*store, waiter).await;
        turns.push(store.subscribe(Topic::Turn(&waiter.key, &waiter.lock_id)).await.unwrap());
    }
    let mut anybody = store.subscribe(Topic::Freed(&holder.key)).await.unwrap();
    assert_eq!(server.streams(), 1);
    // Heartbeats of the holder and of those who wait are no news.
    store.extend(&holder.lock_id, ttl(60_000)).await.unwrap();
    for waiter in &line {
        place(&*store, waiter).await;
    }
    for turn in &mut turns {
        assert!(is_quiet(turn).await);
    }
    store.release(&holder.lock_id).await.unwrap();
    for (index, waiter) in line.iter().enumerate() {
        assert_eq!(soon("its turn", turns[index].next()).await, Some(Event::Freed), "{index}");
        for later in &mut turns[index + 1..] {
            assert!(is_quiet(later).await);
        }
        granted(&*store, waiter).await;
        store.release(&waiter.lock_id).await.unwrap();
        if index + 1 < line.len() {
            assert!(is_quiet(&mut anybody).await);
        }
    }
    assert_eq!(soon("the last release", anybody.next()).await, Some(Event::Freed));
}

#[tokio::test]
async fn one_who_was_called_and_asked_in_vain_is_called_again() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let permit = || request("order:42").with_mode(Mode::Permit { of: 2.try_into().unwrap() });
    let holders = [permit(), permit()];
    for holder in &holders {
        granted(&*store, holder).await;
    }
    let waiter = permit().with_line(Line::Join { lease: ttl(60_000) });
    place(&*store, &waiter).await;
    let mut turn = store.subscribe(Topic::Turn(&waiter.key, &waiter.lock_id)).await.unwrap();
    store.release(&holders[0].lock_id).await.unwrap();
    assert_eq!(soon("its turn", turn.next()).await, Some(Event::Freed));
    // Somebody who ignores the line is faster.
    granted(&*store, &permit()).await;
    assert_eq!(place(&*store, &waiter).await, Some(0));
    assert!(is_quiet(&mut turn).await);
    store.release(&holders[1].lock_id).await.unwrap();
    assert_eq!(soon("its turn again", turn.next()).await, Some(Event::Freed));
}

#[tokio::test]
async fn a_line_is_lost_with_a_release_of_the_other_library_and_all_are_told_and_ask_again() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let holder = request("order:42");
    granted(&*store, &holder).await;
    let line = [joining("order:42"), joining("order:42")];
    let mut turns = Vec::new();
    for waiter in &line {
        place(&*store, waiter).await;
        turns.push(store.subscribe(Topic::Turn(&waiter.key, &waiter.lock_id)).await.unwrap());
    }
    server.delete_document("locks/order:42");
    for turn in &mut turns {
        assert_eq!(soon("that it is free", turn.next()).await, Some(Event::Freed));
    }
    // In the order in which they ask.
    granted(&*store, &line[1]).await;
    assert_eq!(place(&*store, &line[0]).await, Some(0));
}

#[tokio::test]
async fn a_turn_that_came_while_the_stream_was_lost_is_not_missed() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let holder = request("order:42");
    granted(&*store, &holder).await;
    let waiter = joining("order:42");
    place(&*store, &waiter).await;
    let mut turn = store.subscribe(Topic::Turn(&waiter.key, &waiter.lock_id)).await.unwrap();
    server.inject(FirestoreFault::status("UNAVAILABLE").on("Listen").times(2));
    assert_eq!(server.close_streams("UNAVAILABLE"), 1);
    store.release(&holder.lock_id).await.unwrap();
    let event = soon("news", turn.next()).await;
    assert!(matches!(event, Some(Event::Freed | Event::Missed)), "{event:?}");
}

#[tokio::test]
async fn one_who_gives_up_its_place_after_it_was_called_in_vain_leaves_no_document() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    for many in [false, true] {
        let holder = request("order:42");
        granted(&*store, &holder).await;
        let waiter = joining("order:42");
        place(&*store, &waiter).await;
        store.release(&holder.lock_id).await.unwrap();
        eventually("its time is over", async || store.inspect(&waiter.key).await.unwrap().waiters.is_empty()).await;
        let released = match many {
            true => store.release_many(&[waiter.lock_id]).await.remove(0),
            false => store.release(&waiter.lock_id).await,
        };
        assert_eq!(released.unwrap(), Release::Absent(Absence::NotFound));
        assert!(server.document("locks/order:42").is_none(), "many: {many}");
    }
}

#[tokio::test]
async fn there_is_room_for_a_thousand_and_the_next_is_told_so() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let holder = request("order:42");
    granted(&*store, &holder).await;
    let waiter = joining("order:42");
    place(&*store, &waiter).await;
    // Nine hundred and ninety-eight more like it.
    let mut full = fields(&server);
    let places = full["line"]["arrayValue"]["values"].as_array_mut().unwrap();
    let first = places[0].clone();
    for _ in 0..998 {
        let mut next = first.clone();
        next["mapValue"]["fields"]["lockId"]["stringValue"] = json!(id().expose());
        places.push(next);
    }
    server.set_document("locks/order:42", &full);
    let error = store.acquire(&joining("order:42")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
    assert!(error.to_string().contains("1000") && !error.outcome_unknown(), "{error:?}");
    // Those who are there go on, and those who do not want to wait are answered.
    assert_eq!(place(&*store, &waiter).await, Some(0));
    assert_eq!(place(&*store, &request("order:42")).await, None);
    assert!(matches!(store.extend(&holder.lock_id, ttl(60_000)).await.unwrap(), Extend::Extended { .. }));
    assert_eq!(store.release(&holder.lock_id).await.unwrap(), Release::Released);
    let line = store.inspect(&waiter.key).await.unwrap().waiters;
    assert_eq!((line.len(), line[0].lock_id), (999, waiter.lock_id));
}

#[tokio::test]
async fn places_that_cannot_be_read_are_passed_over_and_keep_nobody_from_its_lock() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let holder = request("order:42");
    granted(&*store, &holder).await;
    let waiter = joining("order:42");
    place(&*store, &waiter).await;
    let mut odd = fields(&server);
    let mut unknown = odd["line"]["arrayValue"]["values"][0].clone();
    unknown["mapValue"]["fields"]["mode"]["stringValue"] = json!("upgradable");
    let places = odd["line"]["arrayValue"]["values"].as_array_mut().unwrap();
    places.insert(0, unknown);
    places.insert(0, json!({"stringValue": "nobody"}));
    server.set_document("locks/order:42", &odd);
    assert!(matches!(store.extend(&holder.lock_id, ttl(60_000)).await.unwrap(), Extend::Extended { .. }));
    assert_eq!(store.inspect(&holder.key).await.unwrap().waiters.len(), 1);
    assert_eq!(store.release(&holder.lock_id).await.unwrap(), Release::Released);
    granted(&*store, &waiter).await;
}

#[tokio::test]
async fn readers_writers_and_permits_stand_in_line_and_others_only_if_they_ask_for_it() {
    let server = Firestore::start();
    let locks = Locks::new(connect(&server.url()).await);
    let held = locks.lock("order:42").acquire().await.unwrap();
    let others = Locks::new(connect(&server.url()).await);
    let (plain, asked) = (others.lock("order:42"), Arc::new(AtomicUsize::new(0)));
    let counted = asked.clone();
    let plain = plain.on_contention(move |seen| {
        assert_eq!(seen.place, None);
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let mut waiting = vec![tokio::spawn(plain.wait_forever().acquire())];
    eventually("it waits", async || asked.load(Ordering::SeqCst) > 0).await;
    for (number, kind) in (1..).zip([Kind::Reader, Kind::Writer, Kind::Permit, Kind::Fair]) {
        let others = Locks::new(connect(&server.url()).await);
        let request = match kind {
            Kind::Reader => others.shared("order:42"),
            Kind::Writer => others.exclusive("order:42"),
            Kind::Permit => others.permit("order:42", 2),
            Kind::Fair => others.lock("order:42").fair(),
        };
        waiting.push(tokio::spawn(request.wait_forever().acquire()));
        let stands = async || locks.waiters("order:42").await.unwrap().len() == number;
        eventually("it stands in line", stands).await;
    }
    waiting.iter().for_each(|waiting| waiting.abort());
    held.release().await.unwrap();
}

enum Kind {
    Reader,
    Writer,
    Permit,
    Fair,
}
