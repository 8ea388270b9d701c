//! An acquire that failed in the middle leaves no lock behind.

use std::time::Duration;

use leasehold::{Locks, LookupBy};
use leasehold_conformance::history::{History, What};
use test_servers::{Proxy, Redis};

use crate::store::{connect, through};
use crate::support::{PATIENCE, assert_sound, eventually, key};
use crate::turns::record_grant;

/// So long that no lock in these tests goes away by itself.
const TTL: Duration = Duration::from_secs(3600);

/// A handle that knows the scripts are known.
async fn handle(proxy: &Proxy, options: &str) -> Locks {
    let locks = Locks::builder(connect(&format!("{}{options}", through(proxy))).await).build();
    locks.lock("known").acquire().await.unwrap().release().await.unwrap();
    locks
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_try_that_was_granted_without_an_answer_is_undone() {
    let server = Redis::start();
    let proxy = Proxy::start(server.address());
    let (locks, onlooker) = (handle(&proxy, "?timeout=0.5").await, connect(&server.url()).await);
    for stalled in [false, true] {
        let rule = if stalled { proxy.stall("EVALSHA") } else { proxy.cut_after("EVALSHA") };
        let error = locks.lock("k").ttl(TTL).try_acquire().await.unwrap_err();
        assert!(error.outcome_unknown() && error.is_retryable(), "{error:?}");
        assert!(rule.wait_fired(PATIENCE));
        eventually("the orphan is released", async || !onlooker.is_locked(&key("k")).await.unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_dropped_before_its_answer_is_undone() {
    let server = Redis::start();
    let proxy = Proxy::start(server.address());
    let (locks, onlooker) = (handle(&proxy, "?timeout=2").await, connect(&server.url()).await);
    let rule = proxy.stall("EVALSHA");
    let acquiring = tokio::spawn(locks.lock("k").ttl(TTL).acquire());
    eventually("the server grants it", async || onlooker.is_locked(&key("k")).await.unwrap()).await;
    assert!(rule.wait_fired(PATIENCE));
    acquiring.abort();
    assert!(acquiring.await.unwrap_err().is_cancelled());
    eventually("the orphan is released", async || !onlooker.is_locked(&key("k")).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patient_acquire_finds_the_grant_whose_answer_was_lost() {
    let server = Redis::start();
    let proxy = Proxy::start(server.address());
    let (locks, onlooker) = (handle(&proxy, "?timeout=0.5").await, connect(&server.url()).await);
    let history = History::new();
    let mut last = None;
    for round in ["cut before", "cut after", "stalled"] {
        let rule = match round {
            "cut before" => proxy.cut_before("EVALSHA"),
            "cut after" => proxy.cut_after("EVALSHA"),
            _ => proxy.stall("EVALSHA"),
        };
        let connections = proxy.counts().connections;
        let sent = history.now();
        let guard = locks.lock("k").ttl(TTL).acquire().await.unwrap();
        let name = guard.lock_id().hash_id().to_string();
        history.record_at(sent, "k", &name, What::AcquireSent { may_steal: false });
        record_grant(&history, &guard);
        assert!(rule.wait_fired(PATIENCE) && proxy.counts().connections > connections, "{round}");
        let record = onlooker.lookup(LookupBy::Key(&key("k"))).await.unwrap().unwrap();
        assert_eq!((record.fence, &record.lock_id), (guard.fence(), guard.lock_id()), "{round}");
        assert!(Some(guard.fence()) > last);
        last = Some(guard.fence());
        history.record("k", &name, What::ReleaseSent);
        guard.release().await.unwrap();
        assert!(!onlooker.is_locked(&key("k")).await.unwrap(), "{round}");
    }
    assert_sound(&history.events());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_dropped_while_the_server_is_away_is_released_when_it_is_back() {
    let server = Redis::start();
    let proxy = Proxy::start(server.address());
    let (locks, onlooker) = (handle(&proxy, "?timeout=0.5").await, connect(&server.url()).await);
    let guard = locks.lock("k").ttl(TTL).acquire().await.unwrap();
    proxy.refuse();
    proxy.cut_all();
    drop(guard);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(onlooker.is_locked(&key("k")).await.unwrap());
    proxy.accept();
    eventually("the lock is given back", async || !onlooker.is_locked(&key("k")).await.unwrap()).await;
}
