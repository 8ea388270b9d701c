//! Leases end by themselves, not before the tolerance has passed.

use std::time::Duration;

use leasehold::backend::Acquire;
use leasehold::testing::Fault;
use leasehold::{Loss, Operation, TIME_TOLERANCE, Ttl};

use super::context::{
    Context, LONG, SHORT, acquire, extended, granted, not_extended, not_released, refused, released, request, ttl,
};
use super::group;

group!("expiry":
    nobody_takes_it_within_the_tolerance,
    its_holder_may_still_act_within_the_tolerance,
    free_after_ttl_plus_tolerance,
    an_expired_lock_is_not_seen,
    an_expired_id_is_absent,
    expires_at_is_the_stores_time_plus_ttl,
    the_shortest_ttl_works,
    the_longest_ttl_works,
    a_guards_time_counts_from_its_request,
    a_guard_is_lost_before_anybody_else_is_let_in,
);

async fn nobody_takes_it_within_the_tolerance(cx: &Context) {
    // Only an attempt that was over before the tolerance was says anything.
    for round in 0..10 {
        let key = cx.key(&format!("expired-{round}"));
        let grant = cx.take(&key, 100).await;
        cx.pass(300).await;
        let answer = acquire(&cx.peer, &request(&key, LONG)).await;
        let locked = cx.is_locked(&key).await;
        if cx.latest().as_millis() < (grant.expires_at + TIME_TOLERANCE).as_millis() {
            assert!(matches!(answer, Acquire::Held(_)), "given away within the tolerance: {answer:?}");
            assert!(locked, "not locked within the tolerance");
            return;
        }
    }
    panic!("ten attempts were all too slow");
}

async fn its_holder_may_still_act_within_the_tolerance(cx: &Context) {
    for round in 0..10 {
        let (kept, freed) = (cx.key(&format!("kept-{round}")), cx.key(&format!("freed-{round}")));
        let (keep, free) = (cx.take(&kept, 100).await, cx.take(&freed, 100).await);
        cx.pass(300).await;
        if cx.latest() + TIME_TOLERANCE / 2 < keep.expires_at + TIME_TOLERANCE {
            extended(&cx.backend, &keep.lock_id, LONG).await;
            released(&cx.backend, &free.lock_id).await;
            refused(&cx.peer, &request(&kept, LONG)).await;
            granted(&cx.peer, &request(&freed, LONG)).await;
            return;
        }
    }
    panic!("ten attempts were all too slow");
}

async fn free_after_ttl_plus_tolerance(cx: &Context) {
    let key = cx.key("abandoned");
    cx.take(&key, SHORT).await;
    cx.until_free(SHORT).await;
    granted(&cx.peer, &request(&key, LONG)).await;
}

async fn an_expired_lock_is_not_seen(cx: &Context) {
    let key = cx.key("gone");
    let grant = cx.take(&key, SHORT).await;
    cx.until_free(SHORT).await;
    assert!(!cx.is_locked(&key).await);
    assert_eq!(cx.record(&key).await, None);
    assert_eq!(cx.record_of(&grant.lock_id).await, None);
    let page = cx.backend.list(&leasehold::ListRequest::new(cx.namespace())).await.expect("list answers");
    assert_eq!(page.records, []);
}

async fn an_expired_id_is_absent(cx: &Context) {
    let key = cx.key("too-late");
    let grant = cx.take(&key, SHORT).await;
    cx.until_free(SHORT).await;
    not_extended(&cx.backend, &grant.lock_id, LONG).await;
    not_released(&cx.backend, &grant.lock_id).await;
}

async fn expires_at_is_the_stores_time_plus_ttl(cx: &Context) {
    let key = cx.key("timed");
    let wanted = request(&key, LONG);
    let earliest = cx.earliest();
    let grant = granted(&cx.backend, &wanted).await;
    let latest = cx.latest();
    assert!(grant.acquired_at.as_millis() >= earliest.as_millis() && grant.acquired_at <= latest, "acquired_at");
    assert!(grant.expires_at >= earliest.expiry(wanted.ttl), "expires too early");
    assert!(grant.expires_at <= latest.expiry(wanted.ttl), "expires too late");
}

async fn the_shortest_ttl_works(cx: &Context) {
    let key = cx.key("short");
    let grant = cx.take(&key, 1).await;
    assert_eq!(grant.expires_at.as_millis() - grant.acquired_at.as_millis(), 1);
    cx.until_free(1).await;
    granted(&cx.peer, &request(&key, LONG)).await;
}

async fn the_longest_ttl_works(cx: &Context) {
    let key = cx.key("long");
    let grant = cx.take(&key, Ttl::MAX.as_millis()).await;
    assert_eq!(grant.expires_at.as_millis() - grant.acquired_at.as_millis(), Ttl::MAX.as_millis());
    let expires_at = extended(&cx.backend, &grant.lock_id, Ttl::MAX.as_millis()).await;
    assert!(expires_at >= grant.expires_at);
    refused(&cx.peer, &request(&key, LONG)).await;
    released(&cx.backend, &grant.lock_id).await;
}

async fn a_guards_time_counts_from_its_request(cx: &Context) {
    let (locks, faults) = cx.locks();
    faults.next(Operation::Acquire, Fault::DelayAfter(Duration::from_millis(300)));
    let request = locks.lock(cx.key("slow-answer")).ttl(ttl(LONG)).heartbeat(false);
    let (guard, ()) = tokio::join!(request.acquire(), cx.pass(100));
    let remaining = guard.expect("the lock is free").remaining();
    assert!(remaining <= Duration::from_millis(LONG - 100), "counted from the answer: {remaining:?} left");
}

async fn a_guard_is_lost_before_anybody_else_is_let_in(cx: &Context) {
    let key = cx.key("lost");
    let (locks, _) = cx.locks();
    let guard = locks.lock(&key).ttl(ttl(SHORT)).heartbeat(false).acquire().await.expect("the lock is free");
    cx.pass(SHORT).await;
    assert_eq!(guard.lost().await, Loss::Expired);
    let expiry = guard.expires_at();
    let answer = acquire(&cx.peer, &request(&key, LONG)).await;
    if cx.latest().as_millis() < (expiry + TIME_TOLERANCE).as_millis() {
        assert!(matches!(answer, Acquire::Held(_)), "let in within the tolerance: {answer:?}");
    }
    cx.until_free(SHORT).await;
    if matches!(answer, Acquire::Held(_)) {
        let rival = granted(&cx.peer, &request(&key, LONG)).await;
        assert!(rival.fence > guard.fence());
    }
}
