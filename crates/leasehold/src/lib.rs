//! Distributed locks with leases, fencing tokens and prompt notice of loss: one strict semantics over many stores.
//!
//! Use it where only one of several processes may do something at a time: charge a card, run the nightly job, lead.
//! A lock here is a *lease*: it ends by itself if its holder crashes, and its holder is told when it is lost. Every
//! grant carries a *fence*, a number that only grows, so that what the lock protects can refuse a holder who has not
//! noticed yet.
//!
//! ```
//! use leasehold::{Locks, Memory};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), leasehold::Error> {
//! let locks = Locks::new(Memory::new());
//!
//! // Waits, renews the lease, stops the work if the lock is lost, releases.
//! let receipt = locks
//!     .lock("payment:42")
//!     .run(|lease| async move { format!("charged under fence {}", lease.fence()) })
//!     .await?;
//! # assert!(receipt.starts_with("charged"));
//!
//! // Or by hand:
//! let Some(guard) = locks.lock("cron:daily").try_acquire().await? else { return Ok(()) };
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Finding your way
//!
//! - [`Locks`] is the handle, [`LockRequest`] what you can ask for, [`Guard`] what you get, [`Lease`] its view for other
//!   tasks.
//! - [`Backend`] is what a store must do; [`Memory`] is the store inside this process, `Sqlite` (feature `sqlite`) the one for
//!   the processes of one host, `Redis` (feature `redis`) and `Postgres` (feature `postgres`)
//!   those for many hosts.
//! - [`Error`] has one code for each thing a program may want to decide on.
//! - [`TelemetryLayer`], [`MetricsLayer`] and [`FaultLayer`] go around any store.
//!
//! # What it needs
//!
//! A tokio runtime with its timer enabled. Renewals and background releases run on a thread of the library's own, so
//! they do not depend on that runtime being responsive.

mod backend;
mod check;
mod clock;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod ear;
mod error;
mod fence;
mod hash_id;
mod holder;
mod key;
mod layers;
mod lock_id;
mod locks;
mod loss;
mod memory;
mod metadata;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
mod storage_key;
mod sync;
mod timestamp;
mod ttl;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod url_option;

pub use tokio_util::sync::CancellationToken;

pub use backend::{
    Absence, Acquire, AcquireRequest, Backend, Capabilities, Contention, Event, Extend, ForceRelease, Grant, ListPage,
    ListRequest, LookupBy, Publisher, Record, Release, Steal, Subscription, TimeAuthority, Topic,
};
pub use check::{Check, Verdict};
pub use clock::ManualClock;
pub use error::{Error, ErrorCode, Operation};
pub use fence::Fence;
pub use hash_id::HashId;
pub use holder::Holder;
pub use key::Key;
pub use layers::{EventResult, EventType, Fault, FaultLayer, Faults, LockEvent, MetricsLayer, Reason, TelemetryLayer};
pub use lock_id::LockId;
#[cfg(feature = "planted-bugs")]
pub use locks::PlantedBug;
pub use locks::{
    Backoff, BestEffort, Guard, Jitter, Lease, LockInfo, LockRequest, LockState, Locked, Locks, LocksBuilder,
    LocksPage, Outcome, Owner, ReleaseFailure, Retry,
};
pub use loss::Loss;
pub use memory::Memory;
pub use metadata::Metadata;
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresOptions};
#[cfg(feature = "redis")]
pub use redis::{Redis, RedisOptions, RedisTls};
#[cfg(feature = "sqlite")]
pub use sqlite::{Sqlite, SqliteOptions, Synchronous};
pub use storage_key::StorageKeys;
pub use timestamp::{TIME_TOLERANCE, Timestamp};
pub use ttl::Ttl;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
