//! The double keeps what Firestore's documentation promises. Each test is named for one promise.

#![allow(clippy::unwrap_used)]

mod access;
mod common;
mod counts;
mod documents;
mod faults;
mod listen;
mod listener;
mod locks;
mod preconditions;
mod queries;
mod restart;
mod serialisable;
