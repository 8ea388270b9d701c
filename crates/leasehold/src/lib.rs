//! Distributed locks.

mod backend;
mod clock;
mod error;
mod fence;
mod hash_id;
mod holder;
mod key;
mod lock_id;
mod loss;
mod memory;
mod metadata;
mod storage_key;
mod sync;
mod timestamp;
mod ttl;

pub use backend::{
    Absence, Acquire, AcquireRequest, Backend, Capabilities, Contention, Event, Extend, ForceRelease, Grant, ListPage,
    ListRequest, LookupBy, Publisher, Record, Release, Steal, Subscription, TimeAuthority, Topic,
};
pub use clock::ManualClock;
pub use error::{Error, ErrorCode, Operation};
pub use fence::Fence;
pub use hash_id::HashId;
pub use holder::Holder;
pub use key::Key;
pub use lock_id::LockId;
pub use loss::Loss;
pub use memory::Memory;
pub use metadata::Metadata;
pub use storage_key::StorageKeys;
pub use timestamp::{TIME_TOLERANCE, Timestamp};
pub use ttl::Ttl;
