//! Nobody is let in before those who stand before it in the line.

use leasehold::TIME_TOLERANCE;
use leasehold::backend::{Acquire, Line, Mode};

use super::context::{LONG, SHORT};
use super::{
    Context, acquire, granted, group, heeding, holder, inspect, joining, leaves, one_of, permit, reader, refused,
    released, request, waiters, waits,
};

group!("kinds":
    the_line_is_in_order needs Lines within CALL_LEASE,
    a_reader_behind_a_writer_waits needs Lines,
    readers_at_the_head_go_in_together needs Lines within CALL_LEASE,
    permits_go_in_as_long_as_there_are_any needs Lines within CALL_LEASE,
    nobody_slips_in_between_release_and_head needs Lines within CALL_LEASE,
    is_locked_is_false_while_it_is_kept_for_the_first_in_line needs Lines within CALL_LEASE,
    an_ended_lease_is_kept_for_nobody_who_was_not_called needs Lines,
    a_refused_request_calls_who_is_next needs Lines within CALL_LEASE,
    a_repeated_acquire_calls_who_is_next needs Lines within CALL_LEASE,
    whoever_gives_up_makes_room_for_the_next needs Lines within CALL_LEASE,
);

async fn the_line_is_in_order(cx: &Context) {
    let key = cx.key("ordered");
    let mut held = cx.take(&key, LONG).await;
    let line = [0, 1, 2].map(|_| joining(request(&key, LONG), LONG));
    for (place, waiter) in (0..).zip(&line) {
        waits(&cx.backend, waiter, place).await;
    }
    for (number, next) in line.iter().enumerate() {
        released(&cx.backend, &held.lock_id).await;
        for (place, behind) in (1..).zip(&line[number + 1..]) {
            waits(&cx.peer, behind, place).await;
        }
        refused(&cx.peer, &heeding(request(&key, LONG))).await;
        held = granted(&cx.peer, next).await;
    }
    assert_eq!(waiters(cx, &key).await, []);
}

async fn a_reader_behind_a_writer_waits(cx: &Context) {
    let key = cx.key("behind");
    let first = granted(&cx.backend, &reader(&key, LONG)).await;
    let writer = joining(request(&key, LONG), LONG);
    waits(&cx.backend, &writer, 0).await;
    let found = refused(&cx.peer, &heeding(reader(&key, LONG))).await;
    assert_eq!((found.fence, found.holders, found.mode), (Some(first.fence), 1, Mode::Shared));
    let until = waiters(cx, &key).await[0].until;
    assert_eq!((found.expires_at + TIME_TOLERANCE).as_millis(), until.as_millis(), "the writer's place is in its way");
    waits(&cx.peer, &joining(reader(&key, LONG), LONG), 1).await;
    // Who ignores the line passes it.
    granted(&cx.peer, &reader(&key, LONG)).await;
    assert_eq!(refused(&cx.backend, &writer).await.holders, 2);
}

async fn readers_at_the_head_go_in_together(cx: &Context) {
    let key = cx.key("together");
    let writer = cx.take(&key, LONG).await;
    let wanted = [reader, reader, request, reader].map(|kind| joining(kind(&key, LONG), LONG));
    for (place, waiter) in (0..).zip(&wanted) {
        waits(&cx.backend, waiter, place).await;
    }
    released(&cx.peer, &writer.lock_id).await;
    waits(&cx.peer, &wanted[1], 1).await;
    granted(&cx.backend, &wanted[0]).await;
    granted(&cx.peer, &wanted[1]).await;
    waits(&cx.peer, &wanted[3], 1).await;
    waits(&cx.peer, &wanted[2], 0).await;
    released(&cx.backend, &wanted[0].lock_id).await;
    waits(&cx.backend, &wanted[2], 0).await;
    released(&cx.backend, &wanted[1].lock_id).await;
    waits(&cx.peer, &wanted[3], 1).await;
    granted(&cx.peer, &wanted[2]).await;
    waits(&cx.backend, &wanted[3], 0).await;
    released(&cx.peer, &wanted[2].lock_id).await;
    granted(&cx.backend, &wanted[3]).await;
}

async fn permits_go_in_as_long_as_there_are_any(cx: &Context) {
    let key = cx.key("some");
    let held = [granted(&cx.backend, &permit(2, &key, LONG)).await, granted(&cx.peer, &permit(2, &key, LONG)).await];
    let line = [0, 1, 2].map(|_| joining(permit(2, &key, LONG), LONG));
    for (place, waiter) in (0..).zip(&line) {
        waits(&cx.backend, waiter, place).await;
    }
    for grant in &held {
        released(&cx.backend, &grant.lock_id).await;
    }
    waits(&cx.peer, &line[1], 1).await;
    assert_eq!(granted(&cx.backend, &line[0]).await.slot, Some(0));
    assert_eq!(granted(&cx.peer, &line[1]).await.slot, Some(1));
    let found = refused(&cx.peer, &line[2]).await;
    assert_eq!((found.place, found.holders), (Some(0), 2));
}

async fn nobody_slips_in_between_release_and_head(cx: &Context) {
    let key = cx.key("kept");
    let held = cx.take(&key, LONG).await;
    let first = joining(reader(&key, LONG), LONG).with_holder(holder("first"));
    waits(&cx.backend, &first, 0).await;
    let since = waiters(cx, &key).await[0].since;
    released(&cx.peer, &held.lock_id).await;
    for wanted in [request(&key, LONG), reader(&key, LONG), permit(3, &key, LONG), heeding(reader(&key, LONG))] {
        for store in [&cx.backend, &cx.peer] {
            let found = refused(store, &wanted).await;
            assert_eq!((found.holders, found.mode, found.fence), (0, Mode::Shared, None), "nobody holds it");
            assert_eq!((found.holder, found.acquired_at), (Some(holder("first")), since), "who is first is named");
            let until = waiters(cx, &key).await[0].until;
            assert_eq!((found.expires_at + TIME_TOLERANCE).as_millis(), until.as_millis(), "until its place ends");
        }
    }
    granted(&cx.backend, &first).await;
}

async fn is_locked_is_false_while_it_is_kept_for_the_first_in_line(cx: &Context) {
    let key = cx.key("unlocked");
    let held = cx.take(&key, LONG).await;
    let first = joining(request(&key, LONG), LONG);
    waits(&cx.backend, &first, 0).await;
    released(&cx.peer, &held.lock_id).await;
    for store in [&cx.backend, &cx.peer] {
        assert!(!store.is_locked(&key).await.expect("is_locked answers"));
    }
    assert_eq!(cx.record(&key).await, None);
    let page = cx.backend.list(&leasehold::ListRequest::new(key.as_str())).await.expect("list answers");
    assert_eq!(page.records, []);
    assert_eq!(cx.backend.force_release(&key, None).await.expect("force_release answers"), []);
    let found = inspect(cx, &key).await;
    assert_eq!((found.holders.len(), found.waiters.len()), (0, 1));
    granted(&cx.backend, &first).await;
}

async fn an_ended_lease_is_kept_for_nobody_who_was_not_called(cx: &Context) {
    let key = cx.key("ended");
    cx.take(&key, SHORT).await;
    let first = joining(request(&key, LONG), LONG * 2);
    waits(&cx.backend, &first, 0).await;
    cx.until_free(SHORT).await;
    let passed = granted(&cx.peer, &request(&key, LONG)).await;
    waits(&cx.backend, &first, 0).await;
    released(&cx.peer, &passed.lock_id).await;
}

async fn a_refused_request_calls_who_is_next(cx: &Context) {
    let key = cx.key("refused");
    cx.take(&key, SHORT).await;
    let first = joining(permit(2, &key, LONG), LONG * 2);
    waits(&cx.backend, &first, 0).await;
    cx.until_free(SHORT).await;
    let found = refused(&cx.peer, &heeding(request(&key, LONG))).await;
    assert_eq!((found.holders, found.mode), (0, one_of(2)));
    let until = waiters(cx, &key).await[0].until;
    assert!(until <= found.now + Line::CALL_LEASE, "its place is cut to the time of a call");
    assert_eq!((found.expires_at + TIME_TOLERANCE).as_millis(), until.as_millis(), "and so it is told");
    // From now on it is kept, also from those who ignore the line.
    refused(&cx.backend, &request(&key, LONG)).await;
    granted(&cx.backend, &first).await;
}

async fn a_repeated_acquire_calls_who_is_next(cx: &Context) {
    let key = cx.key("repeated");
    let first = reader(&key, LONG);
    let grant = granted(&cx.backend, &first).await;
    let (writer, behind) = (joining(request(&key, LONG), SHORT), joining(reader(&key, LONG), LONG));
    waits(&cx.backend, &writer, 0).await;
    waits(&cx.backend, &behind, 1).await;
    cx.until_place_ends(SHORT).await;
    assert_eq!(granted(&cx.peer, &first).await, grant, "the same again");
    let found = &waiters(cx, &key).await[0];
    assert!(found.until.as_millis() < found.since.as_millis() + LONG / 2, "it was called: {found:?}");
    granted(&cx.backend, &behind).await;
}

async fn whoever_gives_up_makes_room_for_the_next(cx: &Context) {
    let key = cx.key("given-up");
    let held = granted(&cx.backend, &reader(&key, LONG)).await;
    let (writer, behind) = (joining(request(&key, LONG), LONG), joining(reader(&key, LONG), LONG));
    waits(&cx.backend, &writer, 0).await;
    waits(&cx.backend, &behind, 1).await;
    leaves(&cx.peer, &writer).await;
    granted(&cx.backend, &behind).await;
    released(&cx.backend, &held.lock_id).await;
    released(&cx.backend, &behind.lock_id).await;
    let answer = acquire(&cx.peer, &writer).await;
    assert!(matches!(answer, Acquire::Granted(_)), "nobody is left: {answer:?}");
}
