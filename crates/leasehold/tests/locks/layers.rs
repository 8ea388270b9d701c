//! Telemetry and metrics.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::layers::{EventResult, EventType, LockEvent, Reason, TelemetryLayer};
use leasehold::memory::Memory;
use leasehold::testing::{Fault, FaultLayer, ManualClock};
use leasehold::{ErrorCode, LockId, Locks, Operation, TIME_TOLERANCE, Ttl};
use test_support::key;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<LockEvent>>>);

impl Log {
    fn push(&self) -> impl Fn(&LockEvent) + Send + 'static {
        let log = self.clone();
        move |event| log.0.lock().unwrap().push(event.clone())
    }

    fn take(&self, layer: &TelemetryLayer) -> Vec<LockEvent> {
        layer.flush();
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Type, result and reason of each event.
fn outline(events: &[LockEvent]) -> Vec<(EventType, EventResult, Option<Reason>)> {
    events.iter().map(|event| (event.event_type, event.result, event.reason)).collect()
}

#[tokio::test]
async fn every_operation_is_reported_with_its_result_reason_and_hashes() {
    use EventResult::{Fail, Ok};
    use EventType::{Acquire, Extend, IsLocked, Lookup, Release};
    let clock = ManualClock::new();
    let log = Log::default();
    let store = TelemetryLayer::new(Memory::with_clock(&clock), log.push());
    let locks = Locks::builder(store.clone()).clock(&clock).build();
    let key = key("user:alice");

    let guard = locks.lock("user:alice").acquire().await.unwrap();
    let id = *guard.lock_id();
    let events = log.take(&store);
    assert_eq!(outline(&events), [(Acquire, Ok, None)]);
    assert_eq!((events[0].key_hash, events[0].lock_id_hash), (Some(key.hash_id()), Some(id.hash_id())));

    assert!(locks.lock("user:alice").try_acquire().await.unwrap().is_none());
    assert!(locks.is_locked(&key).await.unwrap());
    assert!(locks.get_by_key(&key).await.unwrap().is_some());
    assert!(locks.get_by_id(&id).await.unwrap().is_some());
    guard.extend(Duration::from_secs(60)).await.unwrap();
    guard.release().await.unwrap();
    let events = log.take(&store);
    assert_eq!(
        outline(&events),
        [
            (Acquire, Fail, Some(Reason::Locked)),
            (IsLocked, Ok, None),
            (Lookup, Ok, None),
            (Lookup, Ok, None),
            (Extend, Ok, None),
            (Release, Ok, None),
        ]
    );
    assert_eq!((events[3].key_hash, events[3].lock_id_hash), (None, Some(id.hash_id())));
    assert_eq!((events[5].key_hash, events[5].lock_id_hash), (None, Some(id.hash_id())));

    assert!(!locks.is_locked(&key).await.unwrap());
    assert!(locks.get_by_key(&key).await.unwrap().is_none());
    assert!(!locks.release(&id).await.unwrap());
    assert!(!locks.extend(&id, Ttl::default()).await.unwrap());
    let expired = locks.lock("k").heartbeat(false).acquire().await.unwrap().leak();
    clock.advance(Duration::from_secs(30) + TIME_TOLERANCE);
    assert!(!locks.release(&expired.lock_id).await.unwrap());
    let events = log.take(&store);
    assert_eq!(
        outline(&events),
        [
            (IsLocked, Fail, None),
            (Lookup, Fail, None),
            (Release, Fail, Some(Reason::NotFound)),
            (Extend, Fail, Some(Reason::NotFound)),
            (Acquire, Ok, None),
            (Release, Fail, Some(Reason::Expired)),
        ]
    );
    assert!(events.iter().all(|event| event.key.is_none() && event.lock_id.is_none()));
}

#[tokio::test]
async fn errors_are_reported_as_failures_without_a_reason() {
    let (store, faults) = FaultLayer::new(Memory::new());
    let log = Log::default();
    let store = TelemetryLayer::new(store, log.push());
    for operation in [Operation::Acquire, Operation::Release, Operation::Extend, Operation::IsLocked, Operation::Lookup]
    {
        faults.always(operation, Fault::FailBefore(ErrorCode::AuthFailed));
    }
    let locks = Locks::new(store.clone());
    let id = LockId::random().unwrap();
    locks.lock("k").try_acquire().await.unwrap_err();
    locks.release(&id).await.unwrap_err();
    locks.extend(&id, Ttl::default()).await.unwrap_err();
    locks.is_locked(&key("k")).await.unwrap_err();
    locks.owns(&id).await.unwrap_err();
    let events = log.take(&store);
    assert_eq!(events.len(), 5);
    assert!(events.iter().all(|event| event.result == EventResult::Fail && event.reason.is_none()));
}

#[tokio::test]
async fn raw_identifiers_are_included_only_where_allowed() {
    let acquire_and_count = async |store: TelemetryLayer, log: Log| {
        let locks = Locks::new(store.clone());
        locks.lock("a").acquire().await.unwrap().release().await.unwrap();
        locks.lock("b").acquire().await.unwrap().release().await.unwrap();
        let events = log.take(&store);
        assert_eq!(events.len(), 4);
        events.iter().filter(|event| event.key.is_some() || event.lock_id.is_some()).count()
    };
    let log = Log::default();
    let never = TelemetryLayer::include_raw(Memory::new(), false, log.push());
    assert_eq!(acquire_and_count(never, log).await, 0);
    let log = Log::default();
    let always = TelemetryLayer::include_raw(Memory::new(), true, log.push());
    assert_eq!(acquire_and_count(always, log).await, 4);
    let log = Log::default();
    let only_a = key("a").hash_id();
    let some = TelemetryLayer::include_raw_if(Memory::new(), move |event| event.key_hash == Some(only_a), log.push());
    assert_eq!(acquire_and_count(some, log).await, 1);
}

#[tokio::test]
async fn callbacks_that_panic_or_block_hurt_no_operation() {
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let store = TelemetryLayer::include_raw_if(
        Memory::new(),
        |_| panic!("a broken predicate"),
        move |_| {
            let _ = blocked.recv();
        },
    );
    let locks = Locks::new(store.clone());
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    store.flush();

    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let slow = TelemetryLayer::new(Memory::new(), move |_| {
        let _ = stopped.recv();
    });
    let locks = Locks::new(slow.clone());
    for _ in 0..2000 {
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    }
    assert!(slow.dropped() >= 4000 - 1026, "{}", slow.dropped());
    drop((unblock, stop));

    let broken = TelemetryLayer::new(Memory::new(), |_| panic!("a broken callback"));
    let locks = Locks::new(broken.clone());
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    broken.flush();
    assert_eq!(broken.dropped(), 0);
}
