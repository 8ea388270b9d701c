//! What can go wrong with Redis alone.

mod amnesia;
pub(crate) mod commands;
pub(crate) mod credentials;
pub(crate) mod failover;
pub(crate) mod forgetting;
pub(crate) mod garbage;
pub(crate) mod memory;
