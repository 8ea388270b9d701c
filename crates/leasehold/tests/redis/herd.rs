//! A release favours nobody of those who wait for it.

use leasehold::backend::{Backend, Event, Topic};
use test_servers::Redis as Server;
use test_support::{granted, request, soon};
use tokio::sync::mpsc;

use crate::support::connect;

/// As many as all try within some milliseconds.
const WAITERS: usize = 16;

/// Enough that chance stays far from any pattern.
const ROUNDS: usize = 10;

/// How much the order of wake-ups is that in which the waiters came: 1 the same, -1 the reverse.
fn rank_correlation(order: &[usize]) -> f64 {
    let count = order.len() as f64;
    let squares: f64 = order.iter().enumerate().map(|(place, came)| (place as f64 - *came as f64).powi(2)).sum();
    1.0 - 6.0 * squares / (count * (count * count - 1.0))
}

#[tokio::test]
async fn the_order_in_which_waiters_came_says_nothing_of_who_is_woken_first() {
    let server = Server::start();
    let store = connect(&server).await;
    let held = request("order:42");
    let (woken, mut order) = mpsc::unbounded_channel();
    for waiter in 0..WAITERS {
        // A handle of its own has a connection of its own, as a process has.
        let process = connect(&server).await;
        let mut subscription = process.subscribe(Topic::Freed(&held.key)).await.unwrap();
        let woken = woken.clone();
        tokio::spawn(async move {
            while subscription.next().await == Some(Event::Freed) {
                woken.send(waiter).unwrap();
            }
        });
    }
    for by_force in [false, true] {
        let mut correlations = Vec::new();
        for _ in 0..ROUNDS {
            granted(&store, &held).await;
            match by_force {
                true => drop(store.force_release(&held.key, None).await.unwrap()),
                false => drop(store.release(&held.lock_id).await.unwrap()),
            }
            let mut told = Vec::new();
            while told.len() < WAITERS {
                told.push(soon("a wake-up", order.recv()).await.unwrap());
            }
            correlations.push(rank_correlation(&told));
        }
        let mean = correlations.iter().sum::<f64>() / ROUNDS as f64;
        assert!(mean.abs() < 0.5, "by force: {by_force}, {correlations:?}");
    }
}
