//! The store in a Redis server: through two handles of this process, through one here and one in another process, and with
//! all layers around it. Every case has a server of its own. And in a cluster, which the cases of a process share.

use std::error::Error;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use leasehold::{Backend, FaultLayer, MetricsLayer, Redis, TelemetryLayer};
use leasehold_conformance::history::HistoryOptions;
use leasehold_conformance::model::ModelConfig;
use leasehold_conformance::remote::{self, Peer};
use leasehold_conformance::{RealHarness, Suite, runner};
use test_servers::RedisCluster;

/// Set to the URL of a server, it makes this program serve the locks there instead of testing anything.
const SERVE: &str = "LEASEHOLD_CONFORMANCE_SERVE";

fn main() -> ExitCode {
    if let Ok(url) = std::env::var(SERVE) {
        return serve(&url);
    }
    // What random commands find in one process they find in two, so here they get half of the time.
    let shorter = |suite: Suite| {
        suite
            .model(ModelConfig { sequences: 4, ..ModelConfig::real_clock() })
            .history(HistoryOptions { duration: Duration::from_secs(3), ..HistoryOptions::real_clock() })
    };
    let one_process = shorter(Suite::new("redis", || harness(false)));
    let layers = shorter(Suite::new("redis_with_layers", layered));
    let other_process = Suite::new("redis_other_process", || harness(true));
    let cluster = shorter(Suite::new("redis_cluster", clustered));
    runner::main(&[one_process, layers, other_process, cluster])
}

#[tokio::main(flavor = "current_thread")]
async fn serve(url: &str) -> ExitCode {
    let store = Redis::connect(url).await.expect("the server answers");
    remote::serve(Arc::new(store)).await.expect("the peer is understood");
    ExitCode::SUCCESS
}

type Failure = Box<dyn Error + Send + Sync>;

async fn harness(other_process: bool) -> Result<RealHarness, Failure> {
    let server = test_servers::Redis::start();
    let store = Redis::connect(&server.url()).await?;
    let peer: Arc<dyn Backend> = if other_process {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(SERVE, server.url());
        Arc::new(Peer::spawn(command).await?)
    } else {
        Arc::new(Redis::connect(&server.url()).await?)
    };
    Ok(RealHarness::new(Arc::new(store), peer).keeping(server))
}

/// Every layer, which must pass on what it does not care about.
async fn layered() -> Result<RealHarness, Failure> {
    let server = test_servers::Redis::start();
    let (store, _) = FaultLayer::new(Redis::connect(&server.url()).await?);
    let store = TelemetryLayer::include_raw(MetricsLayer::new(store), true, |_| {});
    let peer = store.fork().await?;
    Ok(RealHarness::new(Arc::new(store), peer).keeping(server))
}

/// Two handles that know the way to the locks through different nodes only, neither of which has them.
async fn clustered() -> Result<RealHarness, Failure> {
    let cluster = shared_cluster();
    let owner = cluster.slot_owner(cluster.slot_of("{locks}"));
    let url = |node: usize| format!("{}?prefix={{locks}}", cluster.urls()[(owner + node) % 3]);
    let (store, peer) = (Redis::connect(&url(1)).await?, Redis::connect(&url(2)).await?);
    Ok(RealHarness::new(Arc::new(store), Arc::new(peer)).keeping(cluster))
}

/// The cluster of all cases that run in this process at the same time, because it takes two seconds to start.
fn shared_cluster() -> Arc<RedisCluster> {
    static SHARED: Mutex<Weak<RedisCluster>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let cluster = Arc::new(RedisCluster::start());
        *shared = Arc::downgrade(&cluster);
        cluster
    })
}
