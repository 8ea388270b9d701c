//! The store inside the process: what the contract does not ask for but its users do.

use std::time::Duration;

use leasehold::backend::{Acquire, AcquireRequest, Backend, Event, Topic};
use leasehold::memory::Memory;
use leasehold::testing::ManualClock;
use leasehold::{Fence, LockId, Locks, TIME_TOLERANCE, Ttl};
use test_support::{eventually, key};

fn request(name: &str) -> AcquireRequest {
    AcquireRequest::new(key(name), LockId::random().unwrap(), Ttl::from_millis(100).unwrap())
}

async fn fence(store: &Memory, request: &AcquireRequest) -> Fence {
    match store.acquire(request).await.unwrap() {
        Acquire::Granted(grant) => grant.fence,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn dead_records_are_swept_two_seconds_past_the_tolerance_and_no_sooner() {
    let clock = ManualClock::new();
    let store = Memory::with_clock(&clock);
    for n in 0..100 {
        fence(&store, &request(&format!("k{n}"))).await;
    }
    clock.advance(Duration::from_millis(100) + TIME_TOLERANCE + Duration::from_secs(2));
    assert_eq!((store.sweep(), store.len()), (0, 100));
    clock.advance(Duration::from_millis(1));
    eventually("swept, by us or in the background", async || {
        store.sweep();
        store.is_empty()
    })
    .await;
}

#[tokio::test]
async fn dead_records_are_swept_in_the_background() {
    let clock = ManualClock::new();
    let store = Memory::with_clock(&clock);
    for n in 0..100 {
        fence(&store, &request(&format!("k{n}"))).await;
    }
    clock.advance(Duration::from_secs(60));
    eventually("swept", async || store.is_empty()).await;
}

#[tokio::test]
async fn fences_go_on_rising_after_everything_was_swept() {
    let clock = ManualClock::new();
    let store = Memory::with_clock(&clock);
    let mut last = None;
    // The clock stands still, so that only the counter keeps them apart.
    for _ in 0..50 {
        let request = request("k");
        let next = fence(&store, &request).await;
        assert!(Some(next) > last);
        last = Some(next);
        store.release(&request.lock_id).await.unwrap();
        assert!(store.is_empty());
    }
    let crashed = request("k");
    assert!(Some(fence(&store, &crashed).await) > last);
    clock.advance(Duration::from_secs(60));
    store.sweep();
    assert!(store.is_empty());
    assert!(Some(fence(&store, &request("k")).await) > last);
}

#[tokio::test]
async fn nothing_is_kept_of_released_locks_and_dropped_subscriptions() {
    let store = Memory::new();
    for n in 0..1000 {
        let request = request(&format!("k{n}"));
        let subscription = store.subscribe(Topic::Freed(&request.key)).await.unwrap();
        fence(&store, &request).await;
        store.release(&request.lock_id).await.unwrap();
        drop(subscription);
    }
    assert!(store.is_empty());
}

#[tokio::test]
async fn a_slow_reader_of_taken_locks_is_told_that_it_missed_some() {
    let store = Memory::new();
    let mut taken = store.subscribe(Topic::Taken).await.unwrap();
    for n in 0..1100 {
        let request = request(&format!("k{n}"));
        fence(&store, &request).await;
        store.force_release(&request.key, None).await.unwrap();
    }
    let mut events = 0;
    let mut missed = false;
    while let Ok(Some(event)) = tokio::time::timeout(Duration::from_millis(50), taken.next()).await {
        match event {
            Event::Missed => missed = true,
            Event::Taken { .. } => events += 1,
            other => panic!("not subscribed to {other:?}"),
        }
    }
    assert!(missed && events >= 1000, "{events} events");
}

#[tokio::test]
async fn users_can_jump_time_in_their_own_tests() {
    let clock = ManualClock::new();
    let store = Memory::with_clock(&clock);
    let crashed = Locks::builder(store.clone()).clock(&clock).build();
    let _ = crashed.lock("report").acquire().await.unwrap().leak();

    let next = Locks::builder(store).clock(&clock).build();
    assert!(next.lock("report").try_acquire().await.unwrap().is_none());
    clock.advance(Duration::from_secs(31));
    assert!(next.lock("report").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn an_extend_or_release_of_an_expired_lock_tells_it_from_an_unknown_one() {
    use leasehold::backend::{Absence, Extend, Release};
    let clock = ManualClock::new();
    let store = Memory::with_clock(&clock);
    let request = request("k");
    fence(&store, &request).await;
    clock.advance(Duration::from_millis(100) + TIME_TOLERANCE);
    assert_eq!(store.extend(&request.lock_id, request.ttl).await.unwrap(), Extend::Absent(Absence::Expired));
    assert_eq!(store.release(&request.lock_id).await.unwrap(), Release::Absent(Absence::Expired));
    let unknown = LockId::random().unwrap();
    assert_eq!(store.release(&unknown).await.unwrap(), Release::Absent(Absence::NotFound));
}
