//! Stores by URL: the table of those of this library, and stores of other crates.

#![allow(clippy::unwrap_used)]

mod closing;
mod connect_with;
mod outside;
#[cfg(feature = "metrics")]
mod recorded;
mod table;
