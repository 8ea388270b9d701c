//! What the functions of the database answer.

use tokio_postgres::Row;

use super::record::{self, millis, unreadable};
use crate::backend::{Absence, Acquire, AcquireRequest, Grant, Release};
use crate::{Error, Fence, Timestamp};

/// What the function of acquire answered: a new grant, or a record that stands.
pub(super) fn acquire(row: &Row, request: &AcquireRequest) -> Result<Acquire, Error> {
    let text = |column| row.try_get::<_, String>(column).map_err(unreadable);
    let number = |column| row.try_get::<_, i64>(column).map_err(unreadable);
    let granted: bool = row.try_get(0).map_err(unreadable)?;
    let (id, fence, since, until) = (text(1)?, text(2)?, number(3)?, number(4)?);
    if granted {
        let fence = fence.parse::<Fence>().and_then(|fence| Fence::new(fence.get()))?;
        let (acquired_at, expires_at) = (millis(since), millis(until));
        return Ok(Acquire::Granted(Grant { lock_id: request.lock_id, fence, acquired_at, expires_at }));
    }
    let details: Option<String> = row.try_get(5).map_err(unreadable)?;
    let now: Timestamp = record::micros(number(6)?);
    let stored = record::stored(request.key.as_str().to_owned(), id, fence, since, until, details.as_deref());
    if stored.has_id(&request.lock_id) {
        return Ok(Acquire::Granted(record::into_record(stored)?.grant()));
    }
    Ok(Acquire::Held(stored.contention(now)))
}

/// What the functions of release say of one lock.
pub(super) fn release(answer: i32) -> Release {
    match answer {
        1 => Release::Released,
        -1 => Release::Absent(Absence::Expired),
        _ => Release::Absent(Absence::NotFound),
    }
}
