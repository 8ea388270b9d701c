//! Runs suites as ordinary tests.

use std::any::Any;
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime;
use tokio::time::timeout;

use crate::{Case, Harness, Outcome, Suite, cases, history, model};

/// The `main` of a test with `harness = false`: one test for each suite and case, named like
/// `memory::fencing::survives_expiry`, and for each suite `model::random_commands_agree`,
/// `history::concurrent_clients` and `history::concurrent_guards`. A case about something that the
/// store of the suite cannot do is named like `[not applicable]
/// pooler::wakeups::steal_tells_the_victim`, and checks only that the store says so itself.
/// Understands the arguments of `cargo test` and `cargo nextest`, and
/// [two variables](model::ModelConfig::as_environment_says) about the model.
pub fn main(suites: &[Suite]) -> ExitCode {
    let arguments = Arguments::from_args();
    let trials: Vec<Trial> = suites.iter().flat_map(trials).collect();
    let (all, not_applicable) = (trials.len(), trials.iter().filter(|trial| trial.kind() == NOT_APPLICABLE).count());
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Those who want one test by its name do not count.
    if !arguments.list && !arguments.exact {
        eprintln!("{not_applicable} of all {all} tests are not applicable");
    }
    conclusion.exit_code()
}

/// What a test is called whose promise the store does not make.
const NOT_APPLICABLE: &str = "not applicable";

fn trials(suite: &Suite) -> Vec<Trial> {
    let name = |group: &str, name: &str| format!("{}::{group}::{name}", suite.name);
    let of_suite = |group: &str, test: &str, run: fn(&Suite) -> Result<(), String>| {
        let suite = suite.clone();
        Trial::test(name(group, test), move || run(&suite).map_err(Failed::from))
    };
    let of_case = |case: &'static Case| {
        let suite = suite.clone();
        let not_applicable = case.not_applicable(&suite.capabilities).is_some();
        Trial::test(name(case.group(), case.name()), move || run_case(&suite, case).map(drop).map_err(Failed::from))
            .with_kind(if not_applicable { NOT_APPLICABLE } else { "" })
    };
    let mut trials: Vec<Trial> = cases().iter().map(of_case).collect();
    trials.push(of_suite("model", "random_commands_agree", run_model));
    trials.push(of_suite("history", "concurrent_clients", run_history));
    if suite.guards {
        trials.push(of_suite("history", "concurrent_guards", run_guards));
    }
    trials
}

/// Runs one case on a fresh harness and a runtime of its own.
///
/// # Errors
///
/// What the case found wrong, that it did not end in time, or that the store can do more or less
/// than the suite says.
pub fn run_case(suite: &Suite, case: &Case) -> Result<Outcome, String> {
    let case = *case;
    let outcome = run(suite, move |harness| async move { Ok(case.run(harness).await) })?;
    match (outcome, case.not_applicable(&suite.capabilities)) {
        (Outcome::NotApplicable(reason), None) => Err(format!("{reason}, but the suite does not say so")),
        (Outcome::Passed, Some(reason)) => Err(format!("the suite says that {reason}, but the store does not")),
        _ => Ok(outcome),
    }
}

/// Runs the reference model on a fresh harness, with [as many
/// sequences](model::ModelConfig::as_environment_says) as the environment says.
///
/// # Errors
///
/// The shortest sequence of commands found on which the store and the model disagree.
pub fn run_model(suite: &Suite) -> Result<(), String> {
    let config = suite.model.clone().as_environment_says();
    // Somebody who wants more of it than the suite says waits for longer.
    let more = if config.sequences > suite.model.sequences { config.duration() } else { Duration::ZERO };
    let suite = suite.clone().timeout(suite.timeout + more);
    run(&suite, move |harness| async move { model::agree(harness, &config).await })
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

fn run<T, F>(suite: &Suite, test: impl FnOnce(Arc<dyn Harness>) -> F) -> Result<T, String>
where
    T: Send + 'static,
    F: Future<Output = Result<T, String>> + Send + 'static,
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
