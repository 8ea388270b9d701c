//! Pairs of acquire and release.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Error, Key, Locks};
use leasehold_plot::Histogram;

use super::{Bench, Live, acquire, release};

/// The longest that a task goes on without letting others have their turn. Locks in memory never
/// wait.
const TURN: Duration = Duration::from_millis(1);

/// How long the parts of pairs took.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    pub(crate) acquire: Histogram,
    pub(crate) release: Histogram,
    pub(crate) pair: Histogram,
}

/// All tasks at once, until the time is over.
pub(super) async fn measure(bench: &mut Bench, until: Instant) -> Result<Pairs, Error> {
    let tasks = usize::from(bench.plan.tasks);
    let keys = &bench.keys.keys()[..usize::from(bench.plan.keys)];
    for task in 0..tasks {
        // With enough keys each task has its own, otherwise some share one.
        let own: Vec<Key> = keys.iter().skip(task % keys.len()).step_by(tasks).cloned().collect();
        bench.tasks.spawn(run(bench.first.clone(), own, until, bench.live.clone()));
    }
    let mut all = Pairs::default();
    while let Some(ended) = bench.tasks.join_next().await {
        // A task that panics has said so.
        let Ok(pairs) = ended else { continue };
        let pairs = pairs?;
        all.acquire.merge(&pairs.acquire);
        all.release.merge(&pairs.release);
        all.pair.merge(&pairs.pair);
    }
    Ok(all)
}

async fn run(locks: Locks, keys: Vec<Key>, until: Instant, live: Arc<Live>) -> Result<Pairs, Error> {
    let mut pairs = Pairs::default();
    let mut turn = Instant::now();
    for key in keys.iter().cycle() {
        let started = Instant::now();
        if started.saturating_duration_since(turn) > TURN {
            tokio::task::yield_now().await;
            turn = Instant::now();
        }
        let started = Instant::now();
        let Some(guard) = acquire(&locks, key, until).await? else { break };
        let acquired = Instant::now();
        let Some(()) = release(guard, until).await? else { break };
        let released = Instant::now();
        pairs.acquire.record(acquired - started);
        pairs.release.record(released - acquired);
        pairs.pair.record(released - started);
        live.count();
    }
    Ok(pairs)
}
