//! What the lock above the stores promises: one file for each kind of promise.

#![allow(clippy::unwrap_used)]

mod best_effort;
mod cancel;
mod deadlines;
mod diagnostics;
mod extend;
mod guard;
mod heartbeat;
mod input;
mod kinds;
mod lanes;
mod layers;
mod lines;
mod memory;
mod reentrancy;
mod run;
mod runtimes;
mod several;
mod shutdown;
mod steal;
mod store_clock;
mod support;
mod waiting;
