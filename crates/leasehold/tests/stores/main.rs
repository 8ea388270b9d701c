//! What every store in a server promises beyond the conformance suite, on each of them: one file
//! for each kind of promise. Every case has servers of its own. What only one store can promise is
//! in the tests of that store.

#![allow(clippy::unwrap_used)]

mod connections;
mod cost;
mod doctor;
mod fences;
mod foreign;
mod foreign_kinds;
mod lines;
mod many;
mod permissions;
mod records;
mod tls;
mod together;
mod waiting;

use std::process::ExitCode;

use test_support::{Ability, StoreUnderTest, stores, suite};

type Store = &'static StoreUnderTest;

fn main() -> ExitCode {
    let cases = [
        connections::CASES,
        doctor::CASES,
        fences::CASES,
        foreign::CASES,
        many::CASES,
        permissions::CASES,
        records::CASES,
        tls::CASES,
        together::CASES,
        waiting::CASES,
    ];
    let able = |ability| stores().filter(move |store| store.can(ability));
    let mut trials = suite::over(stores().filter(|store| store.is_server()), &cases);
    trials.extend(suite::over(
        stores().filter(|store| store.is_server() && store.lines),
        &[foreign_kinds::CASES, lines::CASES],
    ));
    trials.extend(suite::over(able(Ability::OneRequest), &[cost::CASES]));
    trials.extend(suite::over(able(Ability::UnixSocket), &[connections::BY_SOCKET]));
    trials.extend(suite::over(able(Ability::WokenByAnybody), &[waiting::BY_STRANGERS]));
    suite::run(trials)
}
