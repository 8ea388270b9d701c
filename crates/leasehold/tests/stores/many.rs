//! Thousands of locks: renewed and released together, at a distance, and handed over in one
//! process.

use std::time::{Duration, Instant};

use leasehold::testing::ManualClock;
use leasehold::{Guard, LockState, Locks};
use test_servers::Distance;
use test_support::{Case, cases, connect, eventually, locks, soon};

use crate::Store;

pub(crate) const CASES: &[Case] = cases![
    many_locks_are_renewed_with_few_requests,
    many_dropped_guards_are_released_with_few_requests_and_shutdown_waits_for_all_of_them,
    locks_held_at_a_distance_stay_held,
    a_lock_that_is_handed_over_within_a_process_costs_an_acquire_and_a_release,
];

const LONG: Duration = Duration::from_secs(600);

/// Takes `count` locks, many at a time.
async fn take(locks: &Locks, count: usize, ttl: Duration) -> Vec<Guard> {
    let mut tasks = tokio::task::JoinSet::new();
    let mut guards = Vec::with_capacity(count);
    for number in 0..count {
        let locks = locks.clone();
        tasks.spawn(async move { locks.lock(format!("order:{number}")).ttl(ttl).acquire().await });
        if tasks.len() >= 64 {
            guards.extend(tasks.join_next().await.map(|guard| guard.unwrap().unwrap()));
        }
    }
    guards.extend(tasks.join_all().await.into_iter().map(Result::unwrap));
    guards
}

async fn many_locks_are_renewed_with_few_requests(store: Store) {
    let server = store.server();
    let clock = ManualClock::new();
    let locks = Locks::builder(connect(&server.url()).await).clock(&clock).build();
    let guards = take(&locks, 500, LONG).await;
    server.requests();
    clock.advance(LONG / 3);
    let renewed = |guard: &Guard| guard.state() == LockState::Held && guard.remaining() == LONG;
    eventually("all are renewed", async || guards.iter().all(renewed)).await;
    let requests = server.requests();
    println!("{requests} requests for 500 renewals");
    assert!(requests <= 500 / server.locks_in_a_request(), "{requests} requests");
    assert_eq!(locks.shutdown().await.unwrap(), 500);
}

async fn many_dropped_guards_are_released_with_few_requests_and_shutdown_waits_for_all_of_them(store: Store) {
    let server = store.server();
    let locks = locks(&server.url()).await;
    let guards = take(&locks, 1000, LONG).await;
    server.requests();
    drop(guards);
    assert_eq!(locks.shutdown().await.unwrap(), 0, "none was held any more");
    let requests = server.requests();
    println!("{requests} requests for 1000 releases");
    assert!(requests <= 1000 / server.locks_in_a_request(), "{requests} requests");
    let rest = connect(&server.url()).await.list(&"".into()).await.unwrap();
    assert_eq!(rest.records.len(), 0);
}

/// `LEASEHOLD_TEST_HOLDS=10000 LEASEHOLD_TEST_TTL=30` is what a large program does; by default it
/// is a tenth of that, in less time.
async fn locks_held_at_a_distance_stay_held(store: Store) {
    let number = |name, default| std::env::var(name).map_or(default, |value| value.parse().unwrap());
    let count = usize::try_from(number("LEASEHOLD_TEST_HOLDS", 1000)).unwrap();
    let ttl = Duration::from_secs(number("LEASEHOLD_TEST_TTL", 10));
    let server = store.server();
    let distance = Distance::start(server.server().address(), Duration::from_millis(20));
    let locks = locks(&server.url_at(distance.address(), None)).await;
    let guards = take(&locks, count, ttl).await;
    server.requests();
    let until = Instant::now() + ttl;
    let mut uncertain = 0;
    while Instant::now() < until {
        for guard in &guards {
            assert_ne!(guard.state(), LockState::Lost);
            uncertain += usize::from(guard.state() == LockState::Uncertain);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let requests = server.requests();
    println!("{count} locks: {requests} requests in a ttl of {ttl:?}, uncertain {uncertain} times");
    assert_eq!(uncertain, 0);
    assert!(requests <= 3 * count as u64 / 4, "{requests} requests");
    assert_eq!(locks.shutdown().await.unwrap(), count);
}

async fn a_lock_that_is_handed_over_within_a_process_costs_an_acquire_and_a_release(store: Store) {
    const TASKS: u64 = 50;
    let server = store.server();
    let locks = locks(&server.url()).await;
    let first = locks.lock("order:42").ttl(LONG).acquire().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let locks = locks.clone();
        tasks.spawn(async move {
            let guard = locks.lock("order:42").ttl(LONG).wait_forever().acquire().await.unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
            guard.release().await.unwrap();
        });
    }
    tokio::task::yield_now().await;
    server.requests();
    first.release().await.unwrap();
    soon("everybody's turn", tasks.join_all()).await;
    let requests = server.requests();
    println!("{requests} requests for {TASKS} hand-overs");
    // And a few that only the first of them needs, such as scripts that the server does not know yet.
    assert!(requests <= server.requests_of_a_hold() * TASKS + 10, "{requests} requests");
    assert!(server.are_awaited(&[]), "nobody listened for what happens here");
}
