//! What is recorded through the `metrics` facade. The recorder is global, so this is one test in a
//! process of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::memory::Memory;
use leasehold::testing::{Fault, FaultLayer, ManualClock};
use leasehold::{ErrorCode, LockId, Locks, Operation};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// Counts and sums by name and labels, and the names that were described.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<BTreeMap<String, (u64, f64)>>>, Arc<Mutex<BTreeSet<String>>>);

struct Cell(Recorded, String);

impl Recorded {
    fn add(&self, name: &str, value: f64) {
        let mut all = self.0.lock().expect("nobody panicked");
        let entry = all.entry(name.to_owned()).or_default();
        *entry = (entry.0 + 1, entry.1 + value);
    }

    /// How often `name` was recorded, and the sum.
    fn get(&self, name: &str) -> (u64, f64) {
        self.0.lock().expect("nobody panicked").get(name).copied().unwrap_or_default()
    }

    fn describe(&self, name: &KeyName) {
        self.1.lock().expect("nobody panicked").insert(name.as_str().to_owned());
    }

    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Cell(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }
}

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        self.0.add(&self.1, u32::try_from(value).expect("a small step").into());
    }

    fn absolute(&self, _: u64) {
        unreachable!("counters are only incremented");
    }
}

impl GaugeFn for Cell {
    fn increment(&self, value: f64) {
        self.0.add(&self.1, value);
    }

    fn decrement(&self, value: f64) {
        self.0.add(&self.1, -value);
    }

    fn set(&self, _: f64) {
        unreachable!("several handles share the gauge");
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        self.0.add(&self.1, value);
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}

/// What the gauge shows.
fn held(recorded: &Recorded) -> f64 {
    recorded.get("leasehold_held_locks{}").1
}

#[tokio::test]
async fn operations_waits_holds_contention_and_losses_are_recorded() {
    let recorded = Recorded::default();
    metrics::set_global_recorder(recorded.clone()).expect("the only recorder");
    let clock = ManualClock::new();
    let (store, faults) = FaultLayer::new(Memory::with_clock(&clock));

    let silent = Locks::builder(store.clone()).clock(&clock).build();
    silent.lock("k").acquire().await.unwrap().release().await.unwrap();
    assert!(recorded.0.lock().unwrap().is_empty(), "nothing is recorded unless asked for");

    let locks = Locks::builder(store).clock(&clock).metrics().build();
    let guard = locks.lock("k").heartbeat(false).acquire().await.unwrap();
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
    assert!((held(&recorded) - 1.0).abs() < 0.1);
    clock.advance(Duration::from_secs(7));
    guard.release().await.unwrap();
    assert_eq!(recorded.get("leasehold_operations_total{operation=acquire,outcome=ok}").0, 1);
    assert_eq!(recorded.get("leasehold_operations_total{operation=acquire,outcome=held}").0, 1);
    assert_eq!(recorded.get("leasehold_operations_total{operation=release,outcome=ok}").0, 1);
    assert_eq!(recorded.get("leasehold_operation_seconds{operation=acquire}").0, 2);
    assert_eq!(recorded.get("leasehold_contention_total{}").0, 1);
    assert_eq!(recorded.get("leasehold_wait_seconds{outcome=acquired}"), (1, 0.0));
    assert_eq!(recorded.get("leasehold_hold_seconds{}"), (1, 7.0));

    let lost = locks.lock("k").heartbeat(false).acquire().await.unwrap();
    clock.advance(Duration::from_secs(30));
    lost.lost().await;
    while recorded.get("leasehold_lost_total{reason=expired}").0 == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(recorded.get("leasehold_lost_total{reason=expired}").0, 1);
    assert_eq!(recorded.get("leasehold_hold_seconds{}"), (2, 37.0));
    lost.release().await.unwrap_err();
    assert_eq!(recorded.get("leasehold_hold_seconds{}").0, 2, "once for each hold");

    faults.next(Operation::Acquire, Fault::FailBefore(ErrorCode::AuthFailed));
    locks.lock("k").acquire().await.unwrap_err();
    assert_eq!(recorded.get("leasehold_operations_total{operation=acquire,outcome=error}").0, 1);
    assert_eq!(recorded.get("leasehold_wait_seconds{outcome=gave_up}").0, 1);
    assert!(!locks.release(&LockId::random().unwrap()).await.unwrap());
    assert_eq!(recorded.get("leasehold_operations_total{operation=release,outcome=absent}").0, 1);

    assert!(held(&recorded).abs() < 0.1, "released, lost and refused locks are not held");
    let leaked = locks.lock("leaked").acquire().await.unwrap().leak();
    assert!(held(&recorded).abs() < 0.1, "nor are those that were handed over");
    assert!(locks.release(&leaked.lock_id).await.unwrap());

    let store_clock = ManualClock::new();
    let locks = Locks::builder(Memory::with_clock(&store_clock)).clock(&clock).metrics().build();
    for (set, direction) in [(false, "forward"), (true, "back")] {
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
        let step = Duration::from_secs(60);
        if set {
            store_clock.set_back(step);
        } else {
            store_clock.advance(step);
        }
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
        let name = format!("leasehold_store_clock_steps_total{{direction={direction}}}");
        assert_eq!(recorded.get(&name).0, 1, "{direction}");
    }

    let described = recorded.1.lock().unwrap().clone();
    for name in recorded.0.lock().unwrap().keys() {
        assert!(described.contains(name.split('{').next().unwrap()), "{name} is not described");
    }
    let names: Vec<_> = recorded.0.lock().unwrap().keys().cloned().collect();
    assert!(names.iter().all(|name| !name.contains("=k")), "no label carries a key: {names:?}");
}
