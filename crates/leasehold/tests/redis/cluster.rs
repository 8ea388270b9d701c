//! A cluster: all locks of a prefix with a hash tag are on one node, and every node knows the way.

use std::time::Duration;

use leasehold::backend::{Absence, Backend, Event, Extend, LookupBy, Release, Topic};
use leasehold::redis::Redis;
use leasehold::{ErrorCode, Holder, ListRequest, Loss, Steal};
use test_servers::RedisCluster;
use test_support::redis::exists;
use test_support::{eventually, granted, held, key, locks, request, soon, ttl};

/// The URL of a node, with a prefix that puts all locks on one of them.
pub(crate) fn through(cluster: &RedisCluster, node: usize) -> String {
    format!("{}?prefix={{locks}}", cluster.urls()[node])
}

/// The node that has the locks.
pub(crate) fn owner(cluster: &RedisCluster) -> usize {
    cluster.slot_owner(cluster.slot_of("{locks}:order:42"))
}

#[tokio::test]
async fn every_operation_works_through_every_node() {
    let cluster = RedisCluster::start();
    let mut last = None;
    for node in 0..3 {
        let store = Redis::connect(&through(&cluster, node)).await.unwrap();
        let mine = request("order:42");
        let grant = granted(&store, &mine).await;
        assert!(Some(grant.fence) > last);
        last = Some(grant.fence);
        assert_eq!(granted(&store, &mine).await, grant, "a repeated acquire");
        assert!(exists(&cluster.nodes()[owner(&cluster)], "{locks}:order:42"));
        assert!(held(&store, &request("order:42")).await.holder.is_some());
        assert!(matches!(store.extend(&mine.lock_id, ttl(60_000)).await.unwrap(), Extend::Extended { .. }));
        assert!(store.is_locked(&mine.key).await.unwrap());
        let by_key = store.lookup(LookupBy::Key(&mine.key)).await.unwrap().unwrap();
        assert_eq!(store.lookup(LookupBy::Id(&mine.lock_id)).await.unwrap(), Some(by_key));
        let page = store.list(&ListRequest::new("order:")).await.unwrap();
        assert_eq!(page.records.len(), 1);
        assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released);
        assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Absent(Absence::NotFound));
        granted(&store, &mine).await;
        assert!(!store.force_release(&mine.key, None).await.unwrap().is_empty());
        assert!(store.list(&ListRequest::new("")).await.unwrap().records.is_empty());
    }
}

#[tokio::test]
async fn a_listing_through_any_node_shows_all_locks() {
    let cluster = RedisCluster::start();
    let store = Redis::connect(&through(&cluster, 0)).await.unwrap();
    for number in 0..50 {
        granted(&store, &request(&format!("order:{number}"))).await;
    }
    for node in 0..3 {
        // The listing is the first thing that this handle does.
        let store = Redis::connect(&through(&cluster, node)).await.unwrap();
        let (mut seen, mut wanted) = (0, ListRequest::new("order:").with_page_size(20));
        loop {
            let page = store.list(&wanted).await.unwrap();
            seen += page.records.len();
            let Some(next) = page.next else { break };
            wanted = wanted.with_cursor(next);
        }
        assert_eq!(seen, 50, "through node {node}");
    }
}

#[tokio::test]
async fn a_steal_tells_a_victim_that_listens_to_another_node() {
    let cluster = RedisCluster::start();
    for (of_victim, of_thief) in [(0, 1), (1, 2), (2, 0)] {
        let victim = Redis::connect(&through(&cluster, of_victim)).await.unwrap();
        let thief = Redis::connect(&through(&cluster, of_thief)).await.unwrap();
        let mut taken = victim.subscribe(Topic::Taken).await.unwrap();
        let mine = request("order:42");
        let grant = granted(&victim, &mine).await;
        let stealing = request("order:42").with_steal(Steal::NEVER.with_same_holder());
        assert!(granted(&thief, &stealing).await.fence > grant.fence);
        let theft = Event::Taken { key: mine.key.clone(), fence: grant.fence, how: Loss::Stolen };
        // That of the round before may come late to this node.
        while soon("the theft", taken.next()).await.as_ref() != Some(&theft) {}
        assert_eq!(victim.release(&mine.lock_id).await.unwrap(), Release::Absent(Absence::NotFound));
        thief.release(&stealing.lock_id).await.unwrap();
    }
    let stranger = request("order:42").with_holder(Holder::new("stranger").unwrap());
    granted(&Redis::connect(&through(&cluster, 0)).await.unwrap(), &stranger).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_woken_across_nodes() {
    let cluster = RedisCluster::start();
    let mut handles = Vec::new();
    for node in 0..3 {
        handles.push(locks(&through(&cluster, node)).await);
    }
    let listeners = || -> u64 {
        let count = |node: &test_servers::Redis| {
            let answer = node.cli(&["PUBSUB", "NUMSUB", "{locks}:order:42:freed"]);
            answer.lines().last().unwrap().parse::<u64>().unwrap()
        };
        cluster.nodes().iter().map(count).sum()
    };
    let hand_over = async {
        let mut guard = handles[0].lock("order:42").acquire().await.unwrap();
        for round in 1..=15 {
            let next = handles[round % 3].clone();
            let waiting = tokio::spawn(async move { next.lock("order:42").wait_forever().acquire().await });
            eventually("it waits", async || listeners() == 1).await;
            let fence = guard.fence();
            guard.release().await.unwrap();
            guard = waiting.await.unwrap().unwrap();
            assert!(guard.fence() > fence);
            eventually("it stopped waiting", async || listeners() == 0).await;
        }
    };
    soon("15 hand-overs", hand_over).await;
}

#[tokio::test]
async fn a_url_of_several_nodes_works_while_one_of_them_is_dead() {
    let cluster = RedisCluster::start();
    for node in cluster.nodes() {
        node.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let dead = (owner(&cluster) + 1) % 3;
    cluster.nodes()[dead].kill();
    // The dead one first.
    let ports: Vec<_> = (0..3).map(|n| cluster.nodes()[(dead + n) % 3].port()).collect();
    let url = format!("redis://127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}?prefix={{locks}}", ports[0], ports[1], ports[2]);
    let store = Redis::connect(&url).await.unwrap();
    let mine = request("order:42");
    granted(&store, &mine).await;
    let mut freed = store.subscribe(Topic::Freed(&mine.key)).await.unwrap();
    assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released);
    assert_eq!(soon("the notification", freed.next()).await, Some(Event::Freed));
}

#[tokio::test]
async fn a_prefix_without_a_hash_tag_is_refused_with_the_remedy() {
    let cluster = RedisCluster::start();
    let store = Redis::connect(&cluster.url()).await.unwrap();
    let error = store.acquire(&request("order:42")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
    assert!(error.hint().unwrap().contains("?prefix={locks}"), "{error:?}");
    assert!(!error.outcome_unknown());
    assert!(!store.is_locked(&key("order:42")).await.unwrap());
    let handle = locks(&cluster.url()).await;
    let refused = tokio::time::timeout(Duration::from_secs(10), handle.lock("order:42").wait_forever().acquire()).await;
    assert_eq!(refused.unwrap().unwrap_err().code(), ErrorCode::InvalidArgument, "and not waited for");
}
