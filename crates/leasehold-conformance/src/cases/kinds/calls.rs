//! Who hears that it may be let in: one at a time, not a herd.

use leasehold::backend::{Event, Subscription, Topic};
use leasehold::{Fence, Key, LockId, Loss, Steal};

use super::context::{LONG, event, silent};
use super::{Context, granted, group, joining, leaves, permit, reader, released, request, waits};
use crate::cases::context::loss_of;

group!("kinds":
    a_release_with_a_line_wakes_only_the_first needs Lines and WakeUps within CALL_LEASE,
    only_the_head_is_called needs Lines and WakeUps within CALL_LEASE,
    whoever_is_let_in_calls_the_next needs Lines and WakeUps within CALL_LEASE,
    the_next_hears_that_a_place_was_given_up needs Lines and WakeUps within CALL_LEASE,
    the_last_place_given_up_wakes_everybody needs Lines and WakeUps,
    without_a_line_everybody_is_woken needs Lines and WakeUps,
    a_forced_release_calls_the_first needs Lines and WakeUps within CALL_LEASE,
    every_victim_of_a_steal_is_told needs Lines and WakeUps,
);

async fn turn(cx: &Context, key: &Key, id: &LockId) -> Subscription {
    cx.peer.subscribe(Topic::Turn(key, id)).await.expect("subscribe answers")
}

async fn freed(cx: &Context, key: &Key) -> Subscription {
    cx.peer.subscribe(Topic::Freed(key)).await.expect("subscribe answers")
}

async fn is_woken(subscription: &mut Subscription) {
    let event = event(subscription).await;
    assert!(matches!(event, Event::Freed | Event::Missed), "{event:?}");
}

async fn a_release_with_a_line_wakes_only_the_first(cx: &Context) {
    let key = cx.key("called");
    let held = cx.take(&key, LONG).await;
    let (first, second) = (joining(request(&key, LONG), LONG), joining(request(&key, LONG), LONG));
    waits(&cx.backend, &first, 0).await;
    waits(&cx.backend, &second, 1).await;
    let (mut first_turn, mut second_turn) =
        (turn(cx, &key, &first.lock_id).await, turn(cx, &key, &second.lock_id).await);
    let mut anybody = freed(cx, &key).await;
    released(&cx.backend, &held.lock_id).await;
    is_woken(&mut first_turn).await;
    assert!(silent(&mut second_turn).await, "the second in line is woken");
    assert!(silent(&mut anybody).await, "somebody who is not in line is woken");
    granted(&cx.backend, &first).await;
    released(&cx.peer, &first.lock_id).await;
    is_woken(&mut second_turn).await;
    assert!(silent(&mut anybody).await, "somebody who is not in line is woken");
}

async fn only_the_head_is_called(cx: &Context) {
    let key = cx.key("head");
    let writer = cx.take(&key, LONG).await;
    let line = [0, 1, 2].map(|_| joining(reader(&key, LONG), LONG));
    let mut turns = Vec::new();
    for (place, waiter) in (0..).zip(&line) {
        waits(&cx.backend, waiter, place).await;
        turns.push(turn(cx, &key, &waiter.lock_id).await);
    }
    released(&cx.backend, &writer.lock_id).await;
    is_woken(&mut turns[0]).await;
    // There is room for all of them, but they come one after the other.
    assert!(silent(&mut turns[1]).await, "the second in line is woken");
    assert!(silent(&mut turns[2]).await, "the third in line is woken");
}

async fn whoever_is_let_in_calls_the_next(cx: &Context) {
    let key = cx.key("chain");
    let held = [granted(&cx.backend, &permit(2, &key, LONG)).await, granted(&cx.peer, &permit(2, &key, LONG)).await];
    let line = [0, 1, 2].map(|_| joining(permit(2, &key, LONG), LONG));
    let mut turns = Vec::new();
    for (place, waiter) in (0..).zip(&line) {
        waits(&cx.backend, waiter, place).await;
        turns.push(turn(cx, &key, &waiter.lock_id).await);
    }
    for grant in &held {
        released(&cx.backend, &grant.lock_id).await;
    }
    is_woken(&mut turns[0]).await;
    granted(&cx.peer, &line[0]).await;
    is_woken(&mut turns[1]).await;
    granted(&cx.backend, &line[1]).await;
    assert!(silent(&mut turns[2]).await, "there is no room for the third");
}

async fn the_next_hears_that_a_place_was_given_up(cx: &Context) {
    let key = cx.key("given-up");
    let held = granted(&cx.backend, &reader(&key, LONG)).await;
    let line = [request, reader, request].map(|kind| joining(kind(&key, LONG), LONG));
    let mut turns = Vec::new();
    for (place, waiter) in (0..).zip(&line) {
        waits(&cx.backend, waiter, place).await;
        turns.push(turn(cx, &key, &waiter.lock_id).await);
    }
    // The reader behind it goes with the one that holds the lock.
    leaves(&cx.backend, &line[0]).await;
    is_woken(&mut turns[1]).await;
    released(&cx.backend, &held.lock_id).await;
    leaves(&cx.peer, &line[1]).await;
    is_woken(&mut turns[2]).await;
    granted(&cx.peer, &line[2]).await;
}

async fn the_last_place_given_up_wakes_everybody(cx: &Context) {
    let key = cx.key("last");
    let held = cx.take(&key, LONG).await;
    let only = joining(request(&key, LONG), LONG);
    waits(&cx.backend, &only, 0).await;
    released(&cx.backend, &held.lock_id).await;
    // Nobody can have it while it is kept for the one in line, and now it is free.
    let mut anybody = freed(cx, &key).await;
    leaves(&cx.backend, &only).await;
    is_woken(&mut anybody).await;
    granted(&cx.peer, &request(&key, LONG)).await;
}

async fn without_a_line_everybody_is_woken(cx: &Context) {
    let key = cx.key("nobody-waits");
    let late = request(&key, LONG);
    for kind in [request, reader] {
        let held = granted(&cx.backend, &kind(&key, LONG)).await;
        let (mut anybody, mut late_turn) = (freed(cx, &key).await, turn(cx, &key, &late.lock_id).await);
        released(&cx.peer, &held.lock_id).await;
        is_woken(&mut anybody).await;
        is_woken(&mut late_turn).await;
    }
}

async fn a_forced_release_calls_the_first(cx: &Context) {
    let key = cx.key("forced");
    cx.take(&key, LONG).await;
    let first = joining(request(&key, LONG), LONG);
    waits(&cx.backend, &first, 0).await;
    let (mut first_turn, mut anybody) = (turn(cx, &key, &first.lock_id).await, freed(cx, &key).await);
    assert_eq!(cx.backend.force_release(&key, None).await.expect("force_release answers").len(), 1);
    is_woken(&mut first_turn).await;
    assert!(silent(&mut anybody).await, "somebody who is not in line is woken");
    granted(&cx.peer, &first).await;
}

async fn every_victim_of_a_steal_is_told(cx: &Context) {
    let key = cx.key("victims");
    let mut taken = cx.backend.subscribe(Topic::Taken).await.expect("subscribe answers");
    let victims: [Fence; 2] =
        [granted(&cx.backend, &reader(&key, LONG)).await.fence, granted(&cx.peer, &reader(&key, LONG)).await.fence];
    granted(&cx.peer, &request(&key, LONG).with_steal(Steal::NEVER.with_same_holder())).await;
    for fence in victims {
        assert_eq!(loss_of(&mut taken, (&key, fence)).await, Loss::Stolen);
    }
}
