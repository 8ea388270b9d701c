//! Stores in servers while those crash, connections break and others are in the way. Whatever
//! happens, what the clients saw is recorded and checked: no two held a key at once, and no fence
//! was repeated or went back.

#![allow(clippy::unwrap_used)]

mod answers;
mod connections;
mod contest;
mod crashes;
mod cuts;
mod in_firestore;
mod in_postgres;
mod in_redis;
mod orphans;
mod pause;
mod processes;
mod recorder;
mod support;
mod turns;

use std::process::ExitCode;

use test_support::{STORES, StoreUnderTest, suite};

type Store = &'static StoreUnderTest;

fn main() -> ExitCode {
    let all = [
        answers::CASES,
        connections::CASES,
        crashes::CASES,
        cuts::CASES,
        orphans::CASES,
        pause::CASES,
        processes::CASES,
    ];
    let redis = [
        in_redis::commands::CASES,
        in_redis::credentials::CASES,
        in_redis::failover::CASES,
        in_redis::forgetting::CASES,
        in_redis::garbage::CASES,
        in_redis::memory::CASES,
    ];
    let postgres = [
        in_postgres::isolation::CASES,
        in_postgres::obstacles::CASES,
        in_postgres::pool::CASES,
        in_postgres::restart::CASES,
    ];
    let firestore = [in_firestore::orphans::CASES, in_firestore::outcomes::CASES];
    let mut trials = suite::over(STORES.iter().filter(|store| store.is_server()), &all);
    trials.extend(suite::over(suite::only("redis"), &redis));
    trials.extend(suite::over(suite::only("postgres"), &postgres));
    trials.extend(suite::over(suite::only("firestore"), &firestore));
    suite::run(trials)
}
