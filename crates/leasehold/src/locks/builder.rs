use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::core::Core;
#[cfg(feature = "metrics")]
use super::metrics::LockMetrics;
use super::settings::{ReleaseFailure, Settings};
use super::{Inner, Locks};
use crate::backend::Backend;
use crate::clock::Clock;
#[cfg(feature = "metrics")]
use crate::layers::MetricsLayer;
use crate::testing::ManualClock;
use crate::{Error, Holder};

/// Makes a [`Locks`] handle with other than the default settings.
#[derive(Debug)]
#[must_use = "call `build`"]
pub struct LocksBuilder {
    backend: Arc<dyn Backend>,
    holder: Result<Holder, Error>,
    settings: Settings,
}

impl LocksBuilder {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, holder: Ok(Holder::default()), settings: Settings::default() }
    }

    /// The name under which this handle takes locks, unless a request gives another.
    /// `hostname/program` by default. What is no name is reported by the request that would have
    /// used it.
    pub fn holder<T>(mut self, holder: T) -> Self
    where
        T: TryInto<Holder>,
        T::Error: Into<Error>,
    {
        self.holder = holder.try_into().map_err(Into::into);
        self
    }

    /// The longest that one call to the store may take, also if the store itself sets no limit or
    /// does not keep to it. By default twice the store's own
    /// [`call_timeout`](crate::backend::Capabilities::call_timeout).
    pub fn call_timeout(mut self, time: Duration) -> Self {
        self.settings.call_timeout = Some(time);
        self
    }

    /// How long a release is tried when the store fails and somebody waits for it, 5 seconds by
    /// default:
    ///
    /// - [`Guard::release`](crate::Guard::release) gives up after this time, and
    ///   [`Locks::release_all`] for each lock.
    /// - [`Locks::shutdown`] tries releases that fail for no longer than this after it was called,
    ///   and gives up when nothing has come to an end for this long. A store that answers slowly
    ///   but steadily gets all the time it needs.
    ///
    /// One try gets a second even if less is left, or this time if it is shorter. Guards that are
    /// dropped are released for as long as their lease would last, five minutes at most, and for
    /// this time at least.
    pub fn release_timeout(mut self, time: Duration) -> Self {
        self.settings.release_timeout = time;
        self
    }

    /// Calls `hook` when a release failed and there is no caller to tell. By default one warning is
    /// logged, without the key and the lock id. A hook that panics is ignored.
    ///
    /// It is called on a thread that is there only for that, one call after the other, so it may
    /// block. It is called even if the handle is gone by then; nobody waits for it, neither
    /// [`Locks::shutdown`] nor the end of the program. If the process can have no thread, the call
    /// is made up for with the next one, or when the handle and all its guards are gone.
    pub fn on_release_error(mut self, hook: impl Fn(&ReleaseFailure<'_>) + Send + Sync + 'static) -> Self {
        self.settings.on_release_error = Arc::new(hook);
        self
    }

    /// Records metrics through the `metrics` facade: those of [`MetricsLayer`], which need not be
    /// added then, and those below. Install the recorder first: it is told now what each one means.
    ///
    /// | name | kind | labels | what |
    /// | --- | --- | --- | --- |
    /// | `leasehold_held_locks` | gauge | | locks that are held now |
    /// | `leasehold_wait_seconds` | histogram | `outcome`: `acquired`, `gave_up` | how long `acquire` took |
    /// | `leasehold_hold_seconds` | histogram | | how long locks were held |
    /// | `leasehold_lost_total` | counter | `reason`: see [`Loss`](crate::Loss) | locks that were lost |
    /// | `leasehold_store_clock_steps_total` | counter | `direction`: `forward`, `back` | times that the store's clock was set |
    #[cfg(feature = "metrics")]
    pub fn metrics(mut self) -> Self {
        self.backend = Arc::new(MetricsLayer::new(self.backend));
        self.settings.metrics = LockMetrics::on();
        self
    }

    /// Puts a layer around the store, such as [`TelemetryLayer`](crate::layers::TelemetryLayer) or
    /// one of your own. The last one is the outermost.
    pub fn layer<B: Backend>(mut self, layer: impl FnOnce(Arc<dyn Backend>) -> B) -> Self {
        self.backend = Arc::new(layer(self.backend));
        self
    }

    /// Takes the time from a clock that a test moves.
    pub fn clock(mut self, clock: &ManualClock) -> Self {
        self.settings.clock = Clock::Manual(clock.clone());
        self
    }

    /// Takes the time from a machine that a test suspends.
    #[cfg(test)]
    pub(crate) fn system_clock(mut self, clock: Clock) -> Self {
        self.settings.clock = clock;
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
