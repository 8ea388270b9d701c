use std::sync::Arc;

use tempfile::TempDir;

use crate::stores::{Ability, RunningStore, Start, StoreUnderTest};

pub(crate) const STORE: StoreUnderTest = StoreUnderTest {
    name: "sqlite",
    start: Start::File(start),
    share: None,
    abilities: &[Ability::BusyLocks, Ability::FairByDefault],
    lines: true,
};

/// Locks in a file of a directory of its own.
#[derive(Debug)]
struct File(TempDir);

fn start() -> Arc<dyn RunningStore> {
    Arc::new(File(TempDir::new().unwrap()))
}

impl RunningStore for File {
    fn url(&self) -> String {
        format!("sqlite:{}", self.0.path().join("locks.db").display())
    }
}
