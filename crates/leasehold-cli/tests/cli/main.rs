//! The command as its users meet it: the real program, in processes of its own, on every store.

#![allow(clippy::unwrap_used)]

mod beating;
mod bench;
mod choice;
mod counter;
mod environment;
mod exit_codes;
mod firestore;
mod hostile;
mod job_control;
mod kinds;
mod lines;
mod loss;
mod namespaces;
mod nested;
mod postgres;
mod redis;
mod reference;
mod scripts;
mod servers;
mod service_signals;
mod several;
mod signals;
mod sql;
mod sqlite;
mod support;
mod terminal;
mod views;
mod waiting;
mod words;

use std::process::ExitCode;

use test_support::{Ability, StoreUnderTest, stores, suite};

type Store = &'static StoreUnderTest;

fn main() -> ExitCode {
    let all = [
        bench::CASES,
        counter::CASES,
        environment::CASES,
        exit_codes::CASES,
        loss::CASES,
        scripts::CASES,
        signals::CASES,
        terminal::CASES,
        views::CASES,
        waiting::CASES,
    ];
    let mut trials = suite::over(stores(), &all);
    trials.extend(suite::over(stores().filter(|store| store.is_server()), &[bench::SERVERS, servers::CASES]));
    let with_lines = stores().filter(|store| store.can(Ability::FairByDefault));
    trials.extend(suite::over(with_lines, &[kinds::CASES, lines::CASES, several::CASES]));
    let with_password = stores().filter(|store| store.can(Ability::PasswordInUrl));
    trials.extend(suite::over(with_password, &[servers::WITH_PASSWORD]));
    let only = |name: &'static str| stores().filter(move |store| store.name == name);
    // Arguments, processes, the reference and what is shown are about no store; the default one will do.
    let of_no_store = [
        bench::OF_NO_STORE,
        choice::CASES,
        exit_codes::ARGUMENTS,
        hostile::CASES,
        job_control::CASES,
        namespaces::CASES,
        nested::CASES,
        reference::CASES,
        service_signals::CASES,
        words::CASES,
    ];
    trials.extend(suite::over(only("sqlite"), &of_no_store));
    trials.extend(suite::over(only("sqlite"), &[sqlite::CASES]));
    trials.extend(suite::over(only("redis"), &[redis::CASES]));
    trials.extend(suite::over(only("postgres"), &[postgres::CASES, sql::CASES]));
    trials.extend(suite::over(only("firestore"), &[firestore::CASES]));
    suite::run(trials)
}
