//! Proves that a store of locks keeps the promises of [`leasehold::backend::Backend`].
//!
//! Three proofs, each run over a fresh [`Harness`] of your store:
//!
//! - a table of named [cases](cases()), each of which checks one promise, in groups such as
//!   `exclusion`, `fencing` and `cancel`;
//! - a [reference model](model) that answers random commands in lock step with the store and
//!   shrinks what they disagree on to a short sequence;
//! - concurrent clients whose [history] is checked for overlapping holds, fences that go back and
//!   locks that come back from the dead. The checker is of use by itself, for histories of real
//!   programs.
//!
//! # Proving a store
//!
//! Make a test without the standard harness, which in `Cargo.toml` is
//!
//! ```toml
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! and in `tests/conformance.rs`
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::sync::Arc;
//!
//! use leasehold::backend::Backend;
//! use leasehold::memory::Memory;
//! use leasehold::Error;
//! use leasehold_conformance::{RealHarness, Suite, runner};
//!
//! fn main() -> ExitCode {
//!     let suite = Suite::new("my_store", || async {
//!         let store = Memory::new();
//!         let peer = store.clone();
//!         Ok::<_, Error>(RealHarness::new(Arc::new(store), Arc::new(peer)))
//!     });
//!     runner::main(&[suite])
//! }
//! ```
//!
//! Both `cargo test` and `cargo nextest` then show tests such as
//! `my_store::fencing::survives_expiry`. A store that cannot be reached fails them; nothing is ever
//! skipped. Some promises are made only by stores that can push events, that have lines, shared
//! locks and permits, or whose fences are floored by the clock. A suite says if its store cannot
//! ([`Suite::without_wake_ups`], [`Suite::without_lines`],
//! [`Suite::without_clock_floored_fences`]); the tests of such promises are then marked as `[not
//! applicable]`. If the suite and the store do not say the same, they fail.
//!
//! # A peer in another process
//!
//! Two handles of one process may share what two programs do not. A store for several processes is
//! proved with a [`remote::Peer`] as the harness's peer: the same test, started a second time,
//! serves the store to it. The module [`remote`] shows how.
//!
//! # A harness of your own
//!
//! [`RealHarness`] suits servers on this machine and [`ManualHarness`] stores that take a
//! [`ManualClock`](leasehold::testing::ManualClock). A harness of your own says where its time
//! comes from, and may own what has to go when the case is over. A single case can be run like
//! this:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use leasehold::backend::Backend;
//! use leasehold::memory::Memory;
//! use leasehold::testing::ManualClock;
//! use leasehold::Timestamp;
//! use leasehold_conformance::{Harness, Outcome, Suite, cases, runner, unique_namespace};
//!
//! struct MyHarness {
//!     store: Memory,
//!     clock: ManualClock,
//!     namespace: String,
//! }
//!
//! #[async_trait::async_trait]
//! impl Harness for MyHarness {
//!     fn backend(&self) -> Arc<dyn Backend> {
//!         Arc::new(self.store.clone())
//!     }
//!     fn peer(&self) -> Arc<dyn Backend> {
//!         Arc::new(self.store.clone())
//!     }
//!     fn namespace(&self) -> &str {
//!         &self.namespace
//!     }
//!     fn now(&self) -> Timestamp {
//!         self.clock.now()
//!     }
//!     async fn pass(&self, time: Duration) {
//!         self.clock.advance(time);
//!     }
//!     fn clock_slack(&self) -> Duration {
//!         Duration::ZERO
//!     }
//! }
//!
//! let suite = Suite::new("mine", || async {
//!     let clock = ManualClock::new();
//!     let store = Memory::with_clock(&clock);
//!     Ok::<_, leasehold::Error>(MyHarness { store, clock, namespace: unique_namespace() })
//! });
//! let case = cases().iter().find(|case| case.name() == "survives_expiry").expect("a case");
//! assert_eq!(runner::run_case(&suite, case), Ok(Outcome::Passed));
//! ```

mod cases;
mod harness;
pub mod history;
pub mod model;
pub mod remote;
pub mod runner;
mod suite;

pub use cases::{Case, Outcome, cases};
pub use harness::{Harness, ManualHarness, RealHarness, unique_namespace};
pub use suite::Suite;
