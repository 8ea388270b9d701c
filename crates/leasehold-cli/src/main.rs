//! The `leasehold` command: runs a command under a lock, and looks at locks.

mod acquire;
mod app;
mod child;
mod cli;
mod commands;
mod event;
mod exit;
mod locks_view;
mod options;
mod signals;
mod store;
mod table;
mod talk;
mod text;

fn main() -> std::process::ExitCode {
    app::main(std::env::args_os().collect())
}
