//! Distributed locks with leases, fencing tokens and prompt notice of loss: one strict semantics
//! over many stores.
//!
//! Use it where only one of several processes may do something at a time: charge a card, run the
//! nightly job, lead. A lock here is a *lease*: it ends by itself if its holder crashes, and its
//! holder is told when it is lost. Every grant carries a *fence*, a number that only grows, so that
//! what the lock protects can refuse a holder who has not noticed yet.
//!
//! ```
//! use leasehold::Locks;
//! use leasehold::memory::Memory;
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
//!
//! // At the end of the program: see below.
//! locks.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Finding your way
//!
//! - [`Locks`] is the handle, [`LockRequest`] what you can ask for, [`Guard`] what you get,
//!   [`Lease`] its view for other tasks.
//! - [`Locks::lock`] is alone, [`Locks::shared`] and [`Locks::permit`] are not, [`Locks::lock_all`]
//!   is for several keys. Whoever waits for one key stands in line, over all processes.
//! - Stores: [`memory`] inside this process, `sqlite` for the processes of one host, `redis`,
//!   `postgres` and `firestore` for many hosts, each behind a feature of its name.
//! - [`Locks::connect`] chooses a store by its URL, [`Locks::examine`] tells whether locks work
//!   there.
//! - [`Error`] has one code for each thing a program may want to decide on.
//! - [`layers`] go around any store: telemetry, and metrics (feature `metrics`).
//! - [`testing`] has a clock that stands still and a store that fails on command.
//! - [`backend`] is the contract of a store; [`stores`] is the table of them, open to your own.
//!
//! # What it needs
//!
//! A tokio runtime with its timer and I/O enabled. A handle works from any runtime, at any time,
//! whatever the other runtimes that use it are doing. Renewals and background releases run on a
//! thread of the library's own, so they do not depend on your runtime being responsive.
//!
//! # The end of a program
//!
//! A guard that is dropped is released in the background, a moment later. When `main` returns, the
//! process ends without waiting for that moment: the lock of a guard that was a local of `main`, or
//! was dropped just before, may stay taken until its ttl has passed. Call [`Guard::release`] where
//! you can, and [`Locks::shutdown`] before `main` returns: it releases whatever is still held, and
//! waits for what goes on in the background.
//!
//! # What it says
//!
//! Through `tracing`, at debug level: locks that are acquired, waited for and released, renewals
//! and releases that fail, and a span around every call to the store. A lock that is lost is a
//! warning. Keys and lock ids appear only as hashes.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backend;
mod boot_clock;
mod check;
mod clock;
mod duration;
mod error;
mod fence;
#[cfg(feature = "firestore")]
#[cfg_attr(docsrs, doc(cfg(feature = "firestore")))]
pub mod firestore;
#[cfg(feature = "_fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod hash_id;
mod holder;
mod inbox;
mod key;
mod key_state;
pub mod layers;
mod lock_id;
mod locks;
mod loss;
mod map;
pub mod memory;
mod metadata;
#[cfg(feature = "metrics")]
mod metric_names;
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
pub mod postgres;
mod process;
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub mod redis;
#[cfg(feature = "_remote")]
mod remote;
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub mod sqlite;
mod storage_key;
pub mod stores;
mod sync;
pub mod testing;
mod timestamp;
mod ttl;
// Each store uses a part of the next two. What none of them uses shows when all are built.
#[cfg_attr(
    not(all(feature = "firestore", feature = "postgres", feature = "redis", feature = "sqlite")),
    allow(dead_code)
)]
mod url_option;
#[cfg_attr(
    not(all(feature = "firestore", feature = "postgres", feature = "redis", feature = "sqlite")),
    allow(dead_code)
)]
mod url_writer;

pub use tokio_util::sync::CancellationToken;

pub use backend::{Contention, Grant, ListRequest, Mode, Steal};
pub use check::{Check, Verdict};
pub use duration::parse_duration;
pub use error::{Error, ErrorCode, Operation};
pub use fence::Fence;
pub use hash_id::HashId;
pub use holder::Holder;
pub use key::Key;
pub use lock_id::LockId;
pub use locks::{
    Backoff, BestEffort, Guard, Guards, Jitter, KeyInfo, Lease, LockAllRequest, LockInfo, LockRequest, LockState,
    Locked, Locks, LocksBuilder, LocksPage, Outcome, Owner, ReleaseFailure, Retry, WaiterInfo,
};
pub use loss::Loss;
pub use metadata::Metadata;
pub use timestamp::{TIME_TOLERANCE, Timestamp};
pub use ttl::Ttl;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
