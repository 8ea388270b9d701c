//! The store in a SQLite file, through two handles of this process, and through one here and one in another process.

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::{Backend, Sqlite, Timestamp};
use leasehold_conformance::history::HistoryOptions;
use leasehold_conformance::model::ModelConfig;
use leasehold_conformance::remote::{self, Peer};
use leasehold_conformance::{Harness, RealHarness, Suite, runner};
use tempfile::TempDir;

/// Set to the path of a database, it makes this program serve the database instead of testing anything.
const SERVE: &str = "LEASEHOLD_CONFORMANCE_SERVE";

fn main() -> ExitCode {
    if let Some(path) = std::env::var_os(SERVE) {
        return serve(path.into());
    }
    // What random commands find in one process they find in two, so here they get half of the time.
    let one_process = Suite::new("sqlite", || InDirectory::make(false))
        .model(ModelConfig { sequences: 4, ..ModelConfig::real_clock() })
        .history(HistoryOptions { duration: Duration::from_secs(3), ..HistoryOptions::real_clock() });
    let other_process = Suite::new("sqlite_other_process", || InDirectory::make(true));
    runner::main(&[one_process, other_process])
}

#[tokio::main(flavor = "current_thread")]
async fn serve(path: PathBuf) -> ExitCode {
    let store = Sqlite::open(path).await.expect("the database opens");
    remote::serve(Arc::new(store)).await.expect("the peer is understood");
    ExitCode::SUCCESS
}

/// A harness whose files go when it goes.
struct InDirectory {
    harness: RealHarness,
    _directory: TempDir,
}

impl InDirectory {
    async fn make(other_process: bool) -> Result<Self, Box<dyn Error + Send + Sync>> {
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
        Ok(Self { harness: RealHarness::new(Arc::new(store), peer), _directory: directory })
    }
}

#[async_trait]
impl Harness for InDirectory {
    fn backend(&self) -> Arc<dyn Backend> {
        self.harness.backend()
    }

    fn peer(&self) -> Arc<dyn Backend> {
        self.harness.peer()
    }

    fn namespace(&self) -> &str {
        self.harness.namespace()
    }

    fn now(&self) -> Timestamp {
        self.harness.now()
    }

    async fn pass(&self, time: Duration) {
        self.harness.pass(time).await;
    }
}
