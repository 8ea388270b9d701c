//! A reference model of one key, and random commands that a store and the model must answer alike.

mod command;
mod key_model;
mod lockstep;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proptest::collection::vec;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

use crate::Harness;
pub use key_model::{Interval, KeyModel};

/// How much the model does, and how long it may take.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// How many sequences of commands.
    pub sequences: u32,
    /// The most commands in a sequence.
    pub max_commands: usize,
    /// The ttls to choose from, in milliseconds.
    pub ttls: Vec<u64>,
    /// The steps in time to choose from, besides those to the edges of a lock's life.
    pub advances: Vec<Duration>,
    /// How much time may pass in one sequence. Steps beyond it are left out.
    pub time_per_sequence: Duration,
}

impl ModelConfig {
    /// For stores on a manual clock, where time costs nothing.
    pub fn manual_clock() -> Self {
        Self {
            sequences: 400,
            max_commands: 60,
            ttls: vec![1, 200, 1000, 30_000],
            advances: [1, 50, 999, 1001, 5000].map(Duration::from_millis).into(),
            time_per_sequence: Duration::MAX,
        }
    }

    /// For stores on a real clock, where letting time pass is waiting.
    pub fn real_clock() -> Self {
        Self {
            sequences: 8,
            max_commands: 40,
            ttls: vec![1, 200, 60_000],
            advances: [1, 20, 250].map(Duration::from_millis).into(),
            time_per_sequence: Duration::from_millis(1500),
        }
    }
}

/// Runs random commands against the store and the model in lock step, on two keys and through both
/// handles.
///
/// # Errors
///
/// Where the two disagree, and the shortest sequence of commands found that shows it.
pub async fn agree(harness: Arc<dyn Harness>, config: &ModelConfig) -> Result<(), String> {
    let config = config.clone();
    let runtime = tokio::runtime::Handle::current();
    let search = tokio::task::spawn_blocking(move || {
        let mut runner = TestRunner::new(Config {
            cases: config.sequences,
            failure_persistence: None,
            // Sequences that wait for a real clock are slow to try again; a longer counterexample
            // is good enough.
            max_shrink_time: 20_000,
            ..Config::default()
        });
        let sequence = AtomicU32::new(0);
        let commands = vec(command::any(&config), 1..=config.max_commands);
        let outcome = runner.run(&commands, |commands| {
            let sequence = sequence.fetch_add(1, Ordering::Relaxed);
            let run = lockstep::run(&*harness, &config, sequence, &commands);
            runtime.block_on(run).map_err(TestCaseError::fail)
        });
        outcome.map_err(|error| match error {
            TestError::Abort(reason) => format!("the model gave up: {reason}"),
            TestError::Fail(reason, commands) => {
                let steps: Vec<String> = commands.iter().map(|command| format!("  {command:?}")).collect();
                format!("{reason}; the commands:\n{}", steps.join("\n"))
            }
        })
    });
    search.await.map_err(|failure| format!("the model failed: {failure}"))?
}
