//! The store in a SQLite file, through two handles of this process.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::{Backend, Error, Sqlite, Timestamp};
use leasehold_conformance::{Harness, RealHarness, Suite, runner};
use tempfile::TempDir;

fn main() -> ExitCode {
    let suite = Suite::new("sqlite", || async {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("locks.db");
        let (store, peer) = (Sqlite::open(&path).await?, Sqlite::open(&path).await?);
        Ok::<_, Error>(InDirectory {
            harness: RealHarness::new(Arc::new(store), Arc::new(peer)),
            _directory: directory,
        })
    });
    runner::main(&[suite])
}

/// A harness whose files go when it goes.
struct InDirectory {
    harness: RealHarness,
    _directory: TempDir,
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
