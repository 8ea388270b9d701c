//! What the benchmarks share: timing in interleaved rounds, and the partner of a hand-over.

use std::time::{Duration, Instant};

use leasehold::Locks;
use tokio::runtime::Runtime;

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

/// The partner in a hand-over, in a process of its own: for each line on its standard input it waits for the lock, says when
/// it sleeps and when it got it, and gives it back.
///
/// # Panics
///
/// When anything goes wrong: it is part of a measurement.
#[allow(clippy::unwrap_used)]
pub fn take_turns(runtime: &Runtime, locks: &Locks) {
    for line in std::io::stdin().lines() {
        assert_eq!(line.unwrap(), "wait");
        let guard = runtime.block_on(async {
            let (seen, mut held) = tokio::sync::mpsc::unbounded_channel();
            let request = locks.lock("baton").wait_forever().on_contention(move |_| {
                let _ = seen.send(());
            });
            let waiter = tokio::spawn(request.acquire());
            // Seen twice: once before it has subscribed, once after.
            held.recv().await;
            held.recv().await;
            println!("waiting");
            waiter.await.unwrap().unwrap()
        });
        println!("got it");
        runtime.block_on(guard.release()).unwrap();
    }
}
