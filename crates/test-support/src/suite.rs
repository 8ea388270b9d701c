//! Cases that hold for every store, each run on each store as a test of its own.
//!
//! A file of a suite lists its cases in a constant, and `main` of the test runs all of them:
//!
//! ```no_run
//! use test_support::{Case, StoreUnderTest, cases, suite};
//!
//! const CASES: &[Case] = cases![a_free_lock_is_granted];
//!
//! async fn a_free_lock_is_granted(store: &'static StoreUnderTest) {
//!     let server = store.start();
//!     let handle = test_support::connect(&server.url()).await;
//!     test_support::granted(&handle, &test_support::request("k")).await;
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     suite::run(suite::over(test_support::stores(), &[CASES]))
//! }
//! ```

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use crate::{STORES, StoreUnderTest};

/// A promise that holds on every store it is run on.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its file and its function.
    pub name: &'static str,
    /// Checks it on one store.
    pub run: fn(&'static StoreUnderTest),
}

/// A list of [`Case`]s from asynchronous functions of the same file that take a `&'static
/// StoreUnderTest`.
#[macro_export]
macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        &[$($crate::Case {
            name: concat!(module_path!(), "::", stringify!($case)),
            run: |store| $crate::suite::block_on($case(store)),
        }),+]
    };
}

/// As [`cases!`], from asynchronous functions that take nothing, because they are about one store
/// alone.
#[macro_export]
macro_rules! cases_of_one_store {
    ($($case:ident),+ $(,)?) => {
        &[$($crate::Case {
            name: concat!(module_path!(), "::", stringify!($case)),
            run: |_| $crate::suite::block_on($case()),
        }),+]
    };
}

/// As [`cases!`], from functions that block.
#[macro_export]
macro_rules! blocking_cases {
    ($($case:ident),+ $(,)?) => {
        &[$($crate::Case { name: concat!(module_path!(), "::", stringify!($case)), run: $case }),+]
    };
}

/// The tests of all cases on all these stores: `redis::waiting::a_case`.
pub fn over(stores: impl IntoIterator<Item = &'static StoreUnderTest>, files: &[&[Case]]) -> Vec<Trial> {
    let cases: Vec<Case> = files.concat();
    let on = |store: &'static StoreUnderTest| cases.iter().map(move |case| trial(store, *case)).collect::<Vec<_>>();
    stores.into_iter().flat_map(on).collect()
}

/// The store of that name.
pub fn only(name: &str) -> impl Iterator<Item = &'static StoreUnderTest> {
    STORES.iter().filter(move |store| store.name == name)
}

/// Runs them as any test program does.
pub fn run(trials: Vec<Trial>) -> ExitCode {
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Runs a test to its end, on two threads, so that a test that blocks does not keep the rest from
/// going on.
pub fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test)
}

fn trial(store: &'static StoreUnderTest, case: Case) -> Trial {
    // The name of the test program is said by whoever runs it.
    let name = case.name.split_once("::").map_or(case.name, |(_, name)| name);
    Trial::test(format!("{}::{name}", store.name), move || {
        (case.run)(store);
        Ok(())
    })
}
