//! The store in a Redis server, one file for each kind of promise. Every test has servers of its
//! own.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used)]

mod as_in_memory;
mod batching;
mod cluster;
mod cluster_moves;
mod connections;
mod corners;
mod cost;
mod doctor;
mod fences;
mod foreign;
mod garbage;
mod herd;
mod kinds;
mod layout;
mod lines;
mod listing;
mod many;
mod memory;
mod names;
mod older;
mod permissions;
mod sentinel;
mod support;
mod tls;
