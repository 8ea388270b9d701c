//! What the functions of the database answer.

use tokio_postgres::Row;

use super::record::{self, millis, unreadable};
use super::{class, number_of};
use crate::backend::{Absence, Acquire, AcquireAll, AcquireRequest, Grant, Release};
use crate::{Contention, Error, ErrorCode, Fence, Timestamp};

/// What the function of acquire answered: a new grant, or a record that stands.
pub(super) fn acquire(row: &Row, request: &AcquireRequest) -> Result<Acquire, Error> {
    let granted: bool = row.try_get("granted").map_err(unreadable)?;
    let id: String = row.try_get("held_id").map_err(unreadable)?;
    if !granted && id != request.lock_id.expose() {
        let place: Option<i32> = row.try_get("place").map_err(unreadable)?;
        return Ok(Acquire::Held(contention(row, request)?.with_place(place.map(number_of))));
    }
    let fence: String = row.try_get("held_fence").map_err(unreadable)?;
    let number = |column| row.try_get::<_, i64>(column).map_err(unreadable);
    let slot = row.try_get("held_slot").map_err(unreadable)?;
    grant(request, &fence, number("held_since_ms")?, number("held_until_ms")?, slot).map(Acquire::Granted)
}

/// What the function for several locks answered: the grants, or the number of the one in whose way
/// somebody is.
pub(super) fn acquire_all(row: &Row, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
    let which: Option<i32> = row.try_get("which").map_err(unreadable)?;
    if let Some(number) = which {
        let which = usize::try_from(number - 1).unwrap_or(usize::MAX);
        let request = requests.get(which).ok_or_else(unexpected)?;
        return Ok(AcquireAll::Held { which, contention: contention(row, request)? });
    }
    let numbers = |column| row.try_get::<_, Vec<i64>>(column).map_err(unreadable);
    let fences: Vec<String> = row.try_get("fences").map_err(unreadable)?;
    let slots: Vec<Option<i32>> = row.try_get("slots").map_err(unreadable)?;
    let (since, until) = (numbers("since_ms")?, numbers("until_ms")?);
    if [fences.len(), slots.len(), since.len(), until.len()] != [requests.len(); 4] {
        return Err(unexpected());
    }
    let grants = requests.iter().enumerate();
    let grants =
        grants.map(|(which, request)| grant(request, &fences[which], since[which], until[which], slots[which]));
    Ok(AcquireAll::Granted(grants.collect::<Result<_, _>>()?))
}

fn grant(request: &AcquireRequest, fence: &str, since: i64, until: i64, slot: Option<i32>) -> Result<Grant, Error> {
    let fence = fence.parse::<Fence>().and_then(|fence| Fence::new(fence.get()))?;
    Ok(Grant::new(request.lock_id, fence, millis(since), millis(until)).with_slot(record::slot(slot)))
}

/// Who is in the way of a request.
fn contention(row: &Row, request: &AcquireRequest) -> Result<Contention, Error> {
    let number = |column| row.try_get::<_, i64>(column).map_err(unreadable);
    let text = |column| row.try_get::<_, Option<String>>(column).map_err(unreadable);
    let stored = record::stored(
        request.key.as_str().to_owned(),
        text("held_id")?.unwrap_or_default(),
        text("held_fence")?.unwrap_or_default(),
        number("held_since_ms")?,
        number("held_until_ms")?,
        text("held_details")?.as_deref(),
    );
    let now: Timestamp = record::micros(number("now_us")?);
    let permits = row.try_get("held_permits").map_err(unreadable)?;
    let holders: i32 = row.try_get("holders").map_err(unreadable)?;
    let mode = class::mode(text("held_class")?.as_deref(), permits);
    Ok(stored.contention(now).with_mode(mode).with_holders(number_of(holders)))
}

/// What the functions of release say of one lock.
pub(super) fn release(answer: i32) -> Release {
    match answer {
        1 => Release::Released,
        -1 => Release::Absent(Absence::Expired),
        _ => Release::Absent(Absence::NotFound),
    }
}

pub(super) fn unexpected() -> Error {
    Error::new(ErrorCode::Internal, "an unexpected answer of the server").with_outcome_unknown()
}
