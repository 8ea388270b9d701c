use leasehold::backend::Mode;
use leasehold::{Fence, Holder, Key, LockId, Metadata, Timestamp};
use serde::{Deserialize, Serialize};

use super::{lock_id, micros, notes};

/// A record where there may be none or many.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(in super::super::super) struct Listed(
    #[serde(with = "Record")] pub(in super::super::super) leasehold::backend::Record,
);

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::backend::Record")]
struct Record {
    key: Key,
    #[serde(with = "lock_id")]
    lock_id: LockId,
    #[serde(getter = "fence_of_record")]
    fence: Fence,
    #[serde(with = "micros")]
    acquired_at: Timestamp,
    #[serde(with = "micros")]
    expires_at: Timestamp,
    holder: Option<Holder>,
    #[serde(with = "notes")]
    metadata: Metadata,
    mode: Mode,
    slot: Option<u16>,
}

fn fence_of_record(record: &leasehold::backend::Record) -> Fence {
    record.fence
}

impl From<Record> for leasehold::backend::Record {
    fn from(twin: Record) -> Self {
        let grant = leasehold::Grant::new(twin.lock_id, twin.fence, twin.acquired_at, twin.expires_at);
        Self::new(twin.key, &grant.with_slot(twin.slot))
            .with_holder(twin.holder)
            .with_metadata(twin.metadata)
            .with_mode(twin.mode)
    }
}

/// A place in line where there may be none or many.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(in super::super::super) struct Waiting(
    #[serde(with = "Waiter")] pub(in super::super::super) leasehold::backend::Waiter,
);

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::backend::Waiter")]
struct Waiter {
    key: Key,
    #[serde(with = "lock_id")]
    lock_id: LockId,
    #[serde(getter = "mode_of_waiter")]
    mode: Mode,
    holder: Option<Holder>,
    #[serde(with = "notes")]
    metadata: Metadata,
    #[serde(with = "micros")]
    since: Timestamp,
    #[serde(with = "micros")]
    until: Timestamp,
}

fn mode_of_waiter(waiter: &leasehold::backend::Waiter) -> Mode {
    waiter.mode
}

impl From<Waiter> for leasehold::backend::Waiter {
    fn from(twin: Waiter) -> Self {
        Self::new(twin.key, twin.lock_id, twin.mode, twin.since, twin.until)
            .with_holder(twin.holder)
            .with_metadata(twin.metadata)
    }
}
