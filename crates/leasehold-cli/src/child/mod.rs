//! The command that runs under the lock, with all that it starts.

mod clock;
mod deadline;
mod descendants;
mod ended;
mod job;
mod leases;
mod orphans;
pub(crate) mod shim;
mod supervise;
mod terminal;

pub(crate) use descendants::can_be_found;
pub(crate) use ended::{Cause, Ended};
pub(crate) use job::Job;
pub(crate) use leases::Leases;
pub(crate) use orphans::reaping;
pub(crate) use supervise::Supervisor;
pub(crate) use terminal::{Terminal, write_always};
