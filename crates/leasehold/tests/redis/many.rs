//! Many locks are extended and released in one request, each as if it were alone.

use std::sync::Arc;
use std::time::Duration;

use leasehold::backend::{Absence, AcquireRequest, Backend, Extend, MOST_AT_ONCE, Release};
use leasehold::redis::Redis;
use leasehold::{ErrorCode, LockId, Ttl};
use test_servers::{Distance, Redis as Server, RedisCluster};
use test_support::redis::{commands, exists, index_of, record_of};
use test_support::{granted, id, request, ttl};

use crate::cluster::{owner, through};
use crate::support::connect;

async fn take(store: &Redis, number: usize) -> Vec<AcquireRequest> {
    let requests: Vec<_> = (0..number).map(|number| request(&format!("order:{number}"))).collect();
    for request in &requests {
        granted(store, request).await;
    }
    requests
}

fn ids(requests: &[AcquireRequest]) -> Vec<LockId> {
    requests.iter().map(|request| request.lock_id).collect()
}

fn longer(requests: &[AcquireRequest]) -> Vec<(LockId, Ttl)> {
    requests.iter().map(|request| (request.lock_id, ttl(90_000))).collect()
}

#[tokio::test]
async fn as_many_as_may_be_are_extended_and_released_in_one_request_each() {
    let server = Server::start();
    let store = connect(&server).await;
    let requests = take(&store, MOST_AT_ONCE).await;
    let (extends, releases) = (longer(&requests), ids(&requests));
    // The server learns the scripts.
    store.extend_many(&extends).await;
    store.release_many(&[id(), id()]).await;
    commands(&server);
    let extended = store.extend_many(&extends).await;
    assert_eq!(commands(&server).into_iter().collect::<Vec<_>>(), [("evalsha".to_owned(), 1)]);
    assert_eq!(extended.len(), MOST_AT_ONCE);
    for answer in extended {
        let Extend::Extended { expires_at } = answer.unwrap() else { panic!("not extended") };
        assert!(expires_at.as_millis() > test_support::redis::now(&server) + 60_000);
    }
    let released = store.release_many(&releases).await;
    assert_eq!(commands(&server).into_iter().collect::<Vec<_>>(), [("evalsha".to_owned(), 1)]);
    assert!(released.into_iter().all(|answer| answer.unwrap() == Release::Released));
    assert_eq!(server.cli(&["KEYS", "syncguard:[io]*"]), "");
    assert_eq!((store.extend_many(&[]).await.len(), store.release_many(&[]).await.len()), (0, 0));
}

#[tokio::test]
async fn each_gets_its_own_answer_in_order_and_what_fails_for_one_fails_for_no_other() {
    let server = Server::start();
    let store = connect(&server).await;
    let requests = take(&store, 8).await;
    server.cli(&["DEL", &record_of("order:1")]);
    store.release(&requests[2].lock_id).await.unwrap();
    // An index of another type, a lock of another type, a lock of somebody else, and one that is over.
    server.cli(&["DEL", &index_of(&requests[3].lock_id), &record_of("order:4")]);
    server.cli(&["RPUSH", &index_of(&requests[3].lock_id), "a"]);
    server.cli(&["RPUSH", &record_of("order:4"), "a"]);
    server.cli(&["COPY", &record_of("order:0"), &record_of("order:5"), "REPLACE"]);
    let over = format!(r#"{{"lockId":"{}","expiresAtMs":5,"acquiredAtMs":1}}"#, requests[6].lock_id.expose());
    server.cli(&["SET", &record_of("order:6"), &over]);

    let extended = store.extend_many(&longer(&requests)).await;
    let released = store.release_many(&ids(&requests)).await;
    for number in [0, 7] {
        assert!(matches!(extended[number], Ok(Extend::Extended { .. })), "{number}: {:?}", extended[number]);
        assert!(matches!(released[number], Ok(Release::Released)), "{number}: {:?}", released[number]);
    }
    for (number, absence) in
        [(1, Absence::NotFound), (2, Absence::NotFound), (5, Absence::NotFound), (6, Absence::Expired)]
    {
        assert_eq!(extended[number].as_ref().unwrap(), &Extend::Absent(absence), "{number}");
        assert_eq!(released[number].as_ref().unwrap(), &Release::Absent(absence), "{number}");
    }
    for number in [3, 4] {
        for error in [extended[number].as_ref().unwrap_err(), released[number].as_ref().unwrap_err()] {
            assert_eq!(error.code(), ErrorCode::Internal, "{number}: {error:?}");
            assert!(error.to_string().contains("is not a lock") && !error.outcome_unknown(), "{error:?}");
        }
    }
}

#[tokio::test]
async fn a_server_without_memory_refuses_each_extend_and_still_releases() {
    let server = Server::with(&["--maxmemory-policy", "noeviction"]);
    let store = connect(&server).await;
    let requests = take(&store, 3).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    for answer in store.extend_many(&longer(&requests)).await {
        let error = answer.unwrap_err();
        assert!(error.is_retryable() && !error.outcome_unknown(), "{error:?}");
        assert!(error.to_string().contains("out of memory"), "{error}");
    }
    for answer in store.release_many(&ids(&requests)).await {
        assert_eq!(answer.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn a_replica_refuses_each_and_is_left_for_the_primary() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let requests = take(&connect(&primary).await, 3).await;
    test_support::eventually("the replica has the locks", async || exists(&replica, &record_of("order:2"))).await;
    let url = format!("redis://{},{}", replica.address(), primary.address());
    let store = Redis::connect(&url).await.unwrap();
    for answer in store.extend_many(&longer(&requests)).await {
        let error = answer.unwrap_err();
        assert!(error.is_retryable() && !error.outcome_unknown(), "{error:?}");
        assert!(error.to_string().contains("replica"), "{error}");
    }
    for answer in store.extend_many(&longer(&requests)).await {
        assert!(matches!(answer.unwrap(), Extend::Extended { .. }));
    }
}

#[tokio::test]
async fn while_a_cluster_moves_them_each_is_used_where_it_is() {
    let cluster = RedisCluster::start();
    let store = Redis::connect(&through(&cluster, 0)).await.unwrap();
    let requests = take(&store, 4).await;
    let (from, to) = (owner(&cluster), (owner(&cluster) + 1) % 3);
    let moving = cluster.begin_move(cluster.slot_of("{locks}:order:0"), to);
    let port = cluster.nodes()[to].port().to_string();
    for number in [0, 2] {
        let index = format!("{{locks}}:id:{}", requests[number].lock_id.expose());
        for name in [index, format!("{{locks}}:order:{number}")] {
            assert_eq!(cluster.nodes()[from].cli(&["MIGRATE", "127.0.0.1", &port, &name, "0", "5000"]), "OK");
        }
    }
    for answer in store.extend_many(&longer(&requests)).await {
        assert!(matches!(answer.unwrap(), Extend::Extended { .. }));
    }
    moving.move_keys();
    for answer in store.extend_many(&longer(&requests)).await {
        assert!(matches!(answer.unwrap(), Extend::Extended { .. }), "all have moved");
    }
    moving.finish();
    for answer in store.release_many(&ids(&requests)).await {
        assert_eq!(answer.unwrap(), Release::Released, "the slot has moved");
    }
}

#[tokio::test]
async fn what_a_replica_says_late_does_not_lead_away_from_the_primary() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let requests = take(&connect(&primary).await, 3).await;
    test_support::eventually("the replica has the locks", async || exists(&replica, &record_of("order:2"))).await;
    let far = Distance::start(replica.address(), Duration::from_millis(50));
    let store = Arc::new(Redis::connect(&format!("redis://{},{}", far.address(), primary.address())).await.unwrap());
    let first = tokio::spawn({
        let store = store.clone();
        async move { store.acquire(&request("first")).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let late = tokio::spawn({
        let (store, extends) = (store.clone(), longer(&requests));
        async move { store.extend_many(&extends).await }
    });
    first.await.unwrap().unwrap_err();
    granted(&*store, &request("at the primary")).await;
    assert!(late.await.unwrap().iter().all(Result::is_err), "the replica refuses them");
    for number in 0..3 {
        granted(&*store, &request(&format!("still there:{number}"))).await;
    }
}
