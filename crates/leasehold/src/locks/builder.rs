use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::core::Core;
use super::metrics::LockMetrics;
use super::settings::{ReleaseFailure, Settings};
use super::{Inner, Locks};
use crate::clock::Clock;
use crate::layers::MetricsLayer;
use crate::{Backend, Holder, ManualClock};

/// Makes a [`Locks`] handle with other than the default settings.
#[derive(Debug)]
#[must_use = "call `build`"]
pub struct LocksBuilder {
    backend: Arc<dyn Backend>,
    holder: Holder,
    settings: Settings,
}

impl LocksBuilder {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, holder: Holder::default(), settings: Settings::default() }
    }

    /// The name under which this handle takes locks, unless a request gives another. `hostname/program` by default.
    pub fn holder(mut self, holder: Holder) -> Self {
        self.holder = holder;
        self
    }

    /// The longest that one call to the store may take. 10 seconds by default.
    pub fn operation_timeout(mut self, time: Duration) -> Self {
        self.settings.operation_timeout = time;
        self
    }

    /// How long [`Guard::release`](crate::Guard::release) tries when the store fails. 5 seconds by default.
    pub fn release_timeout(mut self, time: Duration) -> Self {
        self.settings.release_timeout = time;
        self
    }

    /// Calls `hook` when a release failed and there is no caller to tell. By default one warning is logged, without the
    /// key and the lock id. A hook that panics is ignored.
    pub fn on_release_error(mut self, hook: impl Fn(&ReleaseFailure<'_>) + Send + Sync + 'static) -> Self {
        self.settings.on_release_error = Arc::new(hook);
        self
    }

    /// Records metrics through the `metrics` facade: those of [`MetricsLayer`], which need not be added then, and
    ///
    /// | name | kind | labels | what |
    /// | --- | --- | --- | --- |
    /// | `leasehold_wait_seconds` | histogram | `outcome`: `acquired`, `gave_up` | how long `acquire` took |
    /// | `leasehold_hold_seconds` | histogram | | how long locks were held |
    /// | `leasehold_lost_total` | counter | `reason`: see [`Loss`](crate::Loss) | locks that were lost |
    pub fn metrics(mut self) -> Self {
        self.backend = Arc::new(MetricsLayer::new(self.backend));
        self.settings.metrics = LockMetrics::on();
        self
    }

    /// Takes the time from a clock that a test moves.
    pub fn clock(mut self, clock: &ManualClock) -> Self {
        self.settings.clock = Clock::Manual(clock.clone());
        self
    }

    /// Breaks the handle in one way, for tests that prove they would notice.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(mut self, bug: super::PlantedBug) -> Self {
        self.settings.planted = Some(bug);
        self
    }

    /// Makes the handle.
    pub fn build(self) -> Locks {
        let core = Arc::new(Core::new(self.backend, self.settings));
        Locks {
            inner: Arc::new(Inner { core, keeper: OnceLock::new(), starting: Mutex::default(), holder: self.holder }),
        }
    }
}
