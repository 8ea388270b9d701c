//! Whoever waits costs nothing, and hears at once.

use std::time::Duration;

use leasehold::{Backend, Event, Locks, Loss, Release, Steal, Topic};
use test_servers::Redis as Server;

use crate::other::Other;
use crate::support::{connect, eventually, granted, key, locks, request, soon};

const LONG: Duration = Duration::from_secs(600);

/// How many listen on a channel.
fn listeners(server: &Server, channel: &str) -> u64 {
    let answer = server.cli(&["PUBSUB", "NUMSUB", channel]);
    answer.lines().last().unwrap().parse().unwrap()
}

/// What clients and scripts have called since the last reset, but for what it takes to ask.
fn calls(server: &Server) -> u64 {
    let statistics = server.cli(&["INFO", "commandstats"]);
    let others = statistics.lines().filter(|line| !line.contains("config|") && !line.contains("cmdstat_info"));
    others.filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok()).sum()
}

/// The connections of others than whoever asks.
fn connections(server: &Server, kind: &str) -> usize {
    let list = server.cli(&["CLIENT", "LIST", "TYPE", kind]);
    list.lines().filter(|line| line.contains("id=") && !line.contains("cmd=client|list")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_hand_a_lock_over_many_times_without_polling() {
    let server = Server::start();
    let handles = [locks(&server.url()).await, locks(&server.url()).await];
    let hand_over = async {
        let mut guard = handles[0].lock("order:42").ttl(LONG).acquire().await.unwrap();
        for round in 1..=40 {
            let next = handles[round % 2].clone();
            let waiting = tokio::spawn(async move { next.lock("order:42").ttl(LONG).wait_forever().acquire().await });
            eventually("it waits", || listeners(&server, "syncguard:order:42:freed") == 1).await;
            let fence = guard.fence();
            guard.release().await.unwrap();
            guard = waiting.await.unwrap().unwrap();
            assert!(guard.fence() > fence);
            eventually("it stopped waiting", || listeners(&server, "syncguard:order:42:freed") == 0).await;
        }
    };
    // A waiter that polls would come by every few seconds only.
    soon("40 hand-overs", hand_over).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_sends_next_to_nothing() {
    let server = Server::start();
    let (holder, waiter) = (locks(&server.url()).await, locks(&server.url()).await);
    let guard = holder.lock("order:42").ttl(LONG).acquire().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.lock("order:42").wait_forever().acquire().await });
    eventually("it waits", || listeners(&server, "syncguard:order:42:freed") == 1).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.cli(&["CONFIG", "RESETSTAT"]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let calls = calls(&server);
    println!("{calls} calls in 3 seconds of waiting");
    assert!(calls < 10, "{calls} calls");
    guard.release().await.unwrap();
    soon("the lock", waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_waiters_share_one_connection_and_a_handle_has_three() {
    let server = Server::start();
    let handle = locks(&server.url()).await;
    let names: Vec<_> = (0..100).map(|number| format!("order:{number}")).collect();
    for name in &names {
        Other(&server).acquire(name, &leasehold::LockId::random().unwrap(), 60_000).unwrap();
    }
    // Renewed all the while, on the connection for heartbeats.
    let kept = handle.lock("kept").ttl(Duration::from_millis(600)).acquire().await.unwrap();
    let spawn = |name: &String| {
        let (handle, name) = (handle.clone(), name.clone());
        tokio::spawn(async move { handle.lock(name.as_str()).wait_forever().acquire().await })
    };
    let waiting: Vec<_> = names.iter().map(spawn).collect();
    let freed = || server.cli(&["PUBSUB", "CHANNELS", "*:freed"]).lines().count();
    eventually("all of them wait", || freed() == 100).await;
    let renewed = kept.expires_at();
    eventually("the lock is renewed", || kept.expires_at() > renewed).await;
    eventually("questions asked before are forgotten", || connections(&server, "normal") <= 2).await;
    assert_eq!(connections(&server, "pubsub"), 1);

    let operator = connect(&server).await;
    for name in &names {
        operator.force_release(&key(name)).await.unwrap();
    }
    for waiter in waiting {
        soon("a lock", waiter).await.unwrap().unwrap().release().await.unwrap();
    }
    eventually("nobody listens any more", || freed() == 0).await;
    kept.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_that_is_gone_leaves_no_connection() {
    let server = Server::start();
    let handle = locks(&server.url()).await;
    let guard = handle.lock("order:42").acquire().await.unwrap();
    eventually("it listens", || connections(&server, "pubsub") == 1).await;
    guard.release().await.unwrap();
    drop(handle);
    eventually("all is closed", || connections(&server, "normal") + connections(&server, "pubsub") == 0).await;
}

#[tokio::test]
async fn a_lost_subscription_is_made_again_and_says_that_it_may_have_missed_something() {
    let server = Server::start();
    let store = connect(&server).await;
    let held = request("order:42");
    let mut freed = store.subscribe(Topic::Freed(&held.key)).await.unwrap();
    let mut taken = store.subscribe(Topic::Taken).await.unwrap();
    for _ in 0..3 {
        assert_eq!(server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]), "1");
        assert_eq!(soon("the gap", freed.next()).await, Some(Event::Missed));
        assert_eq!(soon("the gap", taken.next()).await, Some(Event::Missed));
        granted(&store, &held).await;
        assert_eq!(store.release(&held.lock_id).await.unwrap(), Release::Released);
        assert_eq!(soon("the release", freed.next()).await, Some(Event::Freed));
        granted(&store, &held).await;
        store.force_release(&held.key).await.unwrap();
        let told = Some(Event::Taken { lock_id: held.lock_id, how: Loss::ForceReleased });
        assert_eq!(soon("the force", taken.next()).await, told);
        assert_eq!(soon("the release by force", freed.next()).await, Some(Event::Freed));
    }
}

#[tokio::test]
async fn only_those_who_wait_for_a_key_hear_of_its_release() {
    let server = Server::start();
    let store = connect(&server).await;
    let (first, second) = (request("order:1"), request("order:2"));
    let mut of_first = store.subscribe(Topic::Freed(&first.key)).await.unwrap();
    let mut of_second = store.subscribe(Topic::Freed(&second.key)).await.unwrap();
    granted(&store, &first).await;
    granted(&store, &second).await;
    store.release(&second.lock_id).await.unwrap();
    assert_eq!(soon("the release", of_second.next()).await, Some(Event::Freed));
    let early = tokio::time::timeout(Duration::from_millis(50), of_first.next()).await;
    assert!(early.is_err(), "{early:?}");
    store.release(&first.lock_id).await.unwrap();
    assert_eq!(soon("the release", of_first.next()).await, Some(Event::Freed));
}

async fn victim(server: &Server) -> (Locks, leasehold::Guard) {
    let victim = locks(&server.url()).await;
    // The next renewal is minutes away, so only news can be what tells it.
    let guard = victim.lock("order:42").ttl(LONG).holder("db-1/report").acquire().await.unwrap();
    eventually("it listens", || listeners(server, "syncguard:taken") == 1).await;
    (victim, guard)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_victim_of_a_steal_is_told_at_once() {
    let server = Server::start();
    let (_victim, guard) = victim(&server).await;
    let thief = locks(&server.url()).await;
    let steal = thief.lock("order:42").holder("db-1/report").steal(Steal::NEVER.from_same_holder());
    let stolen = steal.acquire().await.unwrap();
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Stolen);
    assert!(stolen.fence() > guard.fence());
    assert!(guard.release().await.is_err());
    stolen.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_victim_of_a_forced_release_is_told_at_once() {
    let server = Server::start();
    let (_victim, guard) = victim(&server).await;
    let operator = locks(&server.url()).await;
    assert!(operator.force_release(&key("order:42")).await.unwrap().is_some());
    assert_eq!(soon("the loss", guard.lost()).await, Loss::ForceReleased);
}
