use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::connections::Parameter;
use super::error::ServerSaid;
use super::operations::Operations;
use crate::{Error, ErrorCode, LockId, Operation};

/// The lock that an operation is about.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'a> {
    /// By the name that it is stored under.
    Key(&'a str),
    Id(&'a LockId),
}

/// What another session holds on to. Which of them it was is in the text of the statement that
/// waited, which the server tells with the error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    Advisory,
    Row,
}

impl Obstacle {
    fn of(error: &Error) -> Option<Self> {
        let said = ServerSaid::of(error).filter(|said| said.state == SqlState::LOCK_NOT_AVAILABLE)?;
        Some(if said.at_advisory_lock { Self::Advisory } else { Self::Row })
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Advisory => "the advisory lock of the key, pg_advisory_xact_lock(hashtext(key)),",
            Self::Row => "a row of the lock",
        }
    }
}

impl Operations {
    /// Runs an operation. If it waited in vain for another session, the error says for what and for
    /// whom.
    pub(super) async fn explained<T>(
        &self,
        wanted: Wanted<'_>,
        run: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match run.await {
            Ok(done) => Ok(done),
            Err(error) => match Obstacle::of(&error) {
                Some(obstacle) => Err(self.explain(error, obstacle, wanted).await),
                None => Err(error),
            },
        }
    }

    async fn explain(&self, error: Error, obstacle: Obstacle, wanted: Wanted<'_>) -> Error {
        let what = format!("another session keeps {} too long", obstacle.as_str());
        let (message, hint) = match self.who(obstacle, wanted).await {
            Some((pid, application)) => (
                format!("{what}: process {pid} of the server, application \"{application}\""),
                format!("look for a long transaction: SELECT * FROM pg_stat_activity WHERE pid = {pid}"),
            ),
            None => (what, "look for a long transaction in pg_stat_activity".to_owned()),
        };
        let told = Error::new(ErrorCode::ServiceUnavailable, message).with_hint(hint);
        let told = match error.operation() {
            Some(operation) => told.during(operation),
            None => told,
        };
        told.with_source(error)
    }

    /// The session that is in the way, as far as the server still knows.
    async fn who(&self, obstacle: Obstacle, wanted: Wanted<'_>) -> Option<(i32, String)> {
        let (key, id) = match wanted {
            Wanted::Key(key) => (Some(key), None),
            Wanted::Id(id) => (None, Some(id.expose())),
        };
        let parameters: [Parameter<'_>; 2] = [(&key, Type::TEXT), (&id, Type::TEXT)];
        let rows = self.query(Operation::Lookup, &self.statements.obstacle, &parameters).await.ok()?;
        let row =
            rows.iter().find(|row| row.try_get(0).is_ok_and(|is: bool| is == (obstacle == Obstacle::Advisory)))?;
        Some((row.try_get(1).ok()?, row.try_get(2).ok()?))
    }
}
