//! A cluster that moves the locks to another node while they are held.

use std::time::Duration;

use leasehold::backend::{Acquire, Backend, Extend, LookupBy, Release};
use leasehold::redis::Redis;
use leasehold::{ErrorCode, ListRequest, LockState};
use test_servers::RedisCluster;

use crate::cluster::{owner, through};
use crate::support::{joining, permit, shared};
use test_support::redis::exists;
use test_support::{eventually, granted, held, key, locks, request, soon, ttl};

/// Moves one name, out of those that a move has begun to move.
fn migrate(cluster: &RedisCluster, from: usize, to: usize, name: &str) {
    let port = cluster.nodes()[to].port().to_string();
    assert_eq!(cluster.nodes()[from].cli(&["MIGRATE", "127.0.0.1", &port, name, "0", "5000"]), "OK");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_kept_and_handed_on_while_it_moves_from_node_to_node() {
    let cluster = RedisCluster::start();
    let (holder, waiter) = (locks(&through(&cluster, 0)).await, locks(&through(&cluster, 1)).await);
    let guard = holder.lock("order:42").ttl(Duration::from_secs(6)).acquire().await.unwrap();
    let fence = guard.fence();
    let waiting = tokio::spawn(async move { waiter.lock("order:42").wait_forever().acquire().await });
    let slot = cluster.slot_of("{locks}:order:42");
    for _ in 0..3 {
        let to = (owner(&cluster) + 1) % 3;
        cluster.move_slot(slot, to);
        assert!(exists(&cluster.nodes()[to], "{locks}:order:42"));
        let before = guard.expires_at();
        guard.extend(Duration::from_secs(6)).await.unwrap();
        assert!(guard.expires_at() >= before);
        assert!(holder.is_locked(&key("order:42")).await.unwrap());
        assert_eq!(guard.state(), LockState::Held);
    }
    let renewed = guard.expires_at();
    eventually("a heartbeat finds the new node too", async || guard.expires_at() > renewed).await;
    guard.release().await.unwrap();
    let next = soon("the lock", waiting).await.unwrap().unwrap();
    assert!(next.fence() > fence);
    next.release().await.unwrap();
}

#[tokio::test]
async fn locks_that_have_not_been_moved_yet_are_used_where_they_are() {
    let cluster = RedisCluster::start();
    let store = Redis::connect(&through(&cluster, 0)).await.unwrap();
    let mine = request("order:42");
    let grant = granted(&store, &mine).await;
    let from = owner(&cluster);
    let moving = cluster.begin_move(cluster.slot_of("{locks}:order:42"), (from + 1) % 3);
    assert!(matches!(store.extend(&mine.lock_id, ttl(60_000)).await.unwrap(), Extend::Extended { .. }));
    assert!(store.is_locked(&mine.key).await.unwrap());
    assert_eq!(granted(&store, &mine).await.fence, grant.fence);
    assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released);
    moving.abandon();
    granted(&store, &mine).await;
}

#[tokio::test]
async fn locks_that_have_been_moved_are_used_at_their_new_node_before_the_slot_is() {
    let cluster = RedisCluster::start();
    let store = Redis::connect(&through(&cluster, 0)).await.unwrap();
    let mine = request("order:42");
    let grant = granted(&store, &mine).await;
    let to = (owner(&cluster) + 1) % 3;
    let moving = cluster.begin_move(cluster.slot_of("{locks}:order:42"), to);
    moving.move_keys();
    assert!(matches!(store.extend(&mine.lock_id, ttl(60_000)).await.unwrap(), Extend::Extended { .. }));
    assert!(store.is_locked(&mine.key).await.unwrap());
    assert_eq!(store.lookup(LookupBy::Id(&mine.lock_id)).await.unwrap().unwrap().fence, grant.fence);
    assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released);
    assert!(!exists(&cluster.nodes()[to], "{locks}:order:42"));
    moving.finish();
    assert!(granted(&store, &mine).await.fence > grant.fence);
}

#[tokio::test]
async fn a_new_lock_is_not_granted_half_way_and_is_when_the_move_is_over() {
    let cluster = RedisCluster::start();
    let store = Redis::connect(&through(&cluster, 0)).await.unwrap();
    let before = request("order:42");
    let last = granted(&store, &before).await.fence;
    store.release(&before.lock_id).await.unwrap();
    let moving = cluster.begin_move(cluster.slot_of("{locks}:order:42"), (owner(&cluster) + 1) % 3);
    let mine = request("order:42");
    // Its counter is here and its record would be there, and a script cannot be in two places.
    let refused = store.acquire(&mine).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ServiceUnavailable, "{refused:?}");
    assert!(refused.is_retryable() && !refused.outcome_unknown());
    moving.move_keys();
    moving.finish();
    assert!(granted(&store, &mine).await.fence > last);
}

#[tokio::test]
async fn a_lock_of_which_half_has_been_moved_is_never_said_to_be_gone() {
    let cluster = RedisCluster::start();
    let store = Redis::connect(&through(&cluster, 0)).await.unwrap();
    for index_first in [true, false] {
        let mine = request("order:42");
        let grant = granted(&store, &mine).await;
        let index = format!("{{locks}}:id:{}", mine.lock_id.expose());
        let (from, to) = (owner(&cluster), (owner(&cluster) + 1) % 3);
        let moving = cluster.begin_move(cluster.slot_of("{locks}:order:42"), to);
        migrate(&cluster, from, to, if index_first { &index } else { "{locks}:order:42" });

        let extended = store.extend(&mine.lock_id, ttl(60_000)).await;
        let unavailable = |error: &leasehold::Error| error.is_retryable() && !error.outcome_unknown();
        assert!(extended.as_ref().is_err_and(unavailable), "index first: {index_first}, extend: {extended:?}");
        let released = store.release(&mine.lock_id).await;
        assert!(released.as_ref().is_err_and(unavailable), "index first: {index_first}, release: {released:?}");
        let found = store.lookup(LookupBy::Id(&mine.lock_id)).await;
        assert!(found.as_ref().is_err_and(unavailable), "index first: {index_first}, lookup: {found:?}");
        let other = store.acquire(&request("order:42")).await;
        assert!(!matches!(other, Ok(Acquire::Granted(_))), "index first: {index_first}, acquire: {other:?}");
        assert!(!matches!(store.acquire(&mine).await, Ok(Acquire::Granted(again)) if again.fence != grant.fence));

        let listed = store.list(&ListRequest::new("")).await;
        assert!(listed.as_ref().is_err_and(unavailable), "index first: {index_first}, list: {listed:?}");
        let ended = store.force_release(&mine.key, None).await;
        assert!(ended.as_ref().is_err_and(unavailable), "index first: {index_first}, force_release: {ended:?}");

        moving.move_keys();
        moving.finish();
        held(&store, &request("order:42")).await;
        assert_eq!(store.lookup(LookupBy::Id(&mine.lock_id)).await.unwrap().unwrap().fence, grant.fence);
        assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn locks_that_several_hold_are_kept_while_they_move() {
    let cluster = RedisCluster::start();
    let store = Redis::connect(&through(&cluster, 0)).await.unwrap();
    let (readers, mine) = ([shared("order:42"), shared("order:42")], permit("order:43", 2));
    for request in readers.iter().chain([&mine]) {
        granted(&store, request).await;
    }
    let kept = async |stage: &str| {
        for request in readers.iter().chain([&mine]) {
            let extended = store.extend(&request.lock_id, ttl(60_000)).await;
            assert!(matches!(extended, Ok(Extend::Extended { .. })), "{stage}: {extended:?}");
        }
        let found = store.lookup(LookupBy::Id(&readers[1].lock_id)).await.unwrap();
        assert_eq!(found.unwrap().lock_id, readers[1].lock_id, "{stage}");
        let new = [shared("order:42"), request("order:42"), joining(request("order:42"), 5_000), permit("order:43", 2)];
        for request in &new {
            let refused = store.acquire(request).await.unwrap_err();
            assert!(refused.is_retryable() && !refused.outcome_unknown(), "{stage}: {refused:?}");
        }
        let refused = store.acquire_all(&new[2..3]).await.map(drop).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::InvalidArgument);
        let refused = store.acquire_all(&[shared("order:42"), permit("order:43", 2)]).await.map(drop).unwrap_err();
        assert!(refused.is_retryable() && !refused.outcome_unknown(), "{stage}: {refused:?}");
    };
    let moving = cluster.begin_move(cluster.slot_of("{locks}:order:42"), (owner(&cluster) + 1) % 3);
    kept("nothing has been moved").await;
    assert_eq!(store.release(&readers[0].lock_id).await.unwrap(), Release::Released);
    let extended = store.extend(&readers[1].lock_id, ttl(60_000)).await;
    assert!(matches!(extended, Ok(Extend::Extended { .. })), "{extended:?}");
    moving.move_keys();
    let found = store.lookup(LookupBy::Id(&readers[1].lock_id)).await.unwrap();
    assert_eq!(found.unwrap().lock_id, readers[1].lock_id);
    assert_eq!(store.release(&readers[1].lock_id).await.unwrap(), Release::Released);
    assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released);
    moving.finish();
    for request in [request("order:42"), request("order:43")] {
        granted(&store, &request).await;
    }
}

#[tokio::test]
async fn a_shared_lock_of_which_a_part_has_been_moved_is_never_said_to_be_gone_nor_given_away() {
    let cluster = RedisCluster::start();
    let store = Redis::connect(&through(&cluster, 0)).await.unwrap();
    for part in ["", "\0g", "\0e", "\0b", "index"] {
        let (mine, waiter) = (permit("order:42", 1), joining(request("order:42"), 60_000));
        granted(&store, &mine).await;
        held(&store, &waiter).await;
        let index = format!("{{locks}}:id:{}", mine.lock_id.expose());
        let (from, to) = (owner(&cluster), (owner(&cluster) + 1) % 3);
        let moving = cluster.begin_move(cluster.slot_of("{locks}:order:42"), to);
        let name = if part == "index" { index } else { format!("{{locks}}:order:42{part}") };
        migrate(&cluster, from, to, &name);

        let unavailable = |error: &leasehold::Error| error.is_retryable() && !error.outcome_unknown();
        let released = store.release(&mine.lock_id).await;
        assert!(released.as_ref().is_err_and(unavailable), "{part:?}, release: {released:?}");
        // What an extend does not need may be elsewhere, but then nothing of it is.
        let extended = store.extend(&mine.lock_id, ttl(60_000)).await;
        assert!(extended.as_ref().is_err_and(unavailable), "{part:?}, extend: {extended:?}");
        for wanted in [request("order:42"), permit("order:42", 1), waiter.clone()] {
            let other = store.acquire(&wanted).await;
            assert!(!matches!(other, Ok(Acquire::Granted(_))), "{part:?}, acquire: {other:?}");
        }
        let ended = store.force_release(&mine.key, None).await;
        assert!(ended.as_ref().is_err_and(unavailable), "{part:?}, force_release: {ended:?}");

        moving.move_keys();
        moving.finish();
        assert_eq!(held(&store, &waiter).await.place, Some(0), "{part:?}");
        assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released, "{part:?}");
        granted(&store, &waiter).await;
        store.release(&waiter.lock_id).await.unwrap();
    }
}

#[tokio::test]
async fn a_line_is_kept_while_it_moves() {
    let cluster = RedisCluster::start();
    let store = Redis::connect(&through(&cluster, 0)).await.unwrap();
    let holder = request("order:42");
    granted(&store, &holder).await;
    let waiters: Vec<_> = (0..3).map(|_| joining(request("order:42"), 60_000)).collect();
    for waiter in &waiters {
        held(&store, waiter).await;
    }
    let slot = cluster.slot_of("{locks}:order:42");
    for _ in 0..3 {
        cluster.move_slot(slot, (owner(&cluster) + 1) % 3);
        for (place, waiter) in (0..).zip(&waiters) {
            assert_eq!(held(&store, waiter).await.place, Some(place));
        }
    }
    let mut last = holder.lock_id;
    for waiter in &waiters {
        assert_eq!(store.release(&last).await.unwrap(), Release::Released);
        granted(&store, waiter).await;
        last = waiter.lock_id;
    }
}
