use std::time::Duration;

/// How a PostgreSQL server is used. What a URL says after its question mark overrides these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresOptions {
    /// The schema of the tables: `public` by default.
    pub schema: String,
    /// The table of the locks: `syncguard_locks` by default, which shares locks with the Node.js library of that name.
    pub locks_table: String,
    /// The table of the fences: `syncguard_fence_counters` by default.
    pub fences_table: String,
    /// The longest that one operation may take, connecting and waiting for a connection included. 5 seconds by default.
    pub timeout: Duration,
    /// The most connections for operations; 4 by default. Heartbeats have as many of their own, and wake-ups one; each is opened
    /// when it is first needed. None is held while a lock is held or waited for.
    pub pool_size: usize,
    /// Whether to be told of released locks over a connection of its own. If the server does not deliver, as behind PgBouncer,
    /// a warning is logged and waiting polls.
    pub wake_ups: bool,
    /// How often this handle removes the rows of locks whose holders crashed, at most; never if `None`, the default. A removed
    /// lock was dead for more than three seconds.
    pub sweep_every: Option<Duration>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: "public".to_owned(),
            locks_table: "syncguard_locks".to_owned(),
            fences_table: "syncguard_fence_counters".to_owned(),
            timeout: Duration::from_secs(5),
            pool_size: 4,
            wake_ups: true,
            sweep_every: None,
        }
    }
}
