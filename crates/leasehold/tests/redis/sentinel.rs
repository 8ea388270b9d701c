//! Behind Sentinel: the handle follows the primary.

use std::time::Duration;

use leasehold::backend::{Backend, Event, Topic};
use leasehold::redis::Redis;
use leasehold::{ErrorCode, LockState, Locks, Verdict};
use test_servers::{Redis as Server, RedisSentinel};
use test_support::redis::exists;
use test_support::{check, eventually, everything_said, granted, key, locks, request, soon, ttl};

fn url(group: &RedisSentinel, name: &str) -> String {
    let sentinels: Vec<_> = group.sentinels().iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
    format!("redis+sentinel://{}/{name}", sentinels.join(","))
}

/// Waits until every server that is up has the lock, so that no failover can forget it.
async fn replicated(group: &RedisSentinel, name: &str) {
    let name = format!("syncguard:{name}");
    eventually("all replicas have the lock", async || group.servers().iter().all(|server| exists(server, &name))).await;
}

#[tokio::test]
async fn the_primary_is_found_through_any_sentinel_that_answers() {
    let group = RedisSentinel::start();
    let store = Redis::connect(&url(&group, group.master_name())).await.unwrap();
    granted(&store, &request("order:42")).await;
    assert!(exists(group.master(), "syncguard:order:42"));
    let checks = store.examine().await.unwrap();
    assert_eq!(check(&checks, "role").verdict, Verdict::Ok);
    assert!(check(&checks, "role").detail.contains("through Sentinel"));

    group.sentinels()[0].kill();
    let store = Redis::connect(&url(&group, group.master_name())).await.unwrap();
    assert!(store.is_locked(&key("order:42")).await.unwrap());
    group.sentinels()[1].pause();
    let store = Redis::connect(&format!("{}?timeout=3s", url(&group, group.master_name()))).await.unwrap();
    assert!(store.is_locked(&key("order:42")).await.unwrap());
    group.sentinels()[1].resume();

    let numbered = format!("{}/2", url(&group, group.master_name()));
    assert!(!Redis::connect(&numbered).await.unwrap().is_locked(&key("order:42")).await.unwrap(), "database 2");

    let error = Redis::connect(&url(&group, "nobody")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
    assert!(!error.is_retryable() && error.hint().is_some(), "{}", everything_said(&error));

    let not_a_sentinel = format!("redis+sentinel://127.0.0.1:{}/mymaster", group.master().port());
    let error = Redis::connect(&not_a_sentinel).await.unwrap_err();
    assert!(!error.is_retryable(), "{error:?}");
    for sentinel in group.sentinels() {
        sentinel.kill();
    }
    assert!(Redis::connect(&url(&group, group.master_name())).await.unwrap_err().is_retryable());
}

/// Holds and waits while something happens to the primary, and then goes on as if nothing had.
async fn goes_on(group: &RedisSentinel, happens: impl FnOnce(&RedisSentinel)) {
    let url = url(group, group.master_name());
    let (holder, waiter) = (locks(&url).await, locks(&url).await);
    let ttl = Duration::from_secs(15);
    let earlier = holder.lock("order:42").acquire().await.unwrap();
    let first = earlier.fence();
    earlier.release().await.unwrap();
    let guard = holder.lock("order:42").ttl(ttl).acquire().await.unwrap();
    let fence = guard.fence();
    assert!(fence > first);
    let next = waiter.clone();
    let waiting = tokio::spawn(async move { next.lock("order:42").wait_forever().acquire().await });
    replicated(group, "order:42").await;

    happens(group);
    let new = group.master();
    kept(&guard).await;
    assert!(exists(new, "syncguard:order:42"));
    let fresh = soon("a new lock", acquire_patiently(&holder, "fresh")).await;
    assert!(exists(new, "syncguard:fresh"));
    fresh.release().await.unwrap();

    assert!(!waiting.is_finished(), "the lock is held");
    guard.release().await.unwrap();
    let next = soon("the waiter's turn", waiting).await.unwrap().unwrap();
    assert!(next.fence() > fence);
    next.release().await.unwrap();
}

/// Extends until the new primary answers: in between there is none.
async fn kept(guard: &leasehold::Guard) {
    let extended = async {
        while let Err(error) = guard.extend(Duration::from_secs(15)).await {
            assert!(error.is_retryable(), "{error:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("an extend", extended).await;
    assert_eq!(guard.state(), LockState::Held);
}

async fn acquire_patiently(locks: &Locks, name: &str) -> leasehold::Guard {
    locks.lock(name).wait_forever().acquire().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_on_order_keeps_locks_and_waiters() {
    let group = RedisSentinel::start();
    goes_on(&group, |group| {
        let old = group.failover();
        group.wait_for_new_master();
        // Until it is told that it is one no more, the old primary grants locks that nobody will
        // remember.
        group.wait_for_demotion(old);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_primary_keeps_locks_and_waiters() {
    let group = RedisSentinel::start();
    goes_on(&group, |group| {
        group.kill_master();
        group.wait_for_new_master();
    })
    .await;
}

/// Has the servers and sentinels go on as usual, but for the primary: it will not hear that it is
/// one no more.
fn deafen_master(group: &RedisSentinel) -> &Server {
    let old = group.master();
    assert_eq!(old.cli(&["ACL", "SETUSER", "default", "-slaveof", "-replicaof"]), "OK");
    old
}

/// Waits until locks are taken at another server than the old primary, which would still grant
/// them.
async fn moves_on(group: &RedisSentinel, store: &Redis, old: &Server) {
    // Whatever the old one grants from now on stays with it.
    let new = group.wait_for_new_master();
    eventually("locks are taken at the new primary", async || {
        let _ = store.acquire(&request("fresh")).await;
        exists(new, "syncguard:fresh")
    })
    .await;
    assert!(old.cli(&["ROLE"]).starts_with("master"), "the old one has not been told");
}

#[tokio::test]
async fn the_word_of_a_sentinel_is_enough_to_leave_the_old_primary() {
    let group = RedisSentinel::start();
    let store = Redis::connect(&url(&group, group.master_name())).await.unwrap();
    granted(&store, &request("before")).await;
    let mut freed = store.subscribe(Topic::Freed(&key("order:42"))).await.unwrap();
    let old = deafen_master(&group);
    group.failover();
    moves_on(&group, &store, old).await;
    assert_eq!(soon("the listener moves on as well", freed.next()).await, Some(Event::Missed));
    let hears = async {
        loop {
            group.master().cli(&["PUBLISH", "syncguard:order:42:freed", ""]);
            let heard = tokio::time::timeout(Duration::from_millis(100), freed.next()).await;
            if heard.is_ok_and(|event| event == Some(Event::Freed)) {
                return;
            }
        }
    };
    soon("news of the new primary", hears).await;
}

#[tokio::test]
async fn another_sentinel_is_listened_to_when_the_first_is_gone() {
    let group = RedisSentinel::start();
    let [_, second, third] = group.sentinels() else { panic!("three sentinels") };
    let known = format!("redis+sentinel://127.0.0.1:{},127.0.0.1:{}/mymaster", third.port(), second.port());
    let store = Redis::connect(&known).await.unwrap();
    granted(&store, &request("before")).await;
    let old = deafen_master(&group);
    third.kill();
    group.failover();
    moves_on(&group, &store, old).await;
}

#[tokio::test]
async fn a_primary_whose_replicas_have_left_it_is_left_too() {
    let group = RedisSentinel::start();
    for server in group.servers() {
        assert_eq!(server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]), "OK");
    }
    for sentinel in group.sentinels() {
        // May ask, and not listen.
        sentinel.cli(&["ACL", "SETUSER", "watch", "on", ">another", "resetchannels", "+@all"]);
    }
    let url = format!("{}?sentinel_user=watch&sentinel_password=another", url(&group, group.master_name()));
    let store = Redis::connect(&url).await.unwrap();
    granted(&store, &request("before")).await;
    let old = deafen_master(&group);
    group.failover();
    moves_on(&group, &store, old).await;
}

#[tokio::test]
async fn a_primary_stays_in_use_while_all_sentinels_are_gone() {
    let group = RedisSentinel::start();
    let store = Redis::connect(&url(&group, group.master_name())).await.unwrap();
    let held = request("order:42");
    granted(&store, &held).await;
    group.sentinels().iter().for_each(|sentinel| sentinel.kill());
    for _ in 0..20 {
        store.extend(&held.lock_id, ttl(60_000)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_replica_that_a_sentinel_takes_for_the_primary_is_refused() {
    let group = RedisSentinel::start();
    let replica = group.servers().iter().find(|server| server.port() != group.master().port()).unwrap();
    for sentinel in group.sentinels() {
        // As one that has not heard of a failover yet.
        sentinel.cli(&["SENTINEL", "MONITOR", "outdated", "127.0.0.1", &replica.port().to_string(), "3"]);
    }
    let error = Redis::connect(&url(&group, "outdated")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error:?}");
    assert!(error.is_retryable() && error.hint().unwrap().contains("failover"), "{error:?}");
}

#[tokio::test]
async fn servers_and_sentinels_have_users_of_their_own() {
    let group = RedisSentinel::start();
    for server in group.servers() {
        server.cli(&["ACL", "SETUSER", "app", "on", ">hunter2secret", "~*", "&*", "+@all"]);
    }
    for sentinel in group.sentinels() {
        sentinel.cli(&["ACL", "SETUSER", "watch", "on", ">another", "&*", "+@all"]);
    }
    let url = url(&group, group.master_name()).replace("sentinel://", "sentinel://app:hunter2secret@");
    // A sentinel would refuse the user of the servers, and a server that of the sentinels.
    for url in [url.clone(), format!("{url}?sentinel_user=watch&sentinel_password=another")] {
        let store = Redis::connect(&url).await.unwrap();
        assert!(!store.is_locked(&key("order:42")).await.unwrap());
    }
    let unknown = url.replace("hunter2secret", "wrong-hunter2secret");
    for wrong in [unknown, format!("{url}?sentinel_user=watch&sentinel_password=hunter2secret")] {
        let error = Redis::connect(&wrong).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
        assert!(!everything_said(&error).contains("hunter2secret"));
    }
}
