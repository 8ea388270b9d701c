use std::time::Duration;

use leasehold::backend::Mode;
use leasehold::{Fence, Holder, Key, LockId, Metadata, Ttl};
use serde::{Deserialize, Serialize};

use super::{enum_twin, lock_id, notes};

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::backend::AcquireRequest")]
pub(in super::super) struct AcquireRequest {
    key: Key,
    #[serde(with = "lock_id")]
    lock_id: LockId,
    ttl: Ttl,
    holder: Holder,
    #[serde(with = "notes")]
    metadata: Metadata,
    #[serde(with = "Steal", getter = "steal")]
    steal: leasehold::Steal,
    #[serde(getter = "mode")]
    mode: Mode,
    #[serde(with = "Line", getter = "line")]
    line: leasehold::backend::Line,
}

fn steal(request: &leasehold::backend::AcquireRequest) -> leasehold::Steal {
    request.steal
}

fn mode(request: &leasehold::backend::AcquireRequest) -> Mode {
    request.mode
}

fn line(request: &leasehold::backend::AcquireRequest) -> leasehold::backend::Line {
    request.line
}

impl From<AcquireRequest> for leasehold::backend::AcquireRequest {
    fn from(twin: AcquireRequest) -> Self {
        Self::new(twin.key, twin.lock_id, twin.ttl)
            .with_holder(twin.holder)
            .with_metadata(twin.metadata)
            .with_steal(twin.steal)
            .with_mode(twin.mode)
            .with_line(twin.line)
    }
}

#[derive(Serialize, Deserialize)]
enum Line {
    Ignore,
    Heed,
    Join { lease: Ttl },
}

enum_twin!(Line = leasehold::backend::Line {
    leasehold::backend::Line::Ignore => Line::Ignore,
    leasehold::backend::Line::Heed => Line::Heed,
    leasehold::backend::Line::Join { lease } => Line::Join { lease },
} {
    Line::Ignore => leasehold::backend::Line::Ignore,
    Line::Heed => leasehold::backend::Line::Heed,
    Line::Join { lease } => leasehold::backend::Line::Join { lease },
});

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
pub(in super::super) struct ListRequest {
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
