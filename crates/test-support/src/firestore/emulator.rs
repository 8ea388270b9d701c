use std::sync::Arc;

use crate::stores::RunningStore;

/// Set to the `host:port` of an emulator that runs, it makes suites that need no more than a URL
/// use that one, rather than a server of our own.
pub const EMULATOR: &str = "LEASEHOLD_TEST_FIRESTORE";

/// A project of its own in an emulator that others use as well.
#[derive(Debug)]
struct Project(String);

/// The emulator that runs, if there is one.
pub(super) fn running() -> Option<Arc<dyn RunningStore>> {
    let address = std::env::var(EMULATOR).ok().filter(|address| !address.is_empty())?;
    let project = format!("test-{:016x}", fastrand::u64(..));
    Some(Arc::new(Project(format!("firestore://{project}?emulator={address}"))))
}

impl RunningStore for Project {
    fn url(&self) -> String {
        self.0.clone()
    }
}
