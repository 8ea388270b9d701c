//! Processes that stand in line for one lock, on every store where they do by default: they are
//! served in order, killed and stopped ones hold up the others for no longer than their lease, and
//! a hand-over costs the same however many wait.

#![allow(clippy::unwrap_used)]

mod log;
mod processes;
mod requests;
mod worker;

use std::process::ExitCode;

use test_support::{Ability, StoreUnderTest, stores, suite};

type Store = &'static StoreUnderTest;

fn main() -> ExitCode {
    let fair = stores().filter(|store| store.can(Ability::FairByDefault));
    suite::run(suite::over(fair, &[processes::CASES, requests::CASES]))
}
