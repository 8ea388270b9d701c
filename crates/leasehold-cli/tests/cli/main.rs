//! The command as its users meet it: the real program, on a SQLite file, in processes of its own.

#![allow(clippy::unwrap_used)]

mod counter;
mod environment;
mod exit_codes;
mod loss;
mod reference;
mod scripts;
mod signals;
mod store;
mod store_trouble;
mod support;
mod terminal;
mod views;
mod waiting;
