//! Places in the line, and what keeps or ends them.

use leasehold::backend::{Absence, AcquireRequest, Extend, Line, Mode, Release};
use leasehold::{ErrorCode, Key, Metadata};
use serde_json::json;

use super::context::{LONG, SHORT};
use super::{
    Context, granted, group, heeding, holder, joining, leaves, live_record, permit, reader, refused, release, released,
    request, waiters, waits,
};

group!("kinds":
    places_are_kept_by_asking_again needs Lines,
    asking_again_keeps_since_and_place needs Lines,
    a_place_ends_with_its_lease needs Lines,
    places_end_side_by_side needs Lines,
    release_gives_up_a_place needs Lines,
    a_place_that_ended_is_followed_by_a_new_one needs Lines,
    a_lock_that_ended_is_followed_by_a_place needs Lines,
    a_free_lock_is_granted_to_whoever_joins needs Lines,
    whoever_is_granted_has_no_place_any_more needs Lines within CALL_LEASE,
    whoever_is_granted_without_a_call_has_its_lock needs Lines,
    heeding_takes_no_place needs Lines,
    a_place_is_no_lock needs Lines,
    a_place_of_another_key_is_refused needs Lines,
    a_call_cuts_the_lease needs Lines,
    a_called_waiter_that_does_not_come_is_passed_over needs Lines,
    a_waiter_called_in_vain_is_called_again needs Lines within CALL_LEASE,
);

async fn places_are_kept_by_asking_again(cx: &Context) {
    let key = cx.key("line");
    cx.take(&key, LONG).await;
    let line = [0, 1, 2, 3].map(|_| joining(request(&key, LONG), LONG));
    for _ in 0..3 {
        for (place, waiter) in (0..).zip(&line) {
            waits(if place % 2 == 0 { &cx.backend } else { &cx.peer }, waiter, place).await;
        }
    }
    for place in [2, 0, 3, 1] {
        waits(&cx.peer, &line[place], u32::try_from(place).expect("a short line")).await;
    }
}

async fn asking_again_keeps_since_and_place(cx: &Context) {
    let key = cx.key("again");
    cx.take(&key, LONG).await;
    let first = joining(request(&key, LONG), LONG);
    waits(&cx.backend, &first, 0).await;
    let last = joining(request(&key, LONG), LONG);
    waits(&cx.backend, &last, 1).await;
    let before = waiters(cx, &key).await;
    cx.pass(30).await;
    let notes = Metadata::new(json!({"again": true})).expect("valid notes");
    let again = joining(first, LONG * 2).with_mode(Mode::Shared).with_holder(holder("again")).with_metadata(notes);
    waits(&cx.peer, &again, 0).await;
    let after = waiters(cx, &key).await;
    assert_eq!(after.len(), 2);
    assert_eq!((after[0].lock_id, after[0].since), (again.lock_id, before[0].since), "it waits for as long as before");
    assert!(after[0].until.as_millis() >= before[0].until.as_millis() + LONG, "its lease begins anew");
    assert_eq!((after[0].mode, &after[0].holder), (Mode::Shared, &Some(holder("again"))));
    assert_eq!(after[0].metadata, again.metadata);
    assert_eq!(after[1], before[1], "nothing is changed for those behind it");
}

async fn a_place_ends_with_its_lease(cx: &Context) {
    let key = cx.key("ended");
    cx.take(&key, LONG).await;
    let (brief, lasting) = (joining(request(&key, LONG), SHORT), joining(request(&key, LONG), LONG));
    waits(&cx.backend, &brief, 0).await;
    let lasting_place = refused(&cx.peer, &lasting).await.place;
    assert!(lasting_place.is_some());
    cx.until_place_ends(SHORT).await;
    assert_eq!(waiters(cx, &key).await.len(), 1);
    waits(&cx.peer, &lasting, 0).await;
    waits(&cx.backend, &joining(brief, LONG), 1).await;
}

async fn places_end_side_by_side(cx: &Context) {
    let key = cx.key("together");
    cx.take(&key, LONG).await;
    for _ in 0..5 {
        refused(&cx.backend, &joining(request(&key, LONG), SHORT)).await;
    }
    let lasting = joining(request(&key, LONG), LONG);
    refused(&cx.peer, &lasting).await;
    cx.until_place_ends(SHORT).await;
    waits(&cx.peer, &lasting, 0).await;
}

async fn release_gives_up_a_place(cx: &Context) {
    let key = cx.key("left");
    let held = cx.take(&key, LONG).await;
    let line = [0, 1, 2].map(|_| joining(request(&key, LONG), LONG));
    for (place, waiter) in (0..).zip(&line) {
        waits(&cx.backend, waiter, place).await;
    }
    leaves(&cx.peer, &line[0]).await;
    leaves(&cx.backend, &line[0]).await;
    waits(&cx.backend, &line[1], 0).await;
    waits(&cx.peer, &line[2], 1).await;
    assert_eq!(cx.record(&key).await.map(|record| record.grant()), Some(held), "the holder is left alone");
    waits(&cx.peer, &line[0], 2).await;
}

async fn a_place_that_ended_is_followed_by_a_new_one(cx: &Context) {
    let key = cx.key("followed");
    cx.take(&key, LONG).await;
    let waiter = joining(request(&key, LONG), SHORT);
    waits(&cx.backend, &waiter, 0).await;
    let since = waiters(cx, &key).await.first().map(|waiter| waiter.since);
    cx.until_place_ends(SHORT).await;
    waits(&cx.peer, &joining(waiter.clone(), LONG), 0).await;
    let anew = waiters(cx, &key).await;
    assert!(Some(anew[0].since) > since, "it waits since it asked anew");
    leaves(&cx.backend, &waiter).await;
    assert_eq!(waiters(cx, &key).await, []);
}

async fn a_lock_that_ended_is_followed_by_a_place(cx: &Context) {
    let key = cx.key("overstayed");
    let overstayed = granted(&cx.backend, &reader(&key, SHORT)).await;
    granted(&cx.backend, &reader(&key, LONG)).await;
    cx.until_free(SHORT).await;
    let waiter = joining(request(&key, LONG), LONG).with_lock_id(overstayed.lock_id);
    waits(&cx.peer, &waiter, 0).await;
    let answer = release(&cx.backend, &waiter.lock_id).await;
    assert!(matches!(answer, Release::Absent(_)), "a place is no lock: {answer:?}");
    assert_eq!(waiters(cx, &key).await, []);
}

async fn a_free_lock_is_granted_to_whoever_joins(cx: &Context) {
    for (number, wanted) in [request, reader].into_iter().enumerate() {
        let key = cx.key(&format!("free-{number}"));
        granted(&cx.backend, &joining(wanted(&key, LONG), LONG)).await;
        assert_eq!(waiters(cx, &key).await, []);
        let heeds = cx.key(&format!("heeds-{number}"));
        granted(&cx.backend, &heeding(wanted(&heeds, LONG))).await;
    }
}

async fn whoever_is_granted_has_no_place_any_more(cx: &Context) {
    let key = cx.key("granted");
    let held = cx.take(&key, LONG).await;
    let (first, second) = (joining(request(&key, LONG), LONG), joining(request(&key, LONG), LONG));
    waits(&cx.backend, &first, 0).await;
    waits(&cx.backend, &second, 1).await;
    released(&cx.backend, &held.lock_id).await;
    let grant = granted(&cx.peer, &first).await;
    assert!(grant.fence > held.fence);
    assert_eq!(granted(&cx.backend, &first).await, grant);
    assert_eq!(waiters(cx, &key).await.iter().map(|waiter| waiter.lock_id).collect::<Vec<_>>(), [second.lock_id]);
    waits(&cx.peer, &second, 0).await;
}

async fn whoever_is_granted_without_a_call_has_its_lock(cx: &Context) {
    for (name, kind) in [("reader", reader as fn(&Key, u64) -> AcquireRequest), ("writer", request)] {
        let key = cx.key(name);
        cx.take(&key, SHORT).await;
        let waiter = joining(kind(&key, LONG), LONG);
        waits(&cx.backend, &waiter, 0).await;
        cx.until_free(SHORT).await;
        let grant = granted(&cx.peer, &waiter).await;
        assert_eq!(live_record(cx, &waiter).await.grant(), grant);
        assert_eq!(granted(&cx.backend, &waiter).await, grant, "the same again");
        assert_eq!(waiters(cx, &key).await, []);
        released(&cx.backend, &waiter.lock_id).await;
    }
}

async fn heeding_takes_no_place(cx: &Context) {
    let key = cx.key("heeding");
    cx.take(&key, LONG).await;
    assert_eq!(refused(&cx.backend, &heeding(request(&key, LONG))).await.place, None);
    assert_eq!(refused(&cx.backend, &request(&key, LONG)).await.place, None);
    assert_eq!(waiters(cx, &key).await, []);
    let waiter = joining(request(&key, LONG), LONG);
    waits(&cx.peer, &waiter, 0).await;
    let before = waiters(cx, &key).await;
    assert_eq!(refused(&cx.backend, &waiter.clone().with_line(Line::Heed)).await.place, None);
    assert_eq!(waiters(cx, &key).await, before, "a place is not touched by a look");
}

async fn a_place_is_no_lock(cx: &Context) {
    let key = cx.key("waiting");
    let held = cx.take(&key, LONG).await;
    let waiter = joining(request(&key, LONG), LONG);
    waits(&cx.backend, &waiter, 0).await;
    let answer = cx.peer.extend(&waiter.lock_id, waiter.ttl).await.expect("extend answers");
    assert_eq!(answer, Extend::Absent(Absence::NotFound));
    assert_eq!(cx.record_of(&waiter.lock_id).await, None);
    assert_eq!(cx.record(&key).await.map(|record| record.lock_id), Some(held.lock_id));
    waits(&cx.backend, &waiter, 0).await;
}

async fn a_place_of_another_key_is_refused(cx: &Context) {
    let (key, free, busy) = (cx.key("waited-for"), cx.key("free"), cx.key("busy"));
    cx.take(&key, LONG).await;
    cx.take(&busy, LONG).await;
    let waiter = joining(request(&key, LONG), LONG);
    waits(&cx.backend, &waiter, 0).await;
    let plain = waiter.clone().with_line(Line::Ignore);
    for (wanted, other) in [(&waiter, &free), (&plain, &free), (&waiter, &busy)] {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let wanted = wanted.clone().with_mode(mode).with_key(other.clone());
            let error = cx.peer.acquire(&wanted).await.expect_err("the id waits elsewhere");
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
        }
    }
    assert!(!cx.is_locked(&free).await);
    assert_eq!(waiters(cx, &busy).await, []);
    waits(&cx.backend, &waiter, 0).await;
    leaves(&cx.backend, &waiter).await;
    let held = granted(&cx.peer, &waiter.with_key(free.clone())).await;
    // And whoever holds one key waits for no other.
    let elsewhere = joining(request(&busy, LONG), LONG).with_lock_id(held.lock_id);
    let error = cx.backend.acquire(&elsewhere).await.expect_err("the id holds another key");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert_eq!(waiters(cx, &busy).await, []);
}

async fn a_call_cuts_the_lease(cx: &Context) {
    let key = cx.key("cut");
    let held = cx.take(&key, LONG).await;
    let (first, second) = (joining(permit(2, &key, LONG), LONG), joining(request(&key, LONG), LONG));
    waits(&cx.backend, &first, 0).await;
    waits(&cx.backend, &second, 1).await;
    let before = waiters(cx, &key).await;
    let earliest = cx.earliest() + Line::CALL_LEASE;
    released(&cx.peer, &held.lock_id).await;
    let latest = cx.latest() + Line::CALL_LEASE;
    let after = waiters(cx, &key).await;
    if after.len() == 2 {
        assert!(after[0].until.as_millis() >= earliest.as_millis(), "it has less than the time of a call");
        assert!(after[0].until <= latest, "its lease is not cut");
        assert_eq!(after[0].since, before[0].since);
        assert_eq!(after[1], before[1], "only the first is called");
    } else {
        assert!(cx.latest() > earliest, "its place is gone before its time");
    }
}

async fn a_called_waiter_that_does_not_come_is_passed_over(cx: &Context) {
    let key = cx.key("passed-over");
    let held = cx.take(&key, LONG).await;
    let line = [0, 1].map(|_| joining(request(&key, LONG), LONG));
    waits(&cx.backend, &line[0], 0).await;
    waits(&cx.peer, &line[1], 1).await;
    released(&cx.backend, &held.lock_id).await;
    cx.until_place_ends(u64::try_from(Line::CALL_LEASE.as_millis()).expect("a short lease")).await;
    granted(&cx.peer, &line[1]).await;
    assert_eq!(release(&cx.backend, &line[0].lock_id).await, Release::Absent(Absence::NotFound));
    waits(&cx.backend, &line[0], 0).await;
}

async fn a_waiter_called_in_vain_is_called_again(cx: &Context) {
    let key = cx.key("in-vain");
    let held = granted(&cx.backend, &permit(2, &key, LONG)).await;
    granted(&cx.backend, &permit(2, &key, LONG)).await;
    let waiter = joining(permit(2, &key, LONG), LONG);
    waits(&cx.backend, &waiter, 0).await;
    released(&cx.backend, &held.lock_id).await;
    // While others hold the lock, nothing is kept from those who ignore the line.
    let barges = granted(&cx.peer, &permit(2, &key, LONG)).await;
    waits(&cx.backend, &waiter, 0).await;
    let patient = waiters(cx, &key).await[0].until;
    released(&cx.peer, &barges.lock_id).await;
    let called = waiters(cx, &key).await[0].until;
    assert!(called < patient, "it asked again after the first call, so it is called again");
    granted(&cx.peer, &waiter).await;
}
