//! The store in a PostgreSQL database, one file for each kind of promise. Every test has servers of
//! its own.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used)]

mod acquire_many;
mod advisory;
mod batches;
mod batching;
mod bloat;
mod budget;
mod clock;
mod connections;
mod contest;
mod corners;
mod cost;
mod doctor;
mod durability;
mod environment;
mod foreign;
mod garbage;
mod hosts;
mod kinds;
mod layout;
mod lines;
mod many;
mod migrate;
mod permissions;
mod pooler;
mod predecessor;
mod search_path;
mod sql_clients;
mod strangers;
mod support;
mod sweep;
mod tls;
mod together;
mod versions;
