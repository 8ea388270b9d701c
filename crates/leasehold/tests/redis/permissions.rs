//! What a user of the server must be allowed, and no more.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use leasehold::backend::{Acquire, AcquireAll, Backend, Event, LookupBy, Release, Topic};
use leasehold::redis::Redis;
use leasehold::{Check, ErrorCode, ListRequest, Locks, Steal, Verdict};
use test_servers::Redis as Server;
use test_support::redis::{RULES, now};
use test_support::{check, eventually, everything_said, granted, held, key, request, soon, stealing, ttl};

use crate::support::{connect, joining, permit, shared};

/// Makes a user with all that locks need but one rule, and connects as that user.
async fn user(server: &Server, without: &str) -> Redis {
    let rules: Vec<_> = RULES.into_iter().filter(|rule| *rule != without).collect();
    Redis::connect(&test_support::redis::user(server, "hunter2secret", &rules)).await.unwrap()
}

/// The rules that complaints tell to grant.
fn named(checks: &[Check]) -> BTreeSet<&str> {
    let complaints = checks.iter().filter(|check| check.verdict != Verdict::Ok);
    complaints
        .flat_map(|check| check.detail.split_whitespace())
        .filter(|word| word.starts_with(['+', '~', '&']))
        .collect()
}

#[test]
fn the_documentation_lists_exactly_these_permissions() {
    let documented = RULES.join(" ").replace("syncguard", "PREFIX");
    let pages = include_str!("../../../../docs/redis.md");
    assert!(pages.lines().any(|line| line == documented), "{documented}");
}

#[tokio::test]
async fn nothing_that_locks_do_is_denied_to_a_user_with_the_least_permissions() {
    let server = Server::start();
    let store = user(&server, "").await;
    server.cli(&["ACL", "LOG", "RESET"]);
    let held = request("order:42");
    granted(&store, &held).await;
    store.list(&ListRequest::new("order")).await.unwrap();
    let subscription = store.subscribe(Topic::Freed(&held.key)).await.unwrap();
    store.release(&held.lock_id).await.unwrap();
    drop(subscription);
    in_every_way(&store).await;
    assert_eq!(server.cli(&["ACL", "LOG"]), "");
}

/// Shared locks, permits and a line, from the first to the last.
async fn in_every_way(store: &Redis) {
    let (reader, mine) = (shared("order:1"), permit("order:2", 3));
    let waiters = [joining(request("order:1"), 60_000), joining(shared("order:1"), 60_000)];
    granted(store, &reader).await;
    granted(store, &mine).await;
    for waiter in &waiters {
        assert!(matches!(store.acquire(waiter).await.unwrap(), Acquire::Held(_)));
    }
    store.extend(&reader.lock_id, ttl(60_000)).await.unwrap();
    store.inspect(&reader.key).await.unwrap();
    assert_eq!(store.list(&ListRequest::new("")).await.unwrap().records.len(), 2);
    let subscription = store.subscribe(Topic::Turn(&waiters[0].key, &waiters[0].lock_id)).await.unwrap();
    store.release(&reader.lock_id).await.unwrap();
    store.release(&waiters[0].lock_id).await.unwrap();
    granted(store, &waiters[1]).await;
    drop(subscription);
    let all = [request("order:3"), permit("order:2", 3)];
    assert!(matches!(store.acquire_all(&all).await.unwrap(), AcquireAll::Granted(_)));
    for name in ["order:1", "order:2", "order:3"] {
        assert!(!store.force_release(&key(name), None).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn whoever_only_looks_needs_to_read_and_no_more() {
    let server = Server::start();
    let store = connect(&server).await;
    let (reader, waiter) = (shared("order:1"), joining(request("order:1"), 60_000));
    granted(&store, &reader).await;
    granted(&store, &request("order:2")).await;
    assert!(matches!(store.acquire(&waiter).await.unwrap(), Acquire::Held(_)));
    let rules = ["+@read", "+evalsha", "+eval", "+time", "~syncguard:*"];
    let looks = Redis::connect(&test_support::redis::user(&server, "hunter2secret", &rules)).await.unwrap();
    let inspected = looks.inspect(&reader.key).await.unwrap();
    assert_eq!((inspected.holders.len(), inspected.waiters.len()), (1, 1));
    assert_eq!(looks.lookup(LookupBy::Key(&reader.key)).await.unwrap().unwrap().lock_id, reader.lock_id);
    assert_eq!(looks.lookup(LookupBy::Id(&reader.lock_id)).await.unwrap().unwrap().lock_id, reader.lock_id);
    let page = looks.list(&ListRequest::new("")).await.unwrap();
    assert_eq!((page.records.len(), page.waiting), (2, HashMap::from([(reader.key.clone(), 1)])));
    assert_eq!(looks.release(&reader.lock_id).await.unwrap_err().code(), ErrorCode::AuthFailed);
    assert!(store.is_locked(&reader.key).await.unwrap());
}

#[tokio::test]
async fn plain_locks_work_without_the_permissions_for_lines() {
    let server = Server::start();
    for rule in ["+exists", "+zadd", "+zrange", "+zrangebyscore", "+pexpireat"] {
        let store = user(&server, rule).await;
        let plain = request("order:42");
        granted(&store, &plain).await;
        held(&store, &request("order:42")).await;
        store.extend(&plain.lock_id, ttl(60_000)).await.unwrap();
        // Whoever may take it only when it is older, and whoever may take it now.
        held(&store, &stealing("order:42", 1_000_000)).await;
        let thief = request("order:42").with_steal(Steal::NEVER.with_same_holder());
        granted(&store, &thief).await;
        assert_eq!(store.release(&thief.lock_id).await.unwrap(), Release::Released, "without {rule}");
    }
}

#[tokio::test]
async fn a_release_without_the_permissions_for_lines_is_whole_and_tells_who_waits() {
    let server = Server::start();
    let waits = connect(&server).await;
    for rule in ["+zadd", "+zrange", "+zrangebyscore"] {
        let store = user(&server, rule).await;
        let (plain, waiter) = (request("order:42"), joining(request("order:42"), 60_000));
        granted(&store, &plain).await;
        held(&waits, &waiter).await;
        let mut turn = waits.subscribe(Topic::Turn(&waiter.key, &waiter.lock_id)).await.unwrap();
        assert_eq!(store.release(&plain.lock_id).await.unwrap(), Release::Released, "without {rule}");
        assert!(!waits.is_locked(&waiter.key).await.unwrap(), "without {rule}");
        assert!(waits.lookup(LookupBy::Id(&plain.lock_id)).await.unwrap().is_none(), "without {rule}");
        assert_eq!(soon("it hears of it", turn.next()).await, Some(Event::Freed), "without {rule}");
        granted(&waits, &waiter).await;
        waits.release(&waiter.lock_id).await.unwrap();
    }
}

#[tokio::test]
async fn an_examination_names_exactly_the_permission_that_is_missing() {
    let server = Server::start();
    let checks = user(&server, "").await.examine().await.unwrap();
    assert_eq!(named(&checks), BTreeSet::new());
    assert_eq!(check(&checks, "listening").verdict, Verdict::Ok);
    for rule in RULES {
        // What the server remembers of the scripts would hide that one may not send them.
        server.cli(&["SCRIPT", "FLUSH"]);
        let store = user(&server, rule).await;
        let checks = store.examine().await.unwrap();
        assert_eq!(named(&checks), BTreeSet::from([rule]), "without {rule}: {checks:#?}");
        let for_wake_ups =
            ["+publish", "+pubsub|numsub", "+subscribe", "+unsubscribe", "+ping", "&syncguard:*"].contains(&rule);
        let for_listings = ["+exists", "+sadd", "+srem", "+srandmember", "+sscan", "+info"].contains(&rule);
        let worst = if for_wake_ups || for_listings { Verdict::Warn } else { Verdict::Fail };
        assert_eq!(checks.iter().map(|check| check.verdict).max(), Some(worst), "without {rule}: {checks:#?}");
        let unknown = checks.iter().any(|check| check.name == "configuration");
        assert_eq!(unknown, rule == "+info", "only INFO tells: {checks:#?}");
    }
}

#[tokio::test]
async fn a_missing_permission_is_an_authentication_error_of_the_operation() {
    let server = Server::start();
    for rule in ["+evalsha", "+eval", "+time", "+get", "+set", "~syncguard:*"] {
        server.cli(&["SCRIPT", "FLUSH"]);
        let store = user(&server, rule).await;
        let error = store.acquire(&request("order:42")).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::AuthFailed, "without {rule}: {error:?}");
        assert!(error.hint().unwrap().contains("doctor") && !error.is_retryable());
        assert!(!everything_said(&error).contains("hunter2secret"));
    }
}

#[tokio::test]
async fn locks_work_without_the_permission_to_tell_of_them() {
    let server = Server::start();
    for rule in ["+publish", "+pubsub|numsub", "&syncguard:*"] {
        let store = user(&server, rule).await;
        let held = request("order:42");
        granted(&store, &held).await;
        assert_eq!(store.release(&held.lock_id).await.unwrap(), Release::Released, "without {rule}");
        granted(&store, &held).await;
        let since = now(&server);
        eventually("a millisecond has passed", async || now(&server) > since + 1).await;
        assert!(matches!(store.acquire(&stealing("order:42", 0)).await.unwrap(), Acquire::Granted(_)));
        assert!(!store.force_release(&held.key, None).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn waiting_works_without_the_permission_to_listen() {
    let server = Server::start();
    let holder = Locks::new(user(&server, "").await);
    let guard = holder.lock("order:42").acquire().await.unwrap();
    let deaf = Locks::new(user(&server, "+subscribe").await);
    let waiting = tokio::spawn(async move { deaf.lock("order:42").wait(Duration::from_secs(15)).acquire().await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    guard.release().await.unwrap();
    soon("the lock", waiting).await.unwrap().unwrap().release().await.unwrap();
}
