//! What a hand-over costs.

use std::time::{Duration, Instant};

use leasehold::testing::{FaultLayer, Faults};
use leasehold::{Guard, Locks, Operation};
use test_support::{Ability, Case, cases, connect, eventually, soon};
use tokio::task::JoinHandle;

use crate::Store;

pub(crate) const CASES: &[Case] = cases![a_hand_over_takes_the_same_requests_however_many_wait];

/// Longer than the test, so that nobody asks to keep its place.
const LEASE: Duration = Duration::from_secs(3600);

/// How often a waiter looks by itself, in case its call was lost.
const BACKSTOP: Duration = Duration::from_secs(5);

struct Waiting {
    faults: Faults,
    served: JoinHandle<Guard>,
}

/// Somebody with a handle and connections of its own, who sleeps in line as number `place`.
async fn wait(url: &str, place: usize) -> Waiting {
    let (store, faults) = FaultLayer::new(connect(url).await);
    let locks = Locks::new(store);
    let served = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k").fair_lease(LEASE).wait_forever().acquire().await.unwrap() }
    });
    eventually("it stands in line", async || locks.waiters("k").await.unwrap().len() == place + 1).await;
    // To its turn, and to what is taken. It asks once more then.
    eventually("it listens", async || faults.answers(Operation::Subscribe) == 2).await;
    let asked = faults.answers(Operation::Acquire);
    eventually("it sleeps", async || faults.answers(Operation::Acquire) > asked.min(1)).await;
    Waiting { faults, served }
}

async fn a_hand_over_takes_the_same_requests_however_many_wait(store: Store) {
    let many = if store.can(Ability::BusyLocks) { 30 } else { 6 };
    let running = store.start();
    let url = running.url();
    let mut held = Locks::new(connect(&url).await).lock("k").ttl(LEASE).acquire().await.unwrap();
    let mut line = Vec::new();
    for place in 0..many {
        line.push(wait(&url, place).await);
    }
    let all: Vec<_> = line.iter().map(|waiting| waiting.faults.clone()).collect();
    let asked = || all.iter().map(|faults| faults.calls(Operation::Acquire)).sum::<usize>();
    let (before, started) = (asked(), Instant::now());
    for waiting in line {
        held.release().await.unwrap();
        held = soon("the first in line", waiting.served).await.unwrap();
    }
    let looks = many * (usize::try_from(started.elapsed().as_secs() / BACKSTOP.as_secs()).unwrap() + 1);
    let asked = asked() - before;
    // If each release woke all, they would have asked half the square of their number of times.
    assert!(asked <= many + looks, "{asked} requests for {many} hand-overs, with {looks} looks");
    assert!(many + looks < many * many / 2 || !store.can(Ability::BusyLocks), "too slow to tell");
}
