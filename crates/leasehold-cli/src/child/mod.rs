//! The command that runs under the lock, with all that it starts.

mod deadline;
mod descendants;
mod job;
pub(crate) mod shim;
mod supervise;
mod terminal;

pub(crate) use job::{Job, Status};
pub(crate) use supervise::{Cause, Supervisor};
