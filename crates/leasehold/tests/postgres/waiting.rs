//! Whoever waits costs nothing, and hears at once.

use std::time::Duration;

use leasehold::{Backend, Event, Locks, Loss, Release, Steal, Topic};
use test_servers::Postgres as Server;

use crate::support::{connect, eventually, granted, key, number, request, server, soon};

const LONG: Duration = Duration::from_secs(600);

/// How many keys are waited for, counted once for each process.
fn interested(server: &Server) -> u64 {
    number(server, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted")
}

/// Connections that listen: their last statement is one of those that only they send.
const LISTENING: &str = "application_name = 'leasehold' AND (query LIKE 'LISTEN%' OR query LIKE '%advisory_%shared%')";

async fn locks(server: &Server) -> Locks {
    Locks::connect(&server.url()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_hand_a_lock_over_many_times_without_polling() {
    let server = server().await;
    let handles = [locks(&server).await, locks(&server).await];
    let hand_over = async {
        let mut guard = handles[0].lock("order:42").ttl(LONG).acquire().await.unwrap();
        for round in 1..=40 {
            let next = handles[round % 2].clone();
            let waiting = tokio::spawn(async move { next.lock("order:42").ttl(LONG).wait_forever().acquire().await });
            eventually("it waits", || interested(&server) == 1).await;
            let fence = guard.fence();
            guard.release().await.unwrap();
            guard = waiting.await.unwrap().unwrap();
            assert!(guard.fence() > fence);
            eventually("it stopped waiting", || interested(&server) == 0).await;
        }
    };
    // A waiter that polls would come by every few seconds only.
    soon("40 hand-overs", hand_over).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_sends_next_to_nothing() {
    let server = server().await;
    let (holder, waiter) = (locks(&server).await, locks(&server).await);
    let guard = holder.lock("order:42").ttl(LONG).acquire().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.lock("order:42").wait_forever().acquire().await });
    eventually("it waits", || interested(&server) == 1).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.sql("SELECT pg_stat_statements_reset()");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let calls = number(&server, "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query !~ 'pg_stat'");
    println!("{calls} statements in 3 seconds of waiting");
    assert!(calls < 10, "{calls} statements");
    guard.release().await.unwrap();
    soon("the lock", waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_lost_subscription_is_made_again_and_says_that_it_may_have_missed_something() {
    let server = server().await;
    let store = connect(&server).await;
    let held = request("order:42");
    let mut freed = store.subscribe(Topic::Freed(&held.key)).await.unwrap();
    let mut taken = store.subscribe(Topic::Taken).await.unwrap();
    for _ in 0..3 {
        assert_eq!(server.terminate_backends(LISTENING), 1);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_connection_is_lost_while_the_lock_is_freed_gets_it_all_the_same() {
    let server = server().await;
    let (store, waiter) = (connect(&server).await, locks(&server).await);
    for _ in 0..3 {
        let held = request("order:42");
        granted(&store, &held).await;
        let handle = waiter.clone();
        let waiting = tokio::spawn(async move { handle.lock("order:42").wait_forever().acquire().await });
        eventually("it waits", || interested(&server) == 1).await;
        // Its silence is not noticed by any statement: only the next line can tell that something was missed.
        server.sql(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {LISTENING};
            DELETE FROM syncguard_locks WHERE lock_id = '{}'",
            held.lock_id.expose()
        ));
        soon("the lock", waiting).await.unwrap().unwrap().release().await.unwrap();
        eventually("it stopped waiting", || interested(&server) == 0).await;
    }
}

#[tokio::test]
async fn only_those_who_wait_for_a_key_hear_of_its_release() {
    let server = server().await;
    let store = connect(&server).await;
    let odd = ["order:1", "it's \\ \"odd\"\n\u{e9}", "$$ %s ; --", "E'\\''"];
    let mut waiting = Vec::new();
    for name in odd {
        waiting.push(store.subscribe(Topic::Freed(&key(name))).await.unwrap());
    }
    for (number, name) in odd.into_iter().enumerate() {
        let mine = request(name);
        granted(&store, &mine).await;
        store.release(&mine.lock_id).await.unwrap();
        assert_eq!(soon("the release", waiting[number].next()).await, Some(Event::Freed), "{name}");
        for (other, subscription) in waiting.iter_mut().enumerate() {
            let early = tokio::time::timeout(Duration::from_millis(20), subscription.next()).await;
            assert!(early.is_err(), "{name} {other}: {early:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_victim_is_told_at_once() {
    let server = server().await;
    let (victim, thief) = (locks(&server).await, locks(&server).await);
    // The next renewal is minutes away, so only news can be what tells it.
    let guard = victim.lock("order:42").ttl(LONG).holder("db-1/report").acquire().await.unwrap();
    // A handle listens from the start; that a guard wants to hear of its loss is known within the process alone.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let steal = thief.lock("order:42").ttl(LONG).holder("db-1/report").steal(Steal::NEVER.from_same_holder());
    let stolen = steal.acquire().await.unwrap();
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Stolen);
    assert!(stolen.fence() > guard.fence() && guard.release().await.is_err());
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(victim.force_release(&key("order:42")).await.unwrap().is_some());
    assert_eq!(soon("the loss", stolen.lost()).await, Loss::ForceReleased);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_waiters_share_one_connection() {
    let server = server().await;
    let (holder, handle) = (connect(&server).await, locks(&server).await);
    let names: Vec<_> = (0..100).map(|number| format!("order:{number}")).collect();
    for name in &names {
        granted(&holder, &request(name)).await;
    }
    let spawn = |name: &String| {
        let (handle, name) = (handle.clone(), name.clone());
        tokio::spawn(async move { handle.lock(name.as_str()).wait_forever().acquire().await })
    };
    let waiting: Vec<_> = names.iter().map(spawn).collect();
    // Some of them share a number.
    let numbers =
        number(&server, "SELECT count(DISTINCT hashtext('order:' || n) & 1023) FROM generate_series(0, 99) AS n");
    assert!(numbers > 80, "{numbers}");
    eventually("all of them wait", || interested(&server) == numbers).await;
    assert_eq!(
        number(&server, "SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'"),
        1
    );
    for name in &names {
        holder.force_release(&key(name)).await.unwrap();
    }
    for waiter in waiting {
        soon("a lock", waiter).await.unwrap().unwrap().release().await.unwrap();
    }
    eventually("nobody waits any more", || interested(&server) == 0).await;
}
