//! What a user of the server must be allowed, and no more.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold::{
    Acquire, Backend, Check, ErrorCode, Event, Extend, ForceRelease, ListRequest, Locks, LookupBy, Redis, Release,
    Topic, Verdict,
};
use test_servers::Redis as Server;

use crate::support::{check, eventually, everything_said, granted, key, now, request, soon, stealing, ttl};

/// Everything that locks need.
const RULES: [&str; 14] = [
    "+evalsha",
    "+eval",
    "+time",
    "+get",
    "+set",
    "+mget",
    "+del",
    "+scan",
    "+publish",
    "+subscribe",
    "+unsubscribe",
    "+ping",
    "~syncguard:*",
    "&syncguard:*",
];

/// Makes a user with all these rules but one, and connects as that user.
async fn user(server: &Server, without: &str) -> Redis {
    let rules = RULES.iter().filter(|rule| **rule != without);
    let command: Vec<_> =
        ["ACL", "SETUSER", "app", "reset", "on", ">hunter2secret"].into_iter().chain(rules.copied()).collect();
    assert_eq!(server.cli(&command), "OK");
    Redis::connect(&format!("redis://app:hunter2secret@127.0.0.1:{}", server.port())).await.unwrap()
}

/// The rules that complaints tell to grant.
fn named(checks: &[Check]) -> BTreeSet<&str> {
    let complaints = checks.iter().filter(|check| check.verdict != Verdict::Ok);
    complaints
        .flat_map(|check| check.detail.split_whitespace())
        .filter(|word| word.starts_with(['+', '~', '&']))
        .collect()
}

#[tokio::test]
async fn the_least_permissions_are_enough_for_everything() {
    let server = Server::start();
    let store = user(&server, "").await;
    let checks = store.examine().await.unwrap();
    assert_eq!(named(&checks), BTreeSet::new());
    assert_eq!(check(&checks, "permissions").verdict, Verdict::Ok);
    assert_eq!(check(&checks, "listening").verdict, Verdict::Ok);
    assert_eq!(check(&checks, "configuration").verdict, Verdict::Warn, "only INFO would tell");

    let mut freed = store.subscribe(Topic::Freed(&key("order:42"))).await.unwrap();
    let mut taken = store.subscribe(Topic::Taken).await.unwrap();
    let held = request("order:42");
    granted(&store, &held).await;
    assert!(matches!(store.extend(&held.lock_id, ttl(60_000)).await.unwrap(), Extend::Extended { .. }));
    assert!(store.is_locked(&held.key).await.unwrap());
    assert!(store.lookup(LookupBy::Key(&held.key)).await.unwrap().is_some());
    assert!(store.lookup(LookupBy::Id(&held.lock_id)).await.unwrap().is_some());
    assert_eq!(store.list(&ListRequest::new("")).await.unwrap().records.len(), 1);
    assert_eq!(store.release(&held.lock_id).await.unwrap(), Release::Released);
    assert_eq!(soon("the news", freed.next()).await, Some(Event::Freed));
    granted(&store, &held).await;
    store.force_release(&held.key).await.unwrap();
    assert!(matches!(soon("the news", taken.next()).await, Some(Event::Taken { .. })));
    drop(freed);

    let locks = Locks::new(store);
    let guard = locks.lock("guarded").ttl(Duration::from_millis(300)).acquire().await.unwrap();
    let first = guard.expires_at();
    eventually("a renewal", || guard.expires_at() > first).await;
    guard.release().await.unwrap();
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
    assert_eq!(server.cli(&["ACL", "LOG"]), "");
}

#[tokio::test]
async fn an_examination_names_exactly_the_permission_that_is_missing() {
    let server = Server::start();
    for rule in RULES {
        // What the server remembers of the scripts would hide that one may not send them.
        server.cli(&["SCRIPT", "FLUSH"]);
        let store = user(&server, rule).await;
        let checks = store.examine().await.unwrap();
        assert_eq!(named(&checks), BTreeSet::from([rule]), "without {rule}: {checks:#?}");
        let for_news = ["+publish", "+subscribe", "+unsubscribe", "+ping", "&syncguard:*"].contains(&rule);
        let worst = if for_news { Verdict::Warn } else { Verdict::Fail };
        assert_eq!(checks.iter().map(|check| check.verdict).max(), Some(worst), "without {rule}: {checks:#?}");
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
    for rule in ["+publish", "&syncguard:*"] {
        let store = user(&server, rule).await;
        let held = request("order:42");
        granted(&store, &held).await;
        assert_eq!(store.release(&held.lock_id).await.unwrap(), Release::Released, "without {rule}");
        granted(&store, &held).await;
        let since = now(&server);
        eventually("a millisecond has passed", || now(&server) > since + 1).await;
        assert!(matches!(store.acquire(&stealing("order:42", 0)).await.unwrap(), Acquire::Granted(_)));
        assert!(matches!(store.force_release(&held.key).await.unwrap(), ForceRelease::Released(_)));
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
