//! What the benchmarks share: timing in interleaved rounds, and the hand-over between two
//! processes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::Locks;
use tokio::runtime::{Builder, Runtime};

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

/// Runs the contestants in turns, `rounds` times `operations` each, so that noise on the machine
/// hits all alike, and returns the median time per operation of each, in nanoseconds.
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

/// Set to the URL of a store, it makes a benchmark the partner in a hand-over.
const PARTNER: &str = "LEASEHOLD_BENCH_PARTNER";

/// Two processes take turns with one lock in the store at `url`. The partner, this program with
/// `LEASEHOLD_BENCH_PARTNER` set, writes when it got it; the time from our release to that is the
/// hand-over, the pipe included.
///
/// # Panics
///
/// When anything goes wrong: it is a measurement.
#[allow(clippy::unwrap_used)]
pub fn measure_hand_over(runtime: &Runtime, url: &str) -> String {
    const TURNS: usize = 300;
    let locks = runtime.block_on(Locks::connect(url)).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let piped = command.env(PARTNER, url).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut tell = child.stdin.take().unwrap();
    let mut heard = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut times = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        let guard = runtime.block_on(locks.lock("baton").wait_forever().acquire()).unwrap();
        writeln!(tell, "wait").unwrap();
        assert_eq!(heard.next().unwrap().unwrap(), "waiting");
        // Long enough that it sleeps.
        std::thread::sleep(Duration::from_millis(3));
        let released = Instant::now();
        runtime.block_on(guard.release()).unwrap();
        assert_eq!(heard.next().unwrap().unwrap(), "got it");
        times.push(released.elapsed());
    }
    drop(tell);
    child.wait().unwrap();
    times.sort_unstable();
    let at = |percent: usize| times[times.len() * percent / 100];
    format!("{TURNS} turns, p50 {:?}, p90 {:?}, p99 {:?}", at(50), at(90), at(99))
}

/// If this process is the partner in a hand-over, it takes its turns, and this is true: there is
/// nothing else to do. For each line on its standard input it waits for the lock, says when it
/// sleeps and when it got it, and gives it back.
///
/// # Panics
///
/// When anything goes wrong: it is part of a measurement.
#[allow(clippy::unwrap_used)]
pub fn is_partner() -> bool {
    let Ok(url) = std::env::var(PARTNER) else { return false };
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let locks = runtime.block_on(Locks::connect(&url)).unwrap();
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
    true
}
