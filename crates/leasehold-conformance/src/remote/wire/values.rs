//! Twins of the types of [`leasehold`] that tell serde how to write them. They are of the same name
//! and shape. What is added there must be added here; the tests of this folder compare whole
//! values.

use std::time::Duration;

use leasehold::{Fence, Holder, Key, LockId, Loss, Metadata, Timestamp, Ttl};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};

use super::notes;

/// Has serde write the values of an enum that may grow as those of its twin. A value that the twin
/// does not know is an error.
macro_rules! enum_twin {
    ($twin:ident = $original:ty { $($value:pat => $twin_value:expr),+ $(,)? } { $($from:pat => $into:expr),+ $(,)? }) => {
        impl $twin {
            pub(super) fn serialize<S: Serializer>(value: &$original, serializer: S) -> Result<S::Ok, S::Error> {
                let twin = match value.clone() {
                    $($value => $twin_value,)+
                    _ => return Err(ser::Error::custom(concat!("an unknown ", stringify!($twin)))),
                };
                Serialize::serialize(&twin, serializer)
            }

            pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<$original, D::Error> {
                let twin: $twin = Deserialize::deserialize(deserializer)?;
                Ok(match twin { $($from => $into,)+ })
            }
        }
    };
}

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
#[serde(remote = "leasehold::backend::AcquireRequest")]
pub(super) struct AcquireRequest {
    key: Key,
    #[serde(with = "lock_id")]
    lock_id: LockId,
    ttl: Ttl,
    holder: Holder,
    #[serde(with = "notes")]
    metadata: Metadata,
    #[serde(with = "Steal", getter = "steal")]
    steal: leasehold::Steal,
}

fn steal(request: &leasehold::backend::AcquireRequest) -> leasehold::Steal {
    request.steal
}

impl From<AcquireRequest> for leasehold::backend::AcquireRequest {
    fn from(twin: AcquireRequest) -> Self {
        Self::new(twin.key, twin.lock_id, twin.ttl)
            .with_holder(twin.holder)
            .with_metadata(twin.metadata)
            .with_steal(twin.steal)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::Steal")]
struct Steal {
    #[serde(getter = "same_holder")]
    same_holder: bool,
    #[serde(getter = "held_longer_than")]
    held_longer_than: Option<Duration>,
    #[serde(getter = "stuck_fence")]
    fence: Option<Fence>,
}

fn same_holder(steal: &leasehold::Steal) -> bool {
    steal.same_holder()
}

fn held_longer_than(steal: &leasehold::Steal) -> Option<Duration> {
    steal.held_longer_than()
}

fn stuck_fence(steal: &leasehold::Steal) -> Option<Fence> {
    steal.fence()
}

impl From<Steal> for leasehold::Steal {
    fn from(twin: Steal) -> Self {
        let steal = if twin.same_holder { Self::NEVER.with_same_holder() } else { Self::NEVER };
        let steal = twin.fence.map_or(steal, |fence| steal.with_fence(fence));
        twin.held_longer_than.map_or(steal, |time| steal.with_held_longer_than(time))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::ListRequest")]
pub(super) struct ListRequest {
    #[serde(getter = "prefix")]
    prefix: String,
    #[serde(getter = "leasehold::ListRequest::page_size")]
    page_size: usize,
    #[serde(getter = "cursor")]
    cursor: Option<String>,
}

fn prefix(request: &leasehold::ListRequest) -> String {
    request.prefix().to_owned()
}

fn cursor(request: &leasehold::ListRequest) -> Option<String> {
    request.cursor().map(str::to_owned)
}

impl From<ListRequest> for leasehold::ListRequest {
    fn from(twin: ListRequest) -> Self {
        let request = Self::new(&twin.prefix).with_page_size(twin.page_size);
        match twin.cursor {
            Some(cursor) => request.with_cursor(cursor),
            None => request,
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) enum Acquire {
    Granted(#[serde(with = "Grant")] leasehold::Grant),
    Held(#[serde(with = "Contention")] leasehold::Contention),
}

enum_twin!(Acquire = leasehold::backend::Acquire {
    leasehold::backend::Acquire::Granted(grant) => Acquire::Granted(grant),
    leasehold::backend::Acquire::Held(contention) => Acquire::Held(contention),
} {
    Acquire::Granted(grant) => leasehold::backend::Acquire::Granted(grant),
    Acquire::Held(contention) => leasehold::backend::Acquire::Held(contention),
});

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::Grant")]
struct Grant {
    #[serde(with = "lock_id")]
    lock_id: LockId,
    #[serde(getter = "fence_of_grant")]
    fence: Fence,
    #[serde(with = "micros")]
    acquired_at: Timestamp,
    #[serde(with = "micros")]
    expires_at: Timestamp,
}

fn fence_of_grant(grant: &leasehold::Grant) -> Fence {
    grant.fence
}

impl From<Grant> for leasehold::Grant {
    fn from(twin: Grant) -> Self {
        Self::new(twin.lock_id, twin.fence, twin.acquired_at, twin.expires_at)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::Contention")]
struct Contention {
    #[serde(getter = "holder_in_the_way")]
    holder: Option<Holder>,
    #[serde(getter = "fence_in_the_way")]
    fence: Option<Fence>,
    #[serde(with = "micros")]
    acquired_at: Timestamp,
    #[serde(with = "micros")]
    expires_at: Timestamp,
    #[serde(with = "micros")]
    now: Timestamp,
}

fn holder_in_the_way(contention: &leasehold::Contention) -> Option<Holder> {
    contention.holder.clone()
}

fn fence_in_the_way(contention: &leasehold::Contention) -> Option<Fence> {
    contention.fence
}

impl From<Contention> for leasehold::Contention {
    fn from(twin: Contention) -> Self {
        Self::new(twin.holder, twin.acquired_at, twin.expires_at, twin.now).with_fence(twin.fence)
    }
}

#[derive(Serialize, Deserialize)]
pub(super) enum Release {
    Released,
    Absent(#[serde(with = "Absence")] leasehold::backend::Absence),
}

enum_twin!(Release = leasehold::backend::Release {
    leasehold::backend::Release::Released => Release::Released,
    leasehold::backend::Release::Absent(absence) => Release::Absent(absence),
} {
    Release::Released => leasehold::backend::Release::Released,
    Release::Absent(absence) => leasehold::backend::Release::Absent(absence),
});

#[derive(Serialize, Deserialize)]
pub(super) enum Extend {
    Extended {
        #[serde(with = "micros")]
        expires_at: Timestamp,
    },
    Absent(#[serde(with = "Absence")] leasehold::backend::Absence),
}

enum_twin!(Extend = leasehold::backend::Extend {
    leasehold::backend::Extend::Extended { expires_at } => Extend::Extended { expires_at },
    leasehold::backend::Extend::Absent(absence) => Extend::Absent(absence),
} {
    Extend::Extended { expires_at } => leasehold::backend::Extend::Extended { expires_at },
    Extend::Absent(absence) => leasehold::backend::Extend::Absent(absence),
});

#[derive(Serialize, Deserialize)]
enum Absence {
    Expired,
    NotFound,
}

enum_twin!(Absence = leasehold::backend::Absence {
    leasehold::backend::Absence::Expired => Absence::Expired,
    leasehold::backend::Absence::NotFound => Absence::NotFound,
} {
    Absence::Expired => leasehold::backend::Absence::Expired,
    Absence::NotFound => leasehold::backend::Absence::NotFound,
});

#[derive(Serialize, Deserialize)]
pub(super) enum ForceRelease {
    Released(#[serde(with = "Record")] leasehold::backend::Record),
    Absent,
}

enum_twin!(ForceRelease = leasehold::backend::ForceRelease {
    leasehold::backend::ForceRelease::Released(record) => ForceRelease::Released(record),
    leasehold::backend::ForceRelease::Absent => ForceRelease::Absent,
} {
    ForceRelease::Released(record) => leasehold::backend::ForceRelease::Released(record),
    ForceRelease::Absent => leasehold::backend::ForceRelease::Absent,
});

/// A record where there may be none or many.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(in super::super) struct Listed(#[serde(with = "Record")] pub(in super::super) leasehold::backend::Record);

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
}

fn fence_of_record(record: &leasehold::backend::Record) -> Fence {
    record.fence
}

impl From<Record> for leasehold::backend::Record {
    fn from(twin: Record) -> Self {
        let grant = leasehold::Grant::new(twin.lock_id, twin.fence, twin.acquired_at, twin.expires_at);
        Self::new(twin.key, &grant).with_holder(twin.holder).with_metadata(twin.metadata)
    }
}

#[derive(Serialize, Deserialize)]
pub(super) enum Event {
    Freed,
    Taken { key: Key, fence: Fence, how: Loss },
    Missed,
}

enum_twin!(Event = leasehold::backend::Event {
    leasehold::backend::Event::Freed => Event::Freed,
    leasehold::backend::Event::Taken { key, fence, how } => Event::Taken { key, fence, how },
    leasehold::backend::Event::Missed => Event::Missed,
} {
    Event::Freed => leasehold::backend::Event::Freed,
    Event::Taken { key, fence, how } => leasehold::backend::Event::Taken { key, fence, how },
    Event::Missed => leasehold::backend::Event::Missed,
});

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::backend::Capabilities")]
pub(super) struct Capabilities {
    #[serde(with = "TimeAuthority")]
    time_authority: leasehold::backend::TimeAuthority,
    wake_ups: bool,
    clock_floored_fences: bool,
    #[serde(getter = "call_timeout")]
    call_timeout: Duration,
}

fn call_timeout(found: &leasehold::backend::Capabilities) -> Duration {
    found.call_timeout
}

impl From<Capabilities> for leasehold::backend::Capabilities {
    fn from(twin: Capabilities) -> Self {
        Self::new(twin.time_authority)
            .with_wake_ups(twin.wake_ups)
            .with_clock_floored_fences(twin.clock_floored_fences)
            .with_call_timeout(twin.call_timeout)
    }
}

#[derive(Serialize, Deserialize)]
enum TimeAuthority {
    Store,
    Client,
}

enum_twin!(TimeAuthority = leasehold::backend::TimeAuthority {
    leasehold::backend::TimeAuthority::Store => TimeAuthority::Store,
    leasehold::backend::TimeAuthority::Client => TimeAuthority::Client,
} {
    TimeAuthority::Store => leasehold::backend::TimeAuthority::Store,
    TimeAuthority::Client => leasehold::backend::TimeAuthority::Client,
});
