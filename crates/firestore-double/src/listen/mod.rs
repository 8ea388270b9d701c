//! `Listen`: clients hear of every change to the documents and queries that they name.

mod delta;
mod messages;
mod registry;
mod service;
mod stream;
mod target;

pub(crate) use registry::Listeners;
pub(crate) use service::ListenService;
