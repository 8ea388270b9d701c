use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::connections::Parameter;
use super::number;
use super::obstacle::Wanted;
use super::operations::Operations;
use super::record::{millis, unreadable};
use crate::backend::{Absence, Extend};
use crate::{Error, ErrorCode, LockId, Operation, Ttl};

/// What the functions of extend say of one lock.
pub(super) struct Extended {
    /// The new expiry, or one of the words of the functions; none if nothing was done.
    pub(super) until: Option<i64>,
    /// How soon the answer must be here; none if it counts whenever it comes.
    pub(super) left: Option<i64>,
}

impl Extended {
    /// What it means `took` after it was asked for. `None` if that is not known: nothing was done,
    /// or the lock's time was over before the answer was here, so that another program may have
    /// found it dead before the extend was committed.
    pub(super) fn after(&self, took: Duration) -> Option<Extend> {
        if self.left.is_some_and(|left| took.as_millis() >= u128::from(left.unsigned_abs())) {
            return None;
        }
        Some(match self.until? {
            0 => Extend::Absent(Absence::NotFound),
            -1 => Extend::Absent(Absence::Expired),
            until => Extend::Extended { expires_at: millis(until) },
        })
    }
}

impl Operations {
    /// Extends one lock: without a guard as a rule, and again with one if the answer comes too
    /// late to count.
    pub(super) async fn extend_one(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        let timeout = self.connections.timeout;
        let sent = Instant::now();
        let answer = self.ask_to_extend(id, ttl, false).await?;
        let took = sent.elapsed();
        if let Some(extend) = answer.after(took) {
            return Ok(extend);
        }
        let guarded = self.extend_guarded(id, ttl, answer.until.is_some());
        match tokio::time::timeout(timeout.saturating_sub(took), guarded).await {
            Ok(extend) => extend,
            Err(_) => Err(Error::timed_out(Operation::Extend, timeout)),
        }
    }

    /// Extends one lock after everybody who is acquiring its key. If `again`, an extend without a
    /// guard may have been done before.
    pub(super) async fn extend_guarded(&self, id: &LockId, ttl: Ttl, again: bool) -> Result<Extend, Error> {
        match self.ask_to_extend(id, ttl, true).await {
            Ok(answer) => answer.after(Duration::ZERO).ok_or_else(|| {
                Error::new(ErrorCode::Internal, "an unexpected answer of the server").during(Operation::Extend)
            }),
            Err(error) if again => Err(error.with_outcome_unknown()),
            Err(error) => Err(error),
        }
    }

    async fn ask_to_extend(&self, id: &LockId, ttl: Ttl, guarded: bool) -> Result<Extended, Error> {
        let parameters: [Parameter<'_>; 3] =
            [(&id.expose(), Type::TEXT), (&number(ttl.as_millis()), Type::INT8), (&guarded, Type::BOOL)];
        let row = self.query_one(Operation::Extend, &self.statements.extend, &parameters);
        let row = self.explained(Wanted::Id(id), row).await?;
        let number = |column| row.try_get(column).map_err(|error| unreadable(error).during(Operation::Extend));
        Ok(Extended { until: number(0)?, left: number(1)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_only_if_it_is_here_before_the_lock_would_have_ended() {
        let answer = |until, left, took| Extended { until, left }.after(Duration::from_millis(took));
        let extended = Some(Extend::Extended { expires_at: millis(9000) });
        assert_eq!(answer(Some(9000), Some(200), 199), extended);
        assert_eq!(answer(Some(9000), Some(200), 200), None);
        assert_eq!(answer(Some(9000), None, 1_000_000), extended);
        assert_eq!(answer(None, None, 0), None);
        assert_eq!(answer(Some(0), None, 1_000_000), Some(Extend::Absent(Absence::NotFound)));
        assert_eq!(answer(Some(-1), None, 1_000_000), Some(Extend::Absent(Absence::Expired)));
    }
}
