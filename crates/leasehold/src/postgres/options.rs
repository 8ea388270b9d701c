use std::time::Duration;

use crate::backend::Capabilities;

/// How a PostgreSQL server is used. What a URL says after its question mark overrides these.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// The schema of the tables; `public` if none is chosen. Then connecting fails if the search
    /// path leads to tables for locks in another schema.
    pub schema: Option<String>,
    /// The table of the locks: `syncguard_locks` by default, which shares locks with the Node.js
    /// library of that name.
    pub locks_table: String,
    /// The table of the fences: `syncguard_fence_counters` by default.
    pub fences_table: String,
    /// The longest that one operation may take, connecting and waiting for a connection included. 5
    /// seconds by default.
    pub timeout: Duration,
    /// The most connections for operations, for each runtime; 4 by default. Heartbeats have as many
    /// of their own, and wake-ups one. Each is opened when it is first needed and closed soon
    /// after: who waits has one as a rule, who holds has two.
    pub pool_size: usize,
    /// Whether to be told of released locks over a connection of its own. If the server does not
    /// deliver, as behind PgBouncer, a warning is logged and waiting polls.
    pub wake_ups: bool,
    /// How often this handle removes the rows of locks whose holders crashed, at most; never if
    /// `None`, the default. A removed lock was dead for more than three seconds.
    pub sweep_every: Option<Duration>,
    /// Whether acquires and releases that come while others are on their way are sent together, in
    /// one statement; they are by default. Nothing waits for it.
    pub batching: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: None,
            locks_table: "syncguard_locks".to_owned(),
            fences_table: "syncguard_fence_counters".to_owned(),
            timeout: Capabilities::DEFAULT_CALL_TIMEOUT,
            pool_size: 4,
            wake_ups: true,
            sweep_every: None,
            batching: true,
        }
    }
}

/// The schema of the tables if nobody chose one.
const USUAL_SCHEMA: &str = "public";

impl PostgresOptions {
    /// The schema, chosen or not.
    pub(super) fn schema_or_usual(&self) -> &str {
        self.schema.as_deref().unwrap_or(USUAL_SCHEMA)
    }

    /// The schema of the tables.
    #[must_use]
    pub fn with_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// The table of the locks.
    #[must_use]
    pub fn with_locks_table(mut self, locks_table: impl Into<String>) -> Self {
        self.locks_table = locks_table.into();
        self
    }

    /// The table of the fences.
    #[must_use]
    pub fn with_fences_table(mut self, fences_table: impl Into<String>) -> Self {
        self.fences_table = fences_table.into();
        self
    }

    /// The longest that one operation may take.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The most connections for operations, for each runtime.
    #[must_use]
    pub fn with_pool_size(mut self, pool_size: usize) -> Self {
        self.pool_size = pool_size;
        self
    }

    /// Whether to be told of released locks.
    #[must_use]
    pub fn with_wake_ups(mut self, wake_ups: bool) -> Self {
        self.wake_ups = wake_ups;
        self
    }

    /// How often this handle removes the rows of locks whose holders crashed.
    #[must_use]
    pub fn with_sweep_every(mut self, sweep_every: Option<Duration>) -> Self {
        self.sweep_every = sweep_every;
        self
    }

    /// Whether operations that come together are sent together.
    #[must_use]
    pub fn with_batching(mut self, batching: bool) -> Self {
        self.batching = batching;
        self
    }
}
