use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::answers;
use super::compare::Functions;
use super::connections::{Connections, Parameter};
use super::obstacle::Wanted;
use super::record::unreadable;
use super::statements::Statements;
use super::sweep::Sweep;
use super::tables::Tables;
use crate::backend::{Release, StorageKeys};
use crate::{Error, ErrorCode, LockId, Operation};

/// What sends the operations to the server, each as one statement. The handle has it, and whatever
/// goes on without the caller.
pub(super) struct Operations {
    pub(super) connections: Arc<Connections>,
    pub(super) tables: Tables,
    pub(super) names: StorageKeys,
    pub(super) statements: Statements,
    pub(super) functions: Functions,
    pub(super) sweep: Sweep,
    /// Turns of calls for one lock that one for many could not do.
    pub(super) lone_calls: Semaphore,
}

impl Operations {
    pub(super) async fn query(
        &self,
        operation: Operation,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        self.connections.query(operation, statement, parameters).await
    }

    /// The one row of an answer.
    pub(super) async fn query_one(
        &self,
        operation: Operation,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Row, Error> {
        let mut rows = self.query(operation, statement, parameters).await?;
        rows.pop().ok_or_else(|| {
            Error::new(ErrorCode::Internal, "an unexpected answer of the server")
                .during(operation)
                .with_outcome_unknown()
        })
    }

    pub(super) async fn release_one(&self, id: &LockId) -> Result<Release, Error> {
        let parameters: [Parameter<'_>; 1] = [(&id.expose(), Type::TEXT)];
        let row = self.query_one(Operation::Release, &self.statements.release, &parameters);
        let row = self.explained(Wanted::Id(id), row).await?;
        self.sweep.perhaps(&self.connections, &self.tables);
        Ok(answers::release(row.try_get(0).map_err(unreadable)?))
    }
}
