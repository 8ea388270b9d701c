//! Whoever waits costs nothing, and hears at once.

use std::time::{Duration, Instant};

use leasehold::backend::{Backend, Event, Release, Topic};
use leasehold::{Guard, Locks, Loss, Steal};
use test_support::{Case, cases, connect, eventually, granted, key, locks, request, soon};

use crate::Store;

pub(crate) const CASES: &[Case] = cases![
    two_processes_hand_a_lock_over_many_times_without_polling,
    waiting_sends_next_to_nothing,
    a_handle_with_a_hundred_waiters_has_three_connections_at_most_and_listens_on_one,
    a_handle_that_is_gone_leaves_no_connection,
    a_lost_subscription_is_made_again_and_says_that_it_may_have_missed_something,
    a_waiter_whose_connection_is_lost_while_the_lock_is_freed_gets_it_all_the_same,
    only_those_who_wait_for_a_key_hear_of_its_release,
    a_victim_of_a_steal_is_told_at_once,
    a_victim_of_a_forced_release_is_told_at_once,
];

pub(crate) const BY_STRANGERS: &[Case] = cases![a_stranger_who_wakes_a_waiter_all_the_time_makes_it_look_now_and_then];

const LONG: Duration = Duration::from_secs(600);

/// Whoever waits looks by itself after five seconds.
const NEXT_LOOK: Duration = Duration::from_secs(4);

async fn two_processes_hand_a_lock_over_many_times_without_polling(store: Store) {
    let server = store.server();
    let handles = [locks(&server.url()).await, locks(&server.url()).await];
    let hand_over = async {
        let mut guard = handles[0].lock("order:42").ttl(LONG).acquire().await.unwrap();
        for round in 1..=20 {
            let next = handles[round % 2].clone();
            let waiting = tokio::spawn(async move { next.lock("order:42").ttl(LONG).wait_forever().acquire().await });
            eventually("it waits", async || server.are_awaited(&["order:42"])).await;
            let fence = guard.fence();
            guard.release().await.unwrap();
            guard = waiting.await.unwrap().unwrap();
            assert!(guard.fence() > fence);
            eventually("it stopped waiting", async || server.are_awaited(&[])).await;
        }
    };
    // A waiter that polls would come by every few seconds only.
    soon("20 hand-overs", hand_over).await;
}

async fn waiting_sends_next_to_nothing(store: Store) {
    let server = store.server();
    let (holder, waiter) = (locks(&server.url()).await, locks(&server.url()).await);
    let guard = holder.lock("order:42").ttl(LONG).acquire().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.lock("order:42").wait_forever().acquire().await });
    eventually("it waits", async || server.are_awaited(&["order:42"])).await;
    eventually("it has settled down", async || {
        server.requests();
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.requests() == 0
    })
    .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let requests = server.requests();
    println!("{requests} requests in 3 seconds of waiting");
    assert!(requests < 4, "{requests} requests");
    guard.release().await.unwrap();
    soon("the lock", waiting).await.unwrap().unwrap().release().await.unwrap();
}

async fn a_handle_with_a_hundred_waiters_has_three_connections_at_most_and_listens_on_one(store: Store) {
    let server = store.server();
    let names: Vec<_> = (0..100).map(|number| format!("order:{number}")).collect();
    let keys: Vec<&str> = names.iter().map(String::as_str).collect();
    let others = connect(&server.url()).await;
    for name in &names {
        granted(&*others, &request(name)).await;
    }
    drop(others);
    eventually("those who took the locks are gone", async || server.connections() == 0).await;
    let handle = locks(&server.frugal_url()).await;
    // Renewed all the while, on the connection for heartbeats.
    let kept = handle.lock("kept").ttl(Duration::from_secs(3)).acquire().await.unwrap();
    let spawn = |name: &String| {
        let (handle, name) = (handle.clone(), name.clone());
        tokio::spawn(async move { handle.lock(name.as_str()).wait_forever().acquire().await })
    };
    let waiting: Vec<_> = names.iter().map(spawn).collect();
    eventually("all of them wait", async || server.are_awaited(&keys)).await;
    let renewed = kept.expires_at();
    eventually("the lock is renewed", async || kept.expires_at() > renewed).await;
    eventually("only three connections are left", async || server.connections() <= 3).await;
    assert_eq!(server.listeners(), 1);

    let operator = connect(&server.url()).await;
    for name in &names {
        operator.force_release(&key(name), None).await.unwrap();
    }
    for waiter in waiting {
        soon("a lock", waiter).await.unwrap().unwrap().release().await.unwrap();
    }
    eventually("nobody waits any more", async || server.are_awaited(&[])).await;
    kept.release().await.unwrap();
}

async fn a_handle_that_is_gone_leaves_no_connection(store: Store) {
    let server = store.server();
    let handle = locks(&server.url()).await;
    let guard = handle.lock("order:42").acquire().await.unwrap();
    eventually("it listens", async || server.listeners() == 1).await;
    guard.release().await.unwrap();
    drop(handle);
    eventually("all is closed", async || server.connections() == 0).await;
}

async fn a_lost_subscription_is_made_again_and_says_that_it_may_have_missed_something(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    let held = request("order:42");
    let mut freed = store.subscribe(Topic::Freed(&held.key)).await.unwrap();
    let mut taken = store.subscribe(Topic::Taken).await.unwrap();
    for _ in 0..3 {
        assert_eq!(server.end_listeners(), 1);
        assert_eq!(soon("the gap", freed.next()).await, Some(Event::Missed));
        assert_eq!(soon("the gap", taken.next()).await, Some(Event::Missed));
        granted(&*store, &held).await;
        assert_eq!(store.release(&held.lock_id).await.unwrap(), Release::Released);
        assert_eq!(soon("the release", freed.next()).await, Some(Event::Freed));
        let fence = granted(&*store, &held).await.fence;
        store.force_release(&held.key, None).await.unwrap();
        let force = Event::Taken { key: held.key.clone(), fence, how: Loss::ForceReleased };
        assert_eq!(soon("the force", taken.next()).await, Some(force));
        assert_eq!(soon("the release by force", freed.next()).await, Some(Event::Freed));
    }
}

async fn a_waiter_whose_connection_is_lost_while_the_lock_is_freed_gets_it_all_the_same(store: Store) {
    let server = store.server();
    let (store, waiter) = (connect(&server.url()).await, locks(&server.url()).await);
    for _ in 0..3 {
        let held = request("order:42");
        granted(&*store, &held).await;
        let handle = waiter.clone();
        let waiting = tokio::spawn(async move { handle.lock("order:42").wait_forever().acquire().await });
        eventually("it waits", async || server.are_awaited(&["order:42"])).await;
        // Nobody is told of the end of the lock: only the next connection can tell that something
        // was missed.
        server.remove_lock("order:42", &held.lock_id);
        let removed = Instant::now();
        assert_ne!(server.end_listeners(), 0);
        soon("the lock", waiting).await.unwrap().unwrap().release().await.unwrap();
        assert!(removed.elapsed() < NEXT_LOOK, "it was not told, and looked by itself after {:?}", removed.elapsed());
        eventually("it stopped waiting", async || server.are_awaited(&[])).await;
    }
}

async fn only_those_who_wait_for_a_key_hear_of_its_release(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    let odd = ["order:1", "it's \\ \"odd\"\n\u{e9}", "$$ %s ; --", "E'\\''"];
    let mut waiting = Vec::new();
    for name in odd {
        waiting.push(store.subscribe(Topic::Freed(&key(name))).await.unwrap());
    }
    for (number, name) in odd.into_iter().enumerate() {
        let mine = request(name);
        granted(&*store, &mine).await;
        store.release(&mine.lock_id).await.unwrap();
        assert_eq!(soon("the release", waiting[number].next()).await, Some(Event::Freed), "{name}");
        for (other, subscription) in waiting.iter_mut().enumerate() {
            let early = tokio::time::timeout(Duration::from_millis(20), subscription.next()).await;
            assert!(early.is_err(), "{name} {other}: {early:?}");
        }
    }
}

/// A handle with a guard that is about to be told of a loss: the next renewal is minutes away, so
/// only news can be what tells it.
async fn victim(url: &str, operator: &Locks) -> (Locks, Guard) {
    let victim = locks(url).await;
    // Whether it listens shows in nothing but that it hears.
    eventually("it hears of losses", async || {
        let guard = victim.lock("probe").ttl(LONG).acquire().await.unwrap();
        operator.force_release(&key("probe")).await.unwrap();
        tokio::time::timeout(Duration::from_millis(200), guard.lost()).await.is_ok()
    })
    .await;
    let guard = victim.lock("order:42").ttl(LONG).holder("db-1/report").acquire().await.unwrap();
    (victim, guard)
}

async fn a_victim_of_a_steal_is_told_at_once(store: Store) {
    let server = store.server();
    let thief = locks(&server.url()).await;
    let (_victim, guard) = victim(&server.url(), &thief).await;
    let steal = thief.lock("order:42").holder("db-1/report").steal(Steal::NEVER.with_same_holder());
    let stolen = steal.acquire().await.unwrap();
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Stolen);
    assert!(stolen.fence() > guard.fence());
    assert!(guard.release().await.is_err());
    stolen.release().await.unwrap();
}

async fn a_victim_of_a_forced_release_is_told_at_once(store: Store) {
    let server = store.server();
    let operator = locks(&server.url()).await;
    let (_victim, guard) = victim(&server.url(), &operator).await;
    assert!(!operator.force_release(&key("order:42")).await.unwrap().is_empty());
    assert_eq!(soon("the loss", guard.lost()).await, Loss::ForceReleased);
}

async fn a_stranger_who_wakes_a_waiter_all_the_time_makes_it_look_now_and_then(store: Store) {
    let server = store.server();
    let (holder, waiter) = (locks(&server.url()).await, locks(&server.url()).await);
    let guard = holder.lock("order:42").ttl(LONG).acquire().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.lock("order:42").wait_forever().acquire().await });
    eventually("it waits", async || server.are_awaited(&["order:42"])).await;
    server.requests();
    let (begun, stranger) = (Instant::now(), server.clone());
    tokio::task::spawn_blocking(move || stranger.wake("order:42", 500)).await.unwrap();
    let (requests, seconds) = (server.requests(), begun.elapsed().as_secs() + 1);
    println!("{requests} requests in {seconds} seconds of being woken in vain 500 times");
    // A burst, and then ten looks a second.
    assert!(requests < 50 + 10 * seconds, "{requests} requests in {seconds} seconds");
    guard.release().await.unwrap();
    soon("the lock", waiting).await.unwrap().unwrap().release().await.unwrap();
}
