//! Runs suites as ordinary tests.

use std::any::Any;
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime;
use tokio::time::timeout;

use crate::{Case, Harness, Suite, cases, history, model};

/// The `main` of a test with `harness = false`: one test for each suite and case, named like
/// `memory::fencing::survives_expiry`, and for each suite `model::random_commands_agree`,
/// `history::concurrent_clients` and `history::concurrent_guards`. Understands the arguments of
/// `cargo test` and `cargo nextest`.
pub fn main(suites: &[Suite]) -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = suites.iter().flat_map(trials).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trials(suite: &Suite) -> Vec<Trial> {
    let trial = |name: String, run: fn(&Suite, Option<&Case>) -> Result<(), String>, case: Option<&'static Case>| {
        let suite = suite.clone();
        Trial::test(name, move || run(&suite, case).map_err(Failed::from))
    };
    let mut trials: Vec<Trial> = cases()
        .iter()
        .map(|case| {
            let name = format!("{}::{}::{}", suite.name, case.group(), case.name());
            trial(name, |suite, case| case.map_or(Ok(()), |case| run_case(suite, case)), Some(case))
        })
        .collect();
    trials.push(trial(format!("{}::model::random_commands_agree", suite.name), |suite, _| run_model(suite), None));
    trials.push(trial(format!("{}::history::concurrent_clients", suite.name), |suite, _| run_history(suite), None));
    if suite.guards {
        trials.push(trial(format!("{}::history::concurrent_guards", suite.name), |suite, _| run_guards(suite), None));
    }
    trials
}

/// Runs one case on a fresh harness and a runtime of its own.
///
/// # Errors
///
/// What the case found wrong, or that it did not end in time.
pub fn run_case(suite: &Suite, case: &Case) -> Result<(), String> {
    let case = *case;
    run(suite, move |harness| async move {
        case.run(harness).await;
        Ok(())
    })
}

/// Runs the reference model on a fresh harness.
///
/// # Errors
///
/// The shortest sequence of commands found on which the store and the model disagree.
pub fn run_model(suite: &Suite) -> Result<(), String> {
    let config = suite.model.clone();
    run(suite, move |harness| async move { model::agree(harness, &config).await })
}

/// Runs the concurrent clients on a fresh harness and checks their history.
///
/// # Errors
///
/// The violations found.
pub fn run_history(suite: &Suite) -> Result<(), String> {
    let options = suite.history.clone();
    run(suite, move |harness| async move { history::concurrent(harness, &options).await.map(drop) })
}

/// Runs the concurrent guards on a fresh harness and checks their history.
///
/// # Errors
///
/// The violations found.
pub fn run_guards(suite: &Suite) -> Result<(), String> {
    run(suite, |harness| async move { history::concurrent_guards(harness).await.map(drop) })
}

fn run<F>(suite: &Suite, test: impl FnOnce(Arc<dyn Harness>) -> F) -> Result<(), String>
where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start a runtime: {error}"))?;
    let outcome = runtime.block_on(async {
        let harness = timeout(suite.timeout, suite.harness())
            .await
            .unwrap_or_else(|_| Err(format!("no harness within {:?}", suite.timeout)))?;
        // A task, so that a panic is an answer here and not the end of the test program.
        let mut task = tokio::spawn(test(harness));
        match timeout(suite.timeout, &mut task).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(failure)) => {
                Err(failure.try_into_panic().map_or_else(|_| "cancelled".to_owned(), |panic| message(&*panic)))
            }
            Err(_) => {
                task.abort();
                Err(format!("not done within {:?}", suite.timeout))
            }
        }
    });
    // Never waits: a test that hangs on a blocking thread has failed already.
    runtime.shutdown_background();
    outcome
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked").to_owned()
}
