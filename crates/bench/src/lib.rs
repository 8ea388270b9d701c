//! What the benchmarks share: timing in interleaved rounds.

use std::time::{Duration, Instant};

/// Something to be timed: runs a number of operations and returns how long they took.
pub struct Contestant<'a> {
    /// What it is called in the table.
    pub name: &'a str,
    /// Runs this many operations.
    pub run: Box<dyn FnMut(u64) -> Duration + 'a>,
}

impl<'a> Contestant<'a> {
    /// A contestant that is timed from the outside.
    pub fn new(name: &'a str, mut run: impl FnMut(u64) + 'a) -> Self {
        let timed = move |operations| {
            let started = Instant::now();
            run(operations);
            started.elapsed()
        };
        Self { name, run: Box::new(timed) }
    }
}

impl std::fmt::Debug for Contestant<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contestant").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Runs the contestants in turns, `rounds` times `operations` each, so that noise on the machine hits all alike, and
/// returns the median time per operation of each, in nanoseconds.
pub fn compete(contestants: &mut [Contestant<'_>], rounds: usize, operations: u64) -> Vec<f64> {
    let mut times = vec![Vec::with_capacity(rounds); contestants.len()];
    for contestant in contestants.iter_mut() {
        (contestant.run)(operations / 10 + 1);
    }
    for _ in 0..rounds {
        for (contestant, times) in contestants.iter_mut().zip(&mut times) {
            times.push((contestant.run)(operations).as_nanos());
        }
    }
    times.into_iter().map(|times| median(times) / operations as f64).collect()
}

fn median(mut times: Vec<u128>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2] as f64
}
