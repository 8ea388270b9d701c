use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::{Backend, LocksBuilder, PlantedBug, Timestamp};
use leasehold_conformance::{Harness, ManualHarness};

/// A harness whose store is sound and whose handles are not.
pub(crate) struct BrokenHandles {
    pub(crate) harness: ManualHarness,
    pub(crate) bug: PlantedBug,
}

#[async_trait]
impl Harness for BrokenHandles {
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

    fn clock_slack(&self) -> Duration {
        self.harness.clock_slack()
    }

    fn locks(&self, store: Arc<dyn Backend>) -> LocksBuilder {
        self.harness.locks(store).plant(self.bug)
    }
}
