//! Readers, permits, the line of those who wait, and several locks at once.

pub(super) mod calls;
pub(super) mod ends;
pub(super) mod line;
pub(super) mod order;
pub(super) mod permits;
pub(super) mod readers;
pub(super) mod reads;
pub(super) mod refused;
pub(super) mod several;

use std::num::NonZeroU16;
use std::sync::Arc;

use leasehold::Key;
use leasehold::backend::{AcquireRequest, Backend, Inspected, Line, LookupBy, Mode, Record, Release, Waiter};

use super::context::{Context, acquire, granted, holder, not_released, refused, release, released, request, ttl};
use super::{Case, context, group, need};

/// A request for `key`, shared with other readers, that ignores the line.
fn reader(key: &Key, millis: u64) -> AcquireRequest {
    request(key, millis).with_mode(Mode::Shared)
}

fn one_of(of: u16) -> Mode {
    Mode::Permit { of: NonZeroU16::new(of).expect("at least one") }
}

/// A request for one of so many permits, that ignores the line.
fn permit(of: u16, key: &Key, millis: u64) -> AcquireRequest {
    request(key, millis).with_mode(one_of(of))
}

/// The same request, if it does not pass those who wait.
fn heeding(request: AcquireRequest) -> AcquireRequest {
    request.with_line(Line::Heed)
}

/// The same request, if it takes a place for so many milliseconds.
fn joining(request: AcquireRequest, lease: u64) -> AcquireRequest {
    request.with_line(Line::Join { lease: ttl(lease) })
}

/// Joins the line, in which it must get or keep the place `place`.
async fn waits(store: &Arc<dyn Backend>, request: &AcquireRequest, place: u32) {
    let found = refused(store, request).await.place;
    assert_eq!(found, Some(place), "how many are before it in the line");
}

/// Gives up a place, which is no lock.
async fn leaves(store: &Arc<dyn Backend>, request: &AcquireRequest) {
    let answer = release(store, &request.lock_id).await;
    assert_eq!(answer, Release::Absent(leasehold::backend::Absence::NotFound), "a place is no lock");
}

async fn inspect(cx: &Context, key: &Key) -> Inspected {
    let found = cx.backend.inspect(key).await.expect("inspect answers");
    assert_eq!(cx.peer.inspect(key).await.expect("inspect answers"), found, "both handles see the same");
    found
}

async fn waiters(cx: &Context, key: &Key) -> Vec<Waiter> {
    inspect(cx, key).await.waiters
}

async fn live_record(cx: &Context, request: &AcquireRequest) -> Record {
    let found = cx.backend.lookup(LookupBy::Id(&request.lock_id)).await.expect("lookup by id answers");
    found.expect("the lock is held")
}
