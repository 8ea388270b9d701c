//! A cluster that moves the locks to another node while they are held.

use std::time::Duration;

use leasehold::backend::{Acquire, Backend, Extend, LookupBy, Release};
use leasehold::redis::Redis;
use leasehold::{ErrorCode, ListRequest, LockState};
use test_servers::RedisCluster;

use crate::cluster::{owner, through};
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
        let ended = store.force_release(&mine.key).await;
        assert!(ended.as_ref().is_err_and(unavailable), "index first: {index_first}, force_release: {ended:?}");

        moving.move_keys();
        moving.finish();
        held(&store, &request("order:42")).await;
        assert_eq!(store.lookup(LookupBy::Id(&mine.lock_id)).await.unwrap().unwrap().fence, grant.fence);
        assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released);
    }
}
