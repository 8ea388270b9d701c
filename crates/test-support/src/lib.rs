//! What the tests of all crates share.
//!
//! - [`STORES`]: the table of stores under test. A new store is one entry there, and every suite
//!   below runs over it.
//! - [`suite`]: runs [`Case`]s over the stores of the table, each as a test of its own.
//! - [`redis`], [`postgres`], [`firestore`]: how each store is started, looked into and broken, and
//!   what tests of that store alone use.
//! - [`fuzz`]: runs fuzz targets for a moment each.
//! - [`eventually`], [`soon`]: wait for what must happen, with one [`DEADLINE`].
//! - [`Holders`]: whether those who hold a key go together.
//! - [`request`], [`granted`], [`held`], [`check`] and others: what is said again and again.

// Whatever fails here fails the test.
#![allow(clippy::unwrap_used)]

mod breakage;
mod checks;
pub mod firestore;
pub mod fuzz;
mod holders;
mod operations;
mod other_library;
pub mod postgres;
pub mod redis;
mod requests;
mod server;
mod sqlite;
mod stores;
pub mod suite;
mod wait;
mod warnings;

pub use breakage::{Breakage, Broken, Request};
pub use checks::{check, complaints, everything_said};
pub use holders::Holders;
pub use operations::every_operation;
pub use other_library::{Foreign, OtherLibrary};
pub use requests::{connect, grant, granted, held, id, key, locks, request, stealing, ttl, with_option};
pub use server::{Setup, StoreServer};
pub use stores::{Ability, RunningStore, STORES, StoreUnderTest, stores};
pub use suite::Case;
pub use test_servers::DEADLINE;
pub use wait::{eventually, soon};
pub use warnings::Warnings;
