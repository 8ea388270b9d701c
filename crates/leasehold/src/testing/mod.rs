//! For tests of code that takes locks, and of stores: a clock that stands still until it is moved,
//! and a store in which things go wrong as a script says.

mod fault;
#[cfg(test)]
pub(crate) mod odd_urls;

pub use crate::clock::ManualClock;
pub use fault::{Fault, FaultLayer, Faults};
