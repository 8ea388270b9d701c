use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::backend::Backend;
use leasehold::testing::ManualClock;
use leasehold::{Locks, LocksBuilder, Timestamp};

use super::{Harness, unique_namespace};

/// A store whose time is a [`ManualClock`]: no case ever sleeps, and times are checked to the
/// millisecond.
#[derive(Debug)]
pub struct ManualHarness {
    backend: Arc<dyn Backend>,
    peer: Arc<dyn Backend>,
    clock: ManualClock,
    namespace: String,
}

impl ManualHarness {
    /// A harness over two handles on one store that runs on `clock`.
    pub fn new(backend: Arc<dyn Backend>, peer: Arc<dyn Backend>, clock: &ManualClock) -> Self {
        Self { backend, peer, clock: clock.clone(), namespace: unique_namespace() }
    }
}

#[async_trait]
impl Harness for ManualHarness {
    fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    fn peer(&self) -> Arc<dyn Backend> {
        self.peer.clone()
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
        // Whoever waits for the clock gets a turn before the caller looks at what happened.
        tokio::task::yield_now().await;
    }

    fn clock_slack(&self) -> Duration {
        Duration::ZERO
    }

    fn locks(&self, store: Arc<dyn Backend>) -> LocksBuilder {
        Locks::builder(store).clock(&self.clock)
    }
}

/// A store on this host's clock, such as a server on this machine: cases sleep where time must
/// pass.
#[derive(Debug)]
pub struct RealHarness {
    backend: Arc<dyn Backend>,
    peer: Arc<dyn Backend>,
    namespace: String,
    /// What goes last: fields are dropped in order.
    kept: Option<Box<dyn Kept>>,
}

trait Kept: fmt::Debug + Send + Sync {}

impl<T: fmt::Debug + Send + Sync> Kept for T {}

impl RealHarness {
    /// A harness over two handles on one store, each with a connection of its own.
    pub fn new(backend: Arc<dyn Backend>, peer: Arc<dyn Backend>) -> Self {
        Self { backend, peer, namespace: unique_namespace(), kept: None }
    }

    /// Keeps something for as long as the harness and its handles live: the directory or the server
    /// of the store.
    #[must_use]
    pub fn keeping(mut self, kept: impl fmt::Debug + Send + Sync + 'static) -> Self {
        self.kept = Some(Box::new(kept));
        self
    }
}

#[async_trait]
impl Harness for RealHarness {
    fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    fn peer(&self) -> Arc<dyn Backend> {
        self.peer.clone()
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}
