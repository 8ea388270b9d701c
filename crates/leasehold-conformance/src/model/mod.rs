//! A reference model of one key, and random commands that a store and the model must answer alike.

mod command;
mod interval;
mod key_model;
mod lockstep;
mod reads;
#[cfg(test)]
mod tests;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proptest::collection::vec;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRunner};

use crate::Harness;
pub use interval::Interval;
pub use key_model::KeyModel;

/// How much the model does, and how long it may take.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// How many sequences of commands.
    pub sequences: u32,
    /// How many sequences at once. More than one where letting time pass is waiting.
    pub at_once: u32,
    /// The most commands in a sequence.
    pub max_commands: usize,
    /// The ttls to choose from, in milliseconds.
    pub ttls: Vec<u64>,
    /// The leases of places in line to choose from, in milliseconds.
    pub leases: Vec<u64>,
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
            at_once: 1,
            max_commands: 60,
            ttls: vec![1, 200, 1000, 30_000],
            leases: vec![1, 500, 3000, 30_000],
            advances: [1, 50, 999, 1001, 5000].map(Duration::from_millis).into(),
            time_per_sequence: Duration::MAX,
        }
    }

    /// For stores on a real clock, where letting time pass is waiting.
    pub fn real_clock() -> Self {
        Self {
            sequences: 24,
            at_once: 8,
            max_commands: 40,
            ttls: vec![1, 200, 60_000],
            leases: vec![1, 200, 60_000],
            advances: [1, 20, 250].map(Duration::from_millis).into(),
            // Longer than somebody has who was called.
            time_per_sequence: Duration::from_millis(2500),
        }
    }
}

impl ModelConfig {
    /// The same, with as many sequences, and as many of them at once, as the environment says in
    /// `MODEL_SEQUENCES` and `MODEL_AT_ONCE`, for those who want to know it better.
    #[must_use]
    pub fn as_environment_says(mut self) -> Self {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
        self.sequences = number("MODEL_SEQUENCES").unwrap_or(self.sequences);
        self.at_once = number("MODEL_AT_ONCE").unwrap_or(self.at_once);
        self
    }

    /// How long it may take at the most, apart from the time that the store needs.
    pub(crate) fn duration(&self) -> Duration {
        // Where time costs nothing, commands do.
        let each = self.time_per_sequence.min(Duration::from_secs(10));
        each.saturating_mul(self.sequences.div_ceil(self.at_once.max(1)))
    }
}

/// Runs random commands against the store and the model in lock step, on two keys and through both
/// handles.
///
/// # Errors
///
/// Where the two disagree, and the shortest sequence of commands found that shows it.
pub async fn agree(harness: Arc<dyn Harness>, config: &ModelConfig) -> Result<(), String> {
    let sequence = Arc::new(AtomicU32::new(0));
    let searches: Vec<_> = (0..config.at_once.max(1))
        .map(|_| {
            let (harness, config, sequence) = (harness.clone(), config.clone(), sequence.clone());
            let runtime = tokio::runtime::Handle::current();
            tokio::task::spawn_blocking(move || search(&*harness, &config, &sequence, &runtime))
        })
        .collect();
    for search in searches {
        search.await.map_err(|failure| format!("the model failed: {failure}"))??;
    }
    Ok(())
}

/// Does its part of the sequences, which have numbers of their own so that their keys differ.
fn search(
    harness: &dyn Harness,
    config: &ModelConfig,
    sequence: &AtomicU32,
    runtime: &tokio::runtime::Handle,
) -> Result<(), String> {
    let mut runner = TestRunner::new(Config {
        cases: config.sequences.div_ceil(config.at_once.max(1)),
        failure_persistence: None,
        // Sequences that wait for a real clock are slow to try again; a longer counterexample is
        // good enough.
        max_shrink_time: 20_000,
        max_shrink_iters: 10_000,
        // Several times as quick, and sequences need no better one.
        rng_algorithm: RngAlgorithm::XorShift,
        ..Config::default()
    });
    let lines = harness.backend().capabilities().lines;
    let commands = vec(command::any(config, lines), 1..=config.max_commands);
    let outcome = runner.run(&commands, |commands| {
        let sequence = sequence.fetch_add(1, Ordering::Relaxed);
        let run = lockstep::run(harness, config, sequence, &commands);
        runtime.block_on(run).map_err(TestCaseError::fail)
    });
    outcome.map_err(|error| match error {
        TestError::Abort(reason) => format!("the model gave up: {reason}"),
        TestError::Fail(reason, commands) => {
            let steps: Vec<String> = commands.iter().map(|command| format!("  {command:?}")).collect();
            format!("{reason}; the commands:\n{}", steps.join("\n"))
        }
    })
}
