//! Twins of the types of [`leasehold`] that tell serde how to write them. They are of the same name and shape, so that a
//! field that is added there does not compile here until it is sent too.

use std::time::Duration;

use leasehold::{Fence, Holder, Key, LockId, Loss, Metadata, Timestamp, Ttl};
use serde::{Deserialize, Serialize};

use super::notes;

/// A lock id does not serialise by itself, lest it gets into a log. Here it must.
pub(super) mod lock_id {
    use leasehold::LockId;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(in super::super) fn serialize<S: Serializer>(id: &LockId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(id.expose())
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LockId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// A time serialises as milliseconds by itself. Here it must not lose the rest.
mod micros {
    use leasehold::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(at.as_micros())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        u64::deserialize(deserializer).map(Timestamp::from_micros)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::AcquireRequest")]
pub(super) struct AcquireRequest {
    key: Key,
    #[serde(with = "lock_id")]
    lock_id: LockId,
    ttl: Ttl,
    holder: Holder,
    #[serde(with = "notes")]
    metadata: Metadata,
    #[serde(with = "Steal")]
    steal: leasehold::Steal,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::Steal")]
struct Steal {
    #[serde(getter = "same_holder")]
    same_holder: bool,
    #[serde(getter = "stuck_after")]
    stuck_after: Option<Duration>,
}

fn same_holder(steal: &leasehold::Steal) -> bool {
    steal.same_holder()
}

fn stuck_after(steal: &leasehold::Steal) -> Option<Duration> {
    steal.stuck_after()
}

impl From<Steal> for leasehold::Steal {
    fn from(twin: Steal) -> Self {
        let steal = if twin.same_holder { Self::NEVER.from_same_holder() } else { Self::NEVER };
        twin.stuck_after.map_or(steal, |time| steal.held_longer_than(time))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::ListRequest")]
pub(super) struct ListRequest {
    #[serde(getter = "prefix")]
    prefix: String,
    #[serde(getter = "leasehold::ListRequest::page_size")]
    limit: usize,
    #[serde(getter = "cursor")]
    after: Option<String>,
}

fn prefix(request: &leasehold::ListRequest) -> String {
    request.prefix().to_owned()
}

fn cursor(request: &leasehold::ListRequest) -> Option<String> {
    request.cursor().map(str::to_owned)
}

impl From<ListRequest> for leasehold::ListRequest {
    fn from(twin: ListRequest) -> Self {
        let request = Self::new(&twin.prefix).limit(twin.limit);
        match twin.after {
            Some(cursor) => request.after(cursor),
            None => request,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::Acquire")]
pub(super) enum Acquire {
    Granted(#[serde(with = "Grant")] leasehold::Grant),
    Held(#[serde(with = "Contention")] leasehold::Contention),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::Grant")]
struct Grant {
    #[serde(with = "lock_id")]
    lock_id: LockId,
    fence: Fence,
    #[serde(with = "micros")]
    acquired_at: Timestamp,
    #[serde(with = "micros")]
    expires_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::Contention")]
struct Contention {
    holder: Option<Holder>,
    #[serde(with = "micros")]
    acquired_at: Timestamp,
    #[serde(with = "micros")]
    expires_at: Timestamp,
    #[serde(with = "micros")]
    now: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::Release")]
pub(super) enum Release {
    Released,
    Absent(#[serde(with = "Absence")] leasehold::Absence),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::Extend")]
pub(super) enum Extend {
    Extended {
        #[serde(with = "micros")]
        expires_at: Timestamp,
    },
    Absent(#[serde(with = "Absence")] leasehold::Absence),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::Absence")]
enum Absence {
    Expired,
    NotFound,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::ForceRelease")]
pub(super) enum ForceRelease {
    Released(#[serde(with = "Record")] leasehold::Record),
    Absent,
}

/// A record where there may be none or many.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(in super::super) struct Listed(#[serde(with = "Record")] pub(in super::super) leasehold::Record);

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::Record")]
struct Record {
    key: Key,
    #[serde(with = "lock_id")]
    lock_id: LockId,
    fence: Fence,
    #[serde(with = "micros")]
    acquired_at: Timestamp,
    #[serde(with = "micros")]
    expires_at: Timestamp,
    holder: Option<Holder>,
    #[serde(with = "notes")]
    metadata: Metadata,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::Event")]
pub(super) enum Event {
    Freed,
    Taken {
        #[serde(with = "lock_id")]
        lock_id: LockId,
        how: Loss,
    },
    Missed,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::Capabilities")]
pub(super) struct Capabilities {
    #[serde(with = "TimeAuthority")]
    time_authority: leasehold::TimeAuthority,
    wake_ups: bool,
    clock_floored_fences: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::TimeAuthority")]
enum TimeAuthority {
    Store,
    Client,
}
