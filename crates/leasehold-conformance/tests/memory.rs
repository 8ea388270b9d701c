//! The store inside the process, on a manual clock and on the system's.

use std::process::ExitCode;
use std::sync::Arc;

use leasehold::{Backend, Error, ManualClock, Memory};
use leasehold_conformance::history::HistoryOptions;
use leasehold_conformance::model::ModelConfig;
use leasehold_conformance::{ManualHarness, RealHarness, Suite, runner};

fn main() -> ExitCode {
    let manual = Suite::new("memory", || async {
        let clock = ManualClock::new();
        let store = Memory::with_clock(&clock);
        let peer = store.fork().await?;
        Ok::<_, Error>(ManualHarness::new(Arc::new(store), peer, &clock))
    });
    let real = Suite::new("memory_real_clock", || async {
        let store = Memory::new();
        let peer = store.fork().await?;
        Ok::<_, Error>(RealHarness::new(Arc::new(store), peer))
    });
    runner::main(&[manual.model(ModelConfig::manual_clock()).history(HistoryOptions::manual_clock()), real])
}
