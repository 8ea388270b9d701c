//! Leasehold beside other locks: see `crates/bench/compare`, which writes `docs/benchmarks.md`.
//!
//! Every contestant is a process of its own ([`peer`]), whatever it is written in, and does what it
//! is told on its standard input ([`process`]). The conductor ([`contest`]) lets them take turns,
//! so that noise on the machine hits all alike, and reads what the servers count meanwhile
//! ([`counters`]). What it found ([`results`]) becomes a [`page`].

// Whatever goes wrong ends the measurement.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

pub mod contest;
pub mod counters;
pub mod machine;
pub mod memory;
pub mod page;
pub mod peer;
pub mod place;
pub mod process;
pub mod results;
pub mod server_time;
pub mod spread;
