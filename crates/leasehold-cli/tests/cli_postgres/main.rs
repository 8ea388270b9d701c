//! The command on a PostgreSQL database: everything that holds for the file holds here.

#![allow(clippy::unwrap_used)]

#[path = "../cli/counter.rs"]
mod counter;
#[path = "../cli/environment.rs"]
mod environment;
#[path = "../cli/exit_codes.rs"]
mod exit_codes;
#[path = "../cli/loss.rs"]
mod loss;
#[path = "../cli/scripts.rs"]
mod scripts;
#[path = "../cli/signals.rs"]
mod signals;
mod store;
#[path = "../cli/support.rs"]
mod support;
#[path = "../cli/terminal.rs"]
mod terminal;
mod trouble;
#[path = "../cli/views.rs"]
mod views;
#[path = "../cli/waiting.rs"]
mod waiting;
