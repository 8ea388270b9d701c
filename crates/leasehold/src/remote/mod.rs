//! What stores share whose locks other processes see: connections, subscriptions, and records and
//! errors that others wrote.

// Each store uses a part of it. What none of them uses shows when all are built.
#![cfg_attr(
    not(all(feature = "firestore", feature = "postgres", feature = "redis", feature = "sqlite")),
    allow(dead_code)
)]

pub(crate) mod driver_error;
#[cfg(feature = "_fuzzing")]
pub(crate) mod fuzzing;
pub(crate) mod listener;
pub(crate) mod notification;
pub(crate) mod per_runtime;
pub(crate) mod placeholder;
pub(crate) mod push_connection;
pub(crate) mod resolve;
pub(crate) mod stage;
pub(crate) mod stored;
