//! The store in PostgreSQL while servers crash, connections break and others are in the way. Whatever happens, what the clients
//! saw is recorded and checked: no two held a key at once, and no fence was repeated or went back.

#![allow(clippy::unwrap_used)]

#[path = "../faults/contest.rs"]
mod contest;
mod crashes;
#[path = "../faults/cuts.rs"]
mod cuts;
mod isolation;
mod obstacles;
mod pool;
#[path = "../faults/recorder.rs"]
mod recorder;
mod store;
#[path = "../faults/support.rs"]
mod support;
#[path = "../faults/turns.rs"]
mod turns;
