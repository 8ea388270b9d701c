use leasehold::{Fence, Holder, Key, Loss};
use serde::{Deserialize, Serialize};

use super::enum_twin;

#[derive(Serialize, Deserialize)]
pub(in super::super) enum Event {
    Freed,
    Taken { key: Key, fence: Fence, how: Loss },
    Granted { key: Key, fence: Fence, holder: Option<Holder> },
    Missed,
}

enum_twin!(Event = leasehold::backend::Event {
    leasehold::backend::Event::Freed => Event::Freed,
    leasehold::backend::Event::Taken { key, fence, how } => Event::Taken { key, fence, how },
    leasehold::backend::Event::Granted { key, fence, holder } => Event::Granted { key, fence, holder },
    leasehold::backend::Event::Missed => Event::Missed,
} {
    Event::Freed => leasehold::backend::Event::Freed,
    Event::Taken { key, fence, how } => leasehold::backend::Event::Taken { key, fence, how },
    Event::Granted { key, fence, holder } => leasehold::backend::Event::Granted { key, fence, holder },
    Event::Missed => leasehold::backend::Event::Missed,
});
