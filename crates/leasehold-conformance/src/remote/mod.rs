//! A store in another process, so that a suite proves what holds between processes and not only
//! between handles.
//!
//! The other process [serves](serve()) its store on its standard input and output, one line of JSON
//! for each request and answer; [`Peer`] starts it and is a
//! [`Backend`](leasehold::backend::Backend) like any other. The easiest other process is the test
//! itself, started a second time:
//!
//! ```no_run
//! use std::process::{Command, ExitCode};
//! use std::sync::Arc;
//!
//! use leasehold::backend::Backend;
//! use leasehold::memory::Memory;
//! use leasehold::Error;
//! use leasehold_conformance::{RealHarness, Suite, remote, runner};
//!
//! const SERVE: &str = "LEASEHOLD_CONFORMANCE_SERVE";
//!
//! /// The store under test; one that can be shared between processes, unlike this one.
//! async fn open(_url: &str) -> Result<Arc<dyn Backend>, Error> {
//!     Ok(Arc::new(Memory::new()))
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn serve(url: &str) -> ExitCode {
//!     let store = open(url).await.expect("the store is there");
//!     remote::serve(store).await.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
//! }
//!
//! fn main() -> ExitCode {
//!     // Before anything else, because what serves must print nothing of its own.
//!     if let Ok(url) = std::env::var(SERVE) {
//!         return serve(&url);
//!     }
//!     let suite = Suite::new("my_store_other_process", || async {
//!         let url = "my-store://localhost";
//!         let mut command = Command::new(std::env::current_exe()?);
//!         command.env(SERVE, url);
//!         let peer = remote::Peer::spawn(command).await?;
//!         let store = open(url).await.map_err(std::io::Error::other)?;
//!         Ok::<_, std::io::Error>(RealHarness::new(store, Arc::new(peer)))
//!     });
//!     runner::main(&[suite])
//! }
//! ```
//!
//! Everything a store is asked and answers arrives as it was sent. Of an error arrive its code,
//! message, hint, operation, whether the outcome is unknown, and its source as text.

mod connection;
#[cfg(feature = "_fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod peer;
mod pending;
mod pipes;
mod serve;
mod wire;

pub use peer::Peer;
pub use serve::serve;
