//! The store in Redis while servers crash, connections break and memory runs out. Whatever happens, what the clients saw
//! is recorded and checked: no two held a key at once, and no fence was repeated or went back.

#![allow(clippy::unwrap_used)]

mod commands;
#[path = "../faults/contest.rs"]
mod contest;
mod credentials;
#[path = "../faults/cuts.rs"]
mod cuts;
mod failover;
mod heartbeats;
mod memory;
mod orphans;
mod pause;
mod processes;
#[path = "../faults/recorder.rs"]
mod recorder;
mod replies;
mod restart;
mod store;
#[path = "../faults/support.rs"]
mod support;
#[path = "../faults/turns.rs"]
mod turns;
