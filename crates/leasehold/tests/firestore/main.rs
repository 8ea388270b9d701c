//! The store in a Firestore database, one file for each kind of promise. Every test has a server of
//! its own.

#![cfg(feature = "firestore")]
#![allow(clippy::unwrap_used)]

mod clocks;
mod conflicts;
mod corners;
mod cost;
mod credentials;
mod doctor;
mod errors;
mod kinds;
mod layout;
mod lines;
mod many;
mod several;
mod standstill;
mod wake_ups;
