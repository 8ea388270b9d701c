//! Fences go on from a counter that others increment too, and never fall below the clock.

use leasehold::backend::{Backend, Release};
use leasehold::{ErrorCode, Fence};
use test_support::{Case, cases, connect, everything_said, granted, held, request};

use crate::Store;

pub(crate) const CASES: &[Case] = cases![
    a_fence_is_one_more_than_a_counter_that_is_ahead_of_the_clock,
    a_fence_is_the_clock_when_the_counter_is_behind_or_missing,
    a_repeated_acquire_has_the_same_fence_and_a_refused_one_uses_none_up,
    the_highest_fence_is_granted_and_none_beyond_it,
];

async fn a_fence_is_one_more_than_a_counter_that_is_ahead_of_the_clock(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    let mut last = server.now() * 10 + 1_000_000_000;
    for _ in 0..3 {
        // The other library's last grant.
        server.set_fence_counter("order:42", &last.to_string());
        for _ in 0..2 {
            let held = request("order:42");
            assert_eq!(granted(&*store, &held).await.fence.get(), last + 1);
            assert_eq!(server.fence_counter("order:42"), (last + 1).to_string());
            assert_eq!(store.release(&held.lock_id).await.unwrap(), Release::Released);
            last += 1;
        }
        last += 1;
    }
}

async fn a_fence_is_the_clock_when_the_counter_is_behind_or_missing(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    let mut last = 0;
    for counter in [None, Some("7"), Some("0"), None] {
        match counter {
            Some(counter) => server.set_fence_counter("order:42", counter),
            None => server.forget_fence_counters(),
        }
        let held = request("order:42");
        let before = server.now();
        let fence = granted(&*store, &held).await.fence.get();
        // In units of 100 microseconds.
        assert!((before * 10..(server.now() + 1) * 10).contains(&fence), "{fence} after {counter:?}");
        assert!(fence > last, "{fence} after {last}");
        assert_eq!(server.fence_counter("order:42"), fence.to_string());
        store.release(&held.lock_id).await.unwrap();
        last = fence;
    }
}

async fn a_repeated_acquire_has_the_same_fence_and_a_refused_one_uses_none_up(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    let mine = request("order:42");
    let grant = granted(&*store, &mine).await;
    held(&*store, &request("order:42")).await;
    assert_eq!(granted(&*store, &mine).await, grant);
    assert_eq!(server.fence_counter("order:42"), grant.fence.get().to_string());
}

async fn the_highest_fence_is_granted_and_none_beyond_it(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    server.set_fence_counter("order:42", "899999999999999");
    let held = request("order:42");
    assert_eq!(granted(&*store, &held).await.fence, Fence::MAX);
    assert_eq!(server.fence_counter("order:42"), "900000000000000");
    store.release(&held.lock_id).await.unwrap();
    for counter in ["900000000000000", "9007199254740993", &i64::MAX.to_string()] {
        server.set_fence_counter("order:42", counter);
        let before = server.snapshot();
        let error = store.acquire(&request("order:42")).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Internal, "{counter}");
        assert!(everything_said(&error).contains("beyond"), "{error:?}");
        assert!(error.hint().unwrap().contains("counter") && !error.to_string().contains("order:42"), "{error:?}");
        assert!(!error.outcome_unknown() && !error.is_retryable());
        assert_eq!(server.snapshot(), before, "{counter}");
    }
}
