//! Extending replaces the expiry of a lock that is still held, and does nothing else.

use std::time::Duration;

use leasehold::{LockState, Operation};

use super::context::{Context, LONG, SHORT, extended, granted, new_id, not_extended, refused, released, request, ttl};
use super::group;

group!("extend":
    sets_the_expiry_to_the_stores_time_plus_ttl,
    may_shorten,
    keeps_everything_else,
    holds_off_rivals_past_the_first_expiry,
    never_recreates,
    never_recreates_an_expired_lock,
    a_lock_may_expire_after_an_extend,
    a_guard_is_renewed_until_it_is_released_and_not_once_more,
);

async fn sets_the_expiry_to_the_stores_time_plus_ttl(cx: &Context) {
    let key = cx.key("replaced");
    let grant = cx.take(&key, LONG).await;
    cx.pass(30).await;
    let earliest = cx.earliest();
    let expires_at = extended(&cx.backend, &grant.lock_id, LONG).await;
    assert!(expires_at >= earliest.expiry(ttl(LONG)), "expires too early");
    assert!(expires_at <= cx.latest().expiry(ttl(LONG)), "expires too late");
    assert_eq!(cx.record(&key).await.expect("the lock is held").expires_at, expires_at);
}

async fn may_shorten(cx: &Context) {
    let grant = cx.take(&cx.key("shortened"), LONG).await;
    let expires_at = extended(&cx.backend, &grant.lock_id, LONG / 2).await;
    assert!(expires_at < grant.expires_at);
}

async fn keeps_everything_else(cx: &Context) {
    let key = cx.key("kept");
    let grant = cx.take(&key, LONG).await;
    let mut expected = cx.record(&key).await.expect("the lock is held");
    cx.pass(30).await;
    expected.expires_at = extended(&cx.peer, &grant.lock_id, LONG * 2).await;
    assert_eq!(cx.record(&key).await, Some(expected.clone()));
    assert_eq!(cx.record_of(&grant.lock_id).await, Some(expected));
}

async fn holds_off_rivals_past_the_first_expiry(cx: &Context) {
    let key = cx.key("prolonged");
    let grant = cx.take(&key, SHORT).await;
    extended(&cx.backend, &grant.lock_id, LONG).await;
    cx.until_free(SHORT).await;
    refused(&cx.peer, &request(&key, LONG)).await;
    released(&cx.backend, &grant.lock_id).await;
}

async fn never_recreates(cx: &Context) {
    let key = cx.key("released");
    let grant = cx.take(&key, LONG).await;
    released(&cx.backend, &grant.lock_id).await;
    not_extended(&cx.backend, &grant.lock_id, LONG).await;
    not_extended(&cx.backend, &new_id(), LONG).await;
    assert!(!cx.is_locked(&key).await);
    granted(&cx.peer, &request(&key, LONG)).await;
}

async fn never_recreates_an_expired_lock(cx: &Context) {
    let key = cx.key("expired");
    let grant = cx.take(&key, SHORT).await;
    cx.until_free(SHORT).await;
    not_extended(&cx.backend, &grant.lock_id, LONG).await;
    assert!(!cx.is_locked(&key).await);
    granted(&cx.peer, &request(&key, LONG)).await;
}

async fn a_lock_may_expire_after_an_extend(cx: &Context) {
    let key = cx.key("shortened");
    let grant = cx.take(&key, LONG).await;
    extended(&cx.backend, &grant.lock_id, SHORT).await;
    cx.until_free(SHORT).await;
    granted(&cx.peer, &request(&key, LONG)).await;
}

async fn a_guard_is_renewed_until_it_is_released_and_not_once_more(cx: &Context) {
    let (locks, faults) = cx.locks();
    let request = locks.lock(cx.key("renewed")).ttl(ttl(LONG_ENOUGH));
    let guard = request.acquire().await.expect("the lock is free");
    for renewals in 1..=3 {
        cx.pass(LONG_ENOUGH / 2).await;
        cx.eventually("renewed", || faults.calls(Operation::Extend) >= renewals).await;
        // Sent is not confirmed: a clock that moves on in between loses the lock.
        let most = Duration::from_millis(LONG_ENOUGH * 3 / 4);
        cx.eventually("confirmed", || guard.remaining() > most).await;
        assert_eq!(guard.state(), LockState::Held);
    }
    guard.release().await.expect("the lock is held");
    let sent = faults.calls(Operation::Extend);
    for _ in 0..4 {
        cx.pass(LONG_ENOUGH / 2).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(faults.calls(Operation::Extend), sent, "renewed after it was released");
}

/// A ttl that survives a slow machine for half its time.
const LONG_ENOUGH: u64 = 2000;
