//! Every store of the table: through two handles of this process, and through one here and one in
//! another process. And what some of them have besides: the store inside the process, layers, a
//! crowd, a cluster, a pooler, conflicts. Every case has a store of its own, but for the cluster.
//! Cases that run in one process share servers that take long to start, so `cargo test` is several
//! times as fast here as a runner with a process for each.

mod around;
mod crowd;
mod memory;

use std::error::Error;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use leasehold::Locks;
use leasehold_conformance::history::HistoryOptions;
use leasehold_conformance::model::ModelConfig;
use leasehold_conformance::remote::{self, Peer};
use leasehold_conformance::{RealHarness, Suite, runner};
use test_support::{STORES, StoreUnderTest};

/// Set to the URL of a store, it makes this program serve the locks there instead of testing
/// anything.
const SERVE: &str = "LEASEHOLD_CONFORMANCE_SERVE";

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    if let Ok(url) = std::env::var(SERVE) {
        return serve(&url);
    }
    let mut suites = memory::suites();
    for store in STORES {
        suites.push(shorter(Suite::new(store.name, move || one_process(store))));
        suites.push(Suite::new(format!("{}_other_process", store.name), move || two_processes(store)));
    }
    suites.push(shorter(Suite::new("redis_with_layers", around::layers)));
    suites.push(shorter(Suite::new("redis_crowd", around::redis_crowd)));
    suites.push(shorter(Suite::new("postgres_crowd", around::postgres_crowd)));
    suites.push(shorter(Suite::new("redis_cluster", around::cluster)));
    // A pooler does not deliver notifications.
    suites.push(shorter(Suite::new("postgres_pgbouncer", around::pooler)).without_wake_ups());
    suites.push(shorter(Suite::new("firestore_conflicts", around::conflicts)));
    runner::main(&suites.into_iter().map(as_able_as_its_store).collect::<Vec<_>>())
}

/// What a store cannot do, no suite over it can: those are named after their stores.
fn as_able_as_its_store(suite: Suite) -> Suite {
    let store = STORES.iter().find(|store| suite.name().split('_').next() == Some(store.name));
    if store.is_none_or(|store| store.lines) { suite } else { suite.without_lines() }
}

/// What random commands find in one process they find in two, so in one they get half of the time.
fn shorter(suite: Suite) -> Suite {
    suite
        .model(ModelConfig { sequences: 8, ..ModelConfig::real_clock() })
        .history(HistoryOptions { duration: Duration::from_secs(3), ..HistoryOptions::real_clock() })
}

#[tokio::main(flavor = "current_thread")]
async fn serve(url: &str) -> ExitCode {
    let locks = Locks::connect(url).await.expect("the store opens");
    remote::serve(locks.backend().clone()).await.expect("the peer is understood");
    ExitCode::SUCCESS
}

async fn one_process(store: &StoreUnderTest) -> Result<RealHarness, Failure> {
    let running = store.share();
    let (store, peer) = (Locks::connect(&running.url()).await?, Locks::connect(&running.url()).await?);
    Ok(RealHarness::new(store.backend().clone(), peer.backend().clone()).keeping(running))
}

async fn two_processes(store: &StoreUnderTest) -> Result<RealHarness, Failure> {
    let running = store.share();
    let store = Locks::connect(&running.url()).await?;
    let mut command = Command::new(std::env::current_exe()?);
    command.env(SERVE, running.url());
    Ok(RealHarness::new(store.backend().clone(), Arc::new(Peer::spawn(command).await?)).keeping(running))
}
