//! The store in a SQLite file, one file for each kind of promise.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used)]

mod clock;
mod doctor;
mod durability;
mod kinds;
mod lines;
mod many;
mod old_programs;
mod strangers;
mod support;
mod together;
mod trouble;
