//! Every setting of a handle is there for URLs too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::layers::{EventType, TelemetryLayer};
use leasehold::testing::{Fault, FaultLayer, Faults, ManualClock};
use leasehold::{ErrorCode, Holder, Locks, Operation};

#[tokio::test]
async fn the_holder_is_the_one_that_was_chosen() {
    let holder = Holder::new("billing/worker-1").unwrap();
    let locks = Locks::connect_with("memory:", |builder| builder.holder(holder.clone())).await.unwrap();
    let guard = locks.lock("k").acquire().await.unwrap();
    let contention = locks.lock("k").try_acquire_or_see().await.unwrap().unwrap_err();
    assert_eq!(contention.holder, Some(holder));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn layers_go_around_the_store_of_a_url_and_the_last_is_the_outermost() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (mut faults, mut telemetry): (Option<Faults>, Option<TelemetryLayer>) = (None, None);
    let log = seen.clone();
    let locks = Locks::connect_with("memory:", |builder| {
        let faulty = builder.layer(|store| {
            let (layer, script) = FaultLayer::new(store);
            faults = Some(script);
            layer
        });
        faulty.layer(|store| {
            let layer = TelemetryLayer::new(store, move |event| log.lock().unwrap().push(event.event_type));
            telemetry.insert(layer).clone()
        })
    })
    .await
    .unwrap();
    faults.unwrap().next(Operation::IsLocked, Fault::FailBefore(ErrorCode::RateLimited));
    let key = leasehold::Key::new("k").unwrap();
    assert_eq!(locks.is_locked(&key).await.unwrap_err().code(), ErrorCode::RateLimited);
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    telemetry.unwrap().flush();
    let seen = seen.lock().unwrap();
    assert!(seen.contains(&EventType::Acquire) && seen.contains(&EventType::Release), "{seen:?}");
    assert!(seen.contains(&EventType::IsLocked), "also what the layer below refused: {seen:?}");
}

#[tokio::test]
async fn clocks_timeouts_and_hooks_are_settings_too() {
    let clock = ManualClock::new();
    let failures = Arc::new(AtomicU64::new(0));
    let (mut faults, count) = (None, failures.clone());
    let locks = Locks::connect_with("memory:", |builder| {
        builder
            .clock(&clock)
            .call_timeout(Duration::from_secs(1))
            .release_timeout(Duration::from_millis(10))
            .on_release_error(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
            })
            .layer(|store| {
                let (layer, script) = FaultLayer::new(store);
                faults = Some(script);
                layer
            })
    })
    .await
    .unwrap();
    faults.unwrap().always(Operation::Release, Fault::FailBefore(ErrorCode::AuthFailed));
    let guard = locks.lock("k").heartbeat(false).ttl(Duration::from_secs(30)).acquire().await.unwrap();
    clock.advance(Duration::from_secs(10));
    assert_eq!(guard.remaining(), Duration::from_secs(20), "by the clock that was chosen");
    drop(guard);
    while failures.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
