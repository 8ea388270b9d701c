//! The store in a PostgreSQL database: through two handles of this process, through one here and one in another process, and
//! through PgBouncer. Every case has a server of its own.

use std::error::Error;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Backend, Postgres};
use leasehold_conformance::history::HistoryOptions;
use leasehold_conformance::model::ModelConfig;
use leasehold_conformance::remote::{self, Peer};
use leasehold_conformance::{RealHarness, Suite, runner};
use test_servers::PgBouncer;

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
    let one_process = shorter(Suite::new("postgres", || harness(false)));
    let pooled = shorter(Suite::new("postgres_pgbouncer", pooled));
    let other_process = Suite::new("postgres_other_process", || harness(true));
    runner::main(&[one_process, pooled, other_process])
}

#[tokio::main(flavor = "current_thread")]
async fn serve(url: &str) -> ExitCode {
    let store = Postgres::connect(url).await.expect("the server answers");
    remote::serve(Arc::new(store)).await.expect("the peer is understood");
    ExitCode::SUCCESS
}

type Failure = Box<dyn Error + Send + Sync>;

async fn harness(other_process: bool) -> Result<RealHarness, Failure> {
    let server = test_servers::Postgres::start();
    let store = Postgres::connect(&server.url()).await?;
    store.migrate().await?;
    let peer: Arc<dyn Backend> = if other_process {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(SERVE, server.url());
        Arc::new(Peer::spawn(command).await?)
    } else {
        Arc::new(Postgres::connect(&server.url()).await?)
    };
    Ok(RealHarness::new(Arc::new(store), peer).keeping(server))
}

/// Through a pooler that lends a connection for one transaction.
async fn pooled() -> Result<RealHarness, Failure> {
    let server = test_servers::Postgres::start();
    let pooler = PgBouncer::start(&server, "transaction");
    let store = Postgres::connect(&pooler.url()).await?;
    store.migrate().await?;
    // That nothing is delivered takes a second to find out, and once is enough.
    let peer = Postgres::connect(&format!("{}?wake_ups=off", pooler.url())).await?;
    if store.capabilities().wake_ups || peer.capabilities().wake_ups {
        return Err("a pooler does not deliver notifications".into());
    }
    Ok(RealHarness::new(Arc::new(store), Arc::new(peer)).keeping((pooler, server)))
}
