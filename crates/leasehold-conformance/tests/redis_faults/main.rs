//! The store in Redis while servers crash, connections break and memory runs out. Whatever happens, what the clients saw
//! is recorded and checked: no two held a key at once, and no fence was repeated or went back.

#![allow(clippy::unwrap_used)]

mod commands;
mod contest;
mod credentials;
mod cuts;
mod failover;
mod heartbeats;
mod memory;
mod orphans;
mod pause;
mod processes;
mod recorder;
mod replies;
mod restart;
mod support;
mod turns;
