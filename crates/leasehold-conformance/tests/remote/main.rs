//! A store in another process answers like the store itself, and its end is noticed.

#![allow(clippy::unwrap_used)]

mod operations;
mod process;
mod support;

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;

use leasehold::memory::Memory;
use leasehold::testing::{Fault, FaultLayer};
use leasehold::{ErrorCode, Operation};
use leasehold_conformance::remote;
use libtest_mimic::{Arguments, Trial};
use test_support::DEADLINE;
use tokio::time::timeout;

use support::SERVE;

fn main() -> ExitCode {
    if let Ok(store) = std::env::var(SERVE) {
        return serve(&store);
    }
    let arguments = Arguments::from_args();
    let trials = vec![
        trial("operations::locks_make_the_round_trip", operations::locks_make_the_round_trip),
        trial("operations::reads_make_the_round_trip", operations::reads_make_the_round_trip),
        trial(
            "operations::lines_and_several_locks_make_the_round_trip",
            operations::lines_and_several_locks_make_the_round_trip,
        ),
        trial(
            "operations::events_arrive_until_the_subscription_is_dropped",
            operations::events_arrive_until_the_subscription_is_dropped,
        ),
        trial("operations::errors_keep_code_and_outcome", operations::errors_keep_code_and_outcome),
        trial("process::a_call_that_hangs_holds_up_no_other", process::a_call_that_hangs_holds_up_no_other),
        trial("process::a_killed_process_fails_all_calls", process::a_killed_process_fails_all_calls),
        trial("process::the_process_ends_with_its_last_handle", process::the_process_ends_with_its_last_handle),
        trial("process::the_process_ends_with_its_input", process::the_process_ends_with_its_input),
        trial("process::a_process_that_does_not_serve_is_an_error", process::a_process_that_does_not_serve_is_an_error),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial<F: Future<Output = ()> + 'static>(name: &str, test: fn() -> F) -> Trial {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(runtime.block_on(async { timeout(DEADLINE * 2, test()).await })?)
    };
    Trial::test(name, run)
}

/// Serves the store called `store` to whoever started this program.
#[tokio::main(flavor = "current_thread")]
async fn serve(store: &str) -> ExitCode {
    let (faulty, faults) = FaultLayer::new(Memory::new());
    if store == "faulty" {
        faults.always(Operation::Extend, Fault::HangAfter);
        faults.always(Operation::Release, Fault::FailAfter(ErrorCode::NetworkTimeout));
        faults.always(Operation::List, Fault::FailBefore(ErrorCode::AuthFailed));
    }
    remote::serve(Arc::new(faulty)).await.expect("the peer is understood");
    ExitCode::SUCCESS
}
