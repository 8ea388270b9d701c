use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio::time::Instant;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{is_conflict, translate, translate_pool};
use crate::backend::Capabilities;
use crate::remote::driver_error::not_connected_in_time;
use crate::remote::per_runtime::PerRuntime;
use crate::{Error, ErrorCode, Operation};

/// The pause before a statement is sent again that met another transaction.
const CONFLICT: Duration = Duration::from_millis(5);

pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Connections for operations: a pool for each runtime. Each is used for one statement at a time.
pub(super) struct Connections {
    pools: PerRuntime<Pool>,
    pool_size: usize,
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) timeout: Duration,
}

impl Connections {
    pub(super) fn new(config: Config, tls: MakeRustlsConnect, pool_size: usize, timeout: Duration) -> Self {
        Self { pools: PerRuntime::new(), pool_size, config, tls, timeout }
    }

    /// The pool of the runtime that runs the caller.
    fn pool(&self) -> Result<Arc<Pool>, Error> {
        self.pools.get(|| {
            let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            let manager = Manager::from_config(self.config.clone(), self.tls.clone(), manager_config);
            let pool = Pool::builder(manager).max_size(self.pool_size).runtime(Runtime::Tokio1);
            pool.build().map_err(|source| {
                Error::new(ErrorCode::Internal, "cannot make the pool of connections").with_source(source)
            })
        })
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
            let connection = match tokio::time::timeout_at(deadline, pool.get()).await {
                Ok(connection) => connection.map_err(|error| translate_pool(error).during(operation))?,
                Err(_) => return Err(not_connected_in_time(operation, self.timeout)),
            };
            let mut lent = Lent::new(connection, self.tls.clone());
            let answer = tokio::time::timeout_at(deadline, lent.query(statement, parameters)).await;
            match answer {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(error)) if is_conflict(&error) && Instant::now() + CONFLICT < deadline => {
                    drop(lent);
                    tokio::time::sleep(CONFLICT).await;
                }
                Ok(Err(error)) => return Err(translate(error, true).during(operation)),
                Err(_) => return Err(Error::timed_out(operation, self.timeout)),
            }
        }
    }

    /// Runs statements in one go, for as long as they take.
    pub(super) async fn run_all(&self, statements: &str) -> Result<(), Error> {
        let (client, connection) =
            self.config.connect(self.tls.clone()).await.map_err(|error| translate(error, false))?;
        let driver = tokio::spawn(connection);
        let outcome = client.batch_execute(statements).await.map_err(|error| translate(error, true));
        driver.abort();
        outcome
    }
}

/// A connection while it is used. If its statement is given up, the server is asked to stop it, and
/// the connection does not go back to the others, who would have to wait behind it.
struct Lent {
    connection: Option<Object>,
    tls: MakeRustlsConnect,
    busy: bool,
}

impl Lent {
    fn new(connection: Object, tls: MakeRustlsConnect) -> Self {
        Self { connection: Some(connection), tls, busy: false }
    }

    async fn query(
        &mut self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Some(connection) = &self.connection else { return Ok(Vec::new()) };
        self.busy = true;
        let rows = connection.query_typed(statement, parameters).await;
        self.busy = false;
        rows
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.busy {
            return;
        }
        let Some(connection) = self.connection.take() else { return };
        let cancel = connection.cancel_token();
        // Closed when the client is dropped, once the server has answered.
        drop(Object::take(connection));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let tls = self.tls.clone();
            runtime.spawn(async move {
                let _ = tokio::time::timeout(Capabilities::DEFAULT_CALL_TIMEOUT, cancel.cancel_query(tls)).await;
            });
        }
    }
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}
