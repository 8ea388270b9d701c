//! Metrics of a handle that was made from a URL.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::Locks;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Counts the operations that are recorded.
#[derive(Default)]
struct Counting(Arc<AtomicU64>);

impl Recorder for Counting {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() == "leasehold_operations_total" { Counter::from_arc(self.0.clone()) } else { Counter::noop() }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test]
async fn metrics_are_recorded_if_asked_for() {
    let recorder = Counting::default();
    let recorded = recorder.0.clone();
    // For this thread, on which all of this runs but for renewals.
    let _recording = metrics::set_default_local_recorder(&recorder);
    let silent = Locks::connect("memory:").await.unwrap();
    silent.lock("k").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(recorded.load(Ordering::Relaxed), 0);
    let locks = Locks::connect_with("memory:", |builder| builder.metrics()).await.unwrap();
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(recorded.load(Ordering::Relaxed), 2, "acquire and release");
}
