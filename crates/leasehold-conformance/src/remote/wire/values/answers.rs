use leasehold::backend::Mode;
use leasehold::{Fence, Holder, LockId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{enum_twin, lock_id, micros};

#[derive(Serialize, Deserialize)]
pub(in super::super) enum Acquire {
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
pub(in super::super) enum AcquireAll {
    Granted(Vec<Granted>),
    Held {
        which: usize,
        #[serde(with = "Contention")]
        contention: leasehold::Contention,
    },
}

enum_twin!(AcquireAll = leasehold::backend::AcquireAll {
    leasehold::backend::AcquireAll::Granted(grants) => AcquireAll::Granted(grants.into_iter().map(Granted).collect()),
    leasehold::backend::AcquireAll::Held { which, contention } => AcquireAll::Held { which, contention },
} {
    AcquireAll::Granted(grants) => {
        leasehold::backend::AcquireAll::Granted(grants.into_iter().map(|granted| granted.0).collect())
    },
    AcquireAll::Held { which, contention } => leasehold::backend::AcquireAll::Held { which, contention },
});

/// A grant where there are many.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(in super::super) struct Granted(#[serde(with = "Grant")] leasehold::Grant);

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
    slot: Option<u16>,
}

fn fence_of_grant(grant: &leasehold::Grant) -> Fence {
    grant.fence
}

impl From<Grant> for leasehold::Grant {
    fn from(twin: Grant) -> Self {
        Self::new(twin.lock_id, twin.fence, twin.acquired_at, twin.expires_at).with_slot(twin.slot)
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
    mode: Mode,
    holders: u32,
    place: Option<u32>,
}

fn holder_in_the_way(contention: &leasehold::Contention) -> Option<Holder> {
    contention.holder.clone()
}

fn fence_in_the_way(contention: &leasehold::Contention) -> Option<Fence> {
    contention.fence
}

impl From<Contention> for leasehold::Contention {
    fn from(twin: Contention) -> Self {
        Self::new(twin.holder, twin.acquired_at, twin.expires_at, twin.now)
            .with_fence(twin.fence)
            .with_mode(twin.mode)
            .with_holders(twin.holders)
            .with_place(twin.place)
    }
}

#[derive(Serialize, Deserialize)]
pub(in super::super) enum Release {
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
pub(in super::super) enum Extend {
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
