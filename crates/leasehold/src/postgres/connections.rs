use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::endpoints::Endpoints;
use super::error::{is_conflict, is_read_only, translate};
use super::pool::Pool;
use crate::remote::driver_error::not_connected_in_time;
use crate::remote::per_runtime::PerRuntime;
use crate::{Error, Operation};

/// The pause before a statement is sent again that met another transaction.
const CONFLICT: Duration = Duration::from_millis(5);

pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Connections for operations: a pool for each runtime.
pub(super) struct Connections {
    pools: PerRuntime<Pool>,
    pool_size: usize,
    pub(super) endpoints: Endpoints,
    pub(super) timeout: Duration,
}

impl Connections {
    pub(super) fn new(endpoints: Endpoints, pool_size: usize, timeout: Duration) -> Self {
        Self { pools: PerRuntime::new(), pool_size, endpoints, timeout }
    }

    /// The pool of the runtime that runs the caller.
    pub(super) fn pool(&self) -> Result<Arc<Pool>, Error> {
        self.pools.get(|| Ok(Pool::new(self.pool_size)))
    }

    /// Runs one statement, within the deadline and in one round trip: nothing is prepared, so that
    /// it works through a pooler.
    pub(super) async fn query(
        &self,
        operation: Operation,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        let deadline = Instant::now() + self.timeout;
        let pool = self.pool().map_err(|error| error.during(operation))?;
        loop {
            let lending = pool.lend(&self.endpoints, operation, deadline);
            let mut lent = match tokio::time::timeout_at(deadline, lending).await {
                Ok(lent) => lent?,
                Err(_) => return Err(not_connected_in_time(operation, self.timeout)),
            };
            let answer = tokio::time::timeout_at(deadline, lent.query(statement, parameters)).await;
            match answer {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(error)) if is_conflict(&error) && Instant::now() + CONFLICT < deadline => {
                    drop(lent);
                    tokio::time::sleep(CONFLICT).await;
                }
                // There was a failover, perhaps. A new connection finds the server that accepts
                // writes now.
                Ok(Err(error)) if is_read_only(&error) => {
                    let reused = lent.reused;
                    lent.discard();
                    pool.forget_idle();
                    if !reused {
                        return Err(translate(error, true).during(operation));
                    }
                }
                Ok(Err(error)) => return Err(translate(error, true).during(operation)),
                Err(_) => return Err(Error::timed_out(operation, self.timeout)),
            }
        }
    }

    /// Runs statements in one go, for as long as they take.
    pub(super) async fn run_all(&self, statements: &str) -> Result<(), Error> {
        let (client, wire) = self.endpoints.connect(Operation::Lookup).await?;
        let driver = tokio::spawn(wire);
        let outcome = client.batch_execute(statements).await.map_err(|error| translate(error, true));
        driver.abort();
        outcome
    }
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}
