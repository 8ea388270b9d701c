use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::connections::Connections;
use super::record::unreadable;
use super::tables::Tables;
use super::{Postgres, number};
use crate::sync::lock;
use crate::timestamp::SWEEP_AFTER_MILLIS;
use crate::{Error, Operation};

/// The most rows that one sweep removes.
const MOST: u64 = 500;

/// When to remove the rows of locks whose holders crashed.
pub(super) struct Sweep {
    every: Option<Duration>,
    last: Mutex<Instant>,
}

impl Sweep {
    pub(super) fn every(every: Option<Duration>) -> Self {
        Self { every, last: Mutex::new(Instant::now()) }
    }

    /// Sweeps in the background if it is time.
    pub(super) fn perhaps(&self, connections: &Arc<Connections>, tables: &Tables) {
        let Some(every) = self.every else { return };
        {
            let mut last = lock(&self.last);
            if last.elapsed() < every {
                return;
            }
            *last = Instant::now();
        }
        let (connections, tables) = (connections.clone(), tables.clone());
        tokio::spawn(async move {
            if let Err(error) = sweep(&connections, &tables).await {
                tracing::debug!(%error, "dead locks were not removed; another time");
            }
        });
    }
}

impl Postgres {
    /// Removes up to 500 rows of locks that have been dead for more than three seconds, of each
    /// table, and places in line that were given up, and tells how many there were. It waits for
    /// nobody: rows that others use are left. Fence counters stay for ever.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// As for any operation.
    pub async fn sweep(&self) -> Result<u64, Error> {
        sweep(&self.operations.connections, &self.operations.tables).await
    }
}

async fn sweep(connections: &Connections, tables: &Tables) -> Result<u64, Error> {
    let statement = tables.fill(include_str!("sql/sweep.sql"));
    let parameters = [
        (&number(SWEEP_AFTER_MILLIS) as &(dyn tokio_postgres::types::ToSql + Sync), Type::INT8),
        (&number(MOST), Type::INT8),
    ];
    let rows = connections.query(Operation::Release, &statement, &parameters).await?;
    let removed: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0)).map_err(unreadable)?;
    Ok(u64::try_from(removed).unwrap_or(0))
}
