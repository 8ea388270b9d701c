use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold::backend::{Capabilities, TimeAuthority};

use crate::Harness;
use crate::history::HistoryOptions;
use crate::model::ModelConfig;

type Made = Pin<Box<dyn Future<Output = Result<Arc<dyn Harness>, String>> + Send>>;

/// A store under test: its name, and how to make a fresh [`Harness`] for each case.
#[derive(Clone)]
pub struct Suite {
    pub(crate) name: String,
    factory: Arc<dyn Fn() -> Made + Send + Sync>,
    /// What the store must be able to do, whatever it says itself.
    pub(crate) capabilities: Capabilities,
    pub(crate) model: ModelConfig,
    pub(crate) history: HistoryOptions,
    pub(crate) guards: bool,
    pub(crate) timeout: Duration,
}

impl Suite {
    /// A suite named `name`, the first part of its tests' names. `factory` runs on the runtime of
    /// the test; its error fails the test.
    pub fn new<H, E, F>(name: impl Into<String>, factory: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        H: Harness,
        E: fmt::Display,
        F: Future<Output = Result<H, E>> + Send + 'static,
    {
        let factory = move || -> Made {
            let made = factory();
            Box::pin(async move {
                match made.await {
                    Ok(harness) => Ok(Arc::new(harness) as Arc<dyn Harness>),
                    Err(error) => Err(format!("cannot make the harness: {error}")),
                }
            })
        };
        Self {
            name: name.into(),
            factory: Arc::new(factory),
            capabilities: Capabilities::new(TimeAuthority::Store)
                .with_wake_ups(true)
                .with_clock_floored_fences(true)
                .with_lines(true),
            model: ModelConfig::real_clock(),
            history: HistoryOptions::real_clock(),
            guards: true,
            timeout: Duration::from_secs(60),
        }
    }

    /// The store does not push events. Cases about events are not applicable then. Without this
    /// they fail on such a store: a capability must not vanish unnoticed.
    #[must_use]
    pub fn without_wake_ups(mut self) -> Self {
        self.capabilities = self.capabilities.with_wake_ups(false);
        self
    }

    /// The store's fences are not floored by the clock. As with
    /// [`without_wake_ups`](Self::without_wake_ups), the suite has to say so.
    #[must_use]
    pub fn without_clock_floored_fences(mut self) -> Self {
        self.capabilities = self.capabilities.with_clock_floored_fences(false);
        self
    }

    /// The store has no lines, only exclusive locks, and takes one at a time. As with
    /// [`without_wake_ups`](Self::without_wake_ups), the suite has to say so.
    #[must_use]
    pub fn without_lines(mut self) -> Self {
        self.capabilities = self.capabilities.with_lines(false);
        self
    }

    /// How much the reference model does; by default what suits a [real
    /// clock](ModelConfig::real_clock).
    #[must_use]
    pub fn model(mut self, config: ModelConfig) -> Self {
        self.model = config;
        self
    }

    /// How much the concurrent clients do; by default what suits a [real
    /// clock](HistoryOptions::real_clock).
    #[must_use]
    pub fn history(mut self, options: HistoryOptions) -> Self {
        self.history = options;
        self
    }

    /// Whether there is also a history of [guards](crate::history::concurrent_guards), which needs
    /// a real clock. There is by default; suites on a manual clock turn it off.
    #[must_use]
    pub fn guards(mut self, on: bool) -> Self {
        self.guards = on;
        self
    }

    /// The most time one test may take before it fails; a minute by default.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What its tests' names start with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A fresh harness.
    ///
    /// # Errors
    ///
    /// What the factory says.
    pub async fn harness(&self) -> Result<Arc<dyn Harness>, String> {
        (self.factory)().await
    }
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suite").field("name", &self.name).finish_non_exhaustive()
    }
}
