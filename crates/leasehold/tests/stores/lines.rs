//! Those who died in line cost one lease, however many they were.

use std::time::Duration;

use leasehold::backend::{Acquire, Backend, Line};
use test_support::{Ability, Case, cases, connect, granted, request, soon, ttl};

use crate::Store;

pub(crate) const CASES: &[Case] = cases![a_thousand_who_died_in_line_cost_one_lease];

/// As long as it takes all of them to come.
const LEASE: Duration = Duration::from_secs(8);

/// How many ask at the same time.
const AT_ONCE: usize = 20;

async fn a_thousand_who_died_in_line_cost_one_lease(store: Store) {
    let many = if store.can(Ability::BusyLocks) { 1000 } else { 20 };
    let server = store.server();
    let store = connect(&server.url()).await;
    let joining = || request("order:42").with_line(Line::Join { lease: ttl(LEASE.as_millis().try_into().unwrap()) });
    let mine = request("order:42");
    granted(&*store, &mine).await;
    let mut tasks = Vec::new();
    for _ in 0..AT_ONCE {
        let (store, dead) = (store.clone(), (0..many / AT_ONCE).map(|_| joining()).collect::<Vec<_>>());
        tasks.push(tokio::spawn(async move {
            for dead in dead {
                assert!(matches!(store.acquire(&dead).await.unwrap(), Acquire::Held(_)));
            }
        }));
    }
    for task in tasks {
        soon("their places", task).await.unwrap();
    }
    let alive = joining();
    assert!(matches!(store.acquire(&alive).await.unwrap(), Acquire::Held(_)));
    let line = store.inspect(&mine.key).await.unwrap().waiters;
    assert!(line.len() > many / 2, "only {} were in line together", line.len());
    store.release(&mine.lock_id).await.unwrap();
    // One after the other they would take hours, or half an hour if each were called.
    let served = async {
        while let Acquire::Held(_) = store.acquire(&alive).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    soon("the lease of all of them ends", served).await;
}
