//! The store inside the process, on a manual clock and on the system's, and with all layers around
//! it.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Error;
use leasehold::backend::Backend;
use leasehold::layers::{MetricsLayer, TelemetryLayer};
use leasehold::memory::Memory;
use leasehold::testing::{FaultLayer, ManualClock};
use leasehold_conformance::history::HistoryOptions;
use leasehold_conformance::model::ModelConfig;
use leasehold_conformance::{ManualHarness, RealHarness, Suite};

pub(crate) fn suites() -> Vec<Suite> {
    let real = Suite::new("memory_real_clock", || async {
        let store = Memory::new();
        Ok::<_, Error>(RealHarness::new(Arc::new(store.clone()), Arc::new(store)))
    });
    let thorough = ModelConfig { sequences: 10_000, ..ModelConfig::manual_clock() };
    let memory = manual("memory", plain).model(thorough).timeout(Duration::from_secs(150));
    vec![memory, manual("memory_with_layers", layered), real]
}

fn manual(name: &str, around: fn(Memory) -> Arc<dyn Backend>) -> Suite {
    let suite = Suite::new(name, move || async move {
        let clock = ManualClock::new();
        let store = around(Memory::with_clock(&clock));
        Ok::<_, Error>(ManualHarness::new(store.clone(), store, &clock))
    });
    suite.model(ModelConfig::manual_clock()).history(HistoryOptions::manual_clock()).guards(false)
}

fn plain(store: Memory) -> Arc<dyn Backend> {
    Arc::new(store)
}

/// Every layer, and a box, which must all pass on what they do not care about.
fn layered(store: Memory) -> Arc<dyn Backend> {
    let (store, _) = FaultLayer::new(store);
    let store = TelemetryLayer::include_raw(MetricsLayer::new(store), true, |_| {});
    Arc::new(Box::new(store) as Box<dyn Backend>)
}
