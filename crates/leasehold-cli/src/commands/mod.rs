//! One file per command.

pub(crate) mod acquire;
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod doctor;
mod examples;
pub(crate) mod extend;
pub(crate) mod force_release;
pub(crate) mod init;
mod known;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod markdown;
pub(crate) mod migrate;
pub(crate) mod release;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod watch;
