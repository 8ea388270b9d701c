//! The `leasehold` command: runs a command under a lock, and looks at locks.
//!
//! It is a library so that a program can be the same command with stores of its own: every
//! subcommand, `doctor` and `migrate` included, takes their URLs.
//!
//! ```no_run
//! # use std::sync::Arc;
//! use std::process::ExitCode;
//!
//! use leasehold::stores::StoreDescriptor;
//! # use leasehold::backend::Backend;
//! # use leasehold::memory::Memory;
//! # use leasehold::stores::StoreDriver;
//! # use leasehold::Error;
//! # #[derive(Debug)]
//! # struct MyDriver;
//! # #[async_trait::async_trait]
//! # impl StoreDriver for MyDriver {
//! #     async fn connect(&self, _url: &str) -> Result<Arc<dyn Backend>, Error> {
//! #         Ok(Arc::new(Memory::new()))
//! #     }
//! # }
//!
//! fn main() -> ExitCode {
//!     let mine = StoreDescriptor::new("My store", &["mystore"], "mystore://host", &MyDriver);
//!     match leasehold::stores::register(mine) {
//!         Ok(()) => leasehold_cli::main(std::env::args_os().collect()),
//!         Err(error) => {
//!             eprintln!("{error}");
//!             ExitCode::FAILURE
//!         }
//!     }
//! }
//! ```

mod acquire;
mod app;
mod bench;
mod child;
mod cli;
mod commands;
mod config;
mod default_store;
mod environment;
mod escape;
mod event;
mod exit;
#[cfg(feature = "_fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod granted;
mod held;
mod key_view;
mod locks_view;
mod mode;
mod notes;
mod options;
mod output;
mod own_lock;
mod question;
mod reporter;
mod signals;
mod store;
mod table;
mod task;
mod text;

pub use app::main;
