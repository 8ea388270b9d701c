//! The store in a SQLite file, through two handles of this process, and through one here and one in another process.

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Backend, Sqlite};
use leasehold_conformance::history::HistoryOptions;
use leasehold_conformance::model::ModelConfig;
use leasehold_conformance::remote::{self, Peer};
use leasehold_conformance::{RealHarness, Suite, runner};

/// Set to the path of a database, it makes this program serve the database instead of testing anything.
const SERVE: &str = "LEASEHOLD_CONFORMANCE_SERVE";

fn main() -> ExitCode {
    if let Some(path) = std::env::var_os(SERVE) {
        return serve(path.into());
    }
    // What random commands find in one process they find in two, so here they get half of the time.
    let one_process = Suite::new("sqlite", || harness(false))
        .model(ModelConfig { sequences: 4, ..ModelConfig::real_clock() })
        .history(HistoryOptions { duration: Duration::from_secs(3), ..HistoryOptions::real_clock() });
    let other_process = Suite::new("sqlite_other_process", || harness(true));
    runner::main(&[one_process, other_process])
}

#[tokio::main(flavor = "current_thread")]
async fn serve(path: PathBuf) -> ExitCode {
    let store = Sqlite::open(path).await.expect("the database opens");
    remote::serve(Arc::new(store)).await.expect("the peer is understood");
    ExitCode::SUCCESS
}

async fn harness(other_process: bool) -> Result<RealHarness, Box<dyn Error + Send + Sync>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("locks.db");
    let store = Sqlite::open(&path).await?;
    let peer: Arc<dyn Backend> = if other_process {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(SERVE, &path);
        Arc::new(Peer::spawn(command).await?)
    } else {
        Arc::new(Sqlite::open(&path).await?)
    };
    Ok(RealHarness::new(Arc::new(store), peer).keeping(directory))
}
