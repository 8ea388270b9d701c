//! A stand-in for Firestore: a gRPC server that keeps the promises of Firestore's documentation for
//! the calls that locks need, and that tests can look into and break.
//!
//! - Reads, queries, transactions and commits with preconditions: `rpc`, over `engine`.
//! - Transactions that are serialisable, by waiting or by failing: `transaction`.
//! - `Listen`, with tokens to resume from: `listen`.
//! - Service accounts and their tokens: `access`, `token_endpoint`.
//! - What tests ask of it, over a socket in its directory: `control`.
//!
//! What it does not know it refuses with `UNIMPLEMENTED`.
//!
//! The program `firestore-double` runs one in its current directory:
//!
//! ```text
//! firestore-double --port N [--tls CERTIFICATE KEY] [--token-port N] [--journal] [--optimistic]
//! ```

mod access;
mod arguments;
mod clock;
mod connections;
mod control;
mod counts;
mod data;
mod databases;
mod double;
mod engine;
mod failure;
mod faults;
mod listen;
mod name;
mod rpc;
mod server;
mod state;
mod token_endpoint;
mod transaction;

pub use double::{Double, Options};
