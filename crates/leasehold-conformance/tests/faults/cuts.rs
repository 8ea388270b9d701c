//! Connections that are cut at a request: before the server has seen it, or after it has done what
//! it was asked.

use std::sync::Arc;
use std::time::Duration;

use leasehold::backend::{Absence, Backend, Event, Extend, LookupBy, Record, Release, Subscription, Topic};
use leasehold::{Error, ListRequest, Loss, Operation, Ttl};
use leasehold_conformance::history::History;
use test_servers::Proxy;
use test_support::{Breakage, Broken, Case, Request, StoreServer, cases, connect, grant, key, request, soon};

use crate::Store;
use crate::recorder::Recorder;
use crate::support::{assert_sound, assert_unavailable};

pub(crate) const CASES: &[Case] = cases![
    an_acquire_that_is_cut_off_can_be_repeated_for_the_same_grant,
    a_release_that_is_cut_off_can_be_repeated_and_succeeds_once,
    an_extend_that_is_cut_off_can_be_repeated,
    a_forced_release_that_is_cut_off_can_be_repeated,
    questions_that_are_cut_off_can_be_repeated,
    a_subscription_that_is_cut_off_can_be_made_again,
    a_subscription_whose_connection_is_cut_goes_on_and_says_what_it_missed,
    a_request_that_never_left_is_known_not_to_have_landed,
];

/// When a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Before,
    After,
}

/// A client whose connection can be cut, and an onlooker whose connection cannot.
struct Stage {
    history: History,
    proxy: Proxy,
    client: Recorder,
    onlooker: Arc<dyn Backend>,
    server: Arc<dyn StoreServer>,
}

impl Stage {
    async fn set(store: Store) -> Self {
        let server = store.server();
        let proxy = Proxy::start(server.server().address());
        let history = History::new();
        let client = Recorder::new(connect(&server.url_at(proxy.address(), None)).await, &history);
        let stage = Self { onlooker: connect(&server.url()).await, history, proxy, client, server };
        // A server that keeps scripts learns them, so that each operation is one request from here
        // on.
        let known = request("known");
        grant(stage.client.acquire(&known).await);
        stage.client.extend(&known.lock_id, Ttl::default()).await.unwrap();
        stage.client.release(&known.lock_id).await.unwrap();
        stage.client.force_release(&known.key, None).await.unwrap();
        stage.client.store.is_locked(&known.key).await.unwrap();
        stage.client.store.lookup(LookupBy::Id(&known.lock_id)).await.unwrap();
        stage.client.store.list(&ListRequest::new("")).await.unwrap();
        stage
    }

    /// The next request of this kind is cut off.
    fn cut(&self, cut: Cut, request: Request) -> Broken<'_> {
        let how = match cut {
            Cut::Before => Breakage::CutBefore,
            Cut::After => Breakage::CutAfter,
        };
        self.server.break_next(&self.proxy, request, how)
    }

    async fn seen(&self, name: &str) -> Option<Record> {
        self.onlooker.lookup(LookupBy::Key(&key(name))).await.unwrap()
    }

    fn end(self) {
        assert_sound(&self.history.events());
    }
}

/// A write that was cut off may have landed, and whoever sent it cannot know.
#[track_caller]
fn assert_cut_off(rule: &Broken<'_>, error: &Error, operation: Operation) {
    assert!(rule.wait_fired(), "the request was not seen");
    assert_unavailable(error, "connection to the server was lost", true);
    assert_eq!(error.operation(), Some(operation));
}

async fn an_acquire_that_is_cut_off_can_be_repeated_for_the_same_grant(store: Store) {
    let stage = Stage::set(store).await;
    for cut in [Cut::Before, Cut::After] {
        let (name, rule) = (format!("{cut:?}"), stage.cut(cut, Request::Change));
        let wanted = request(&name);
        let error = stage.client.acquire(&wanted).await.map(drop).unwrap_err();
        assert_cut_off(&rule, &error, Operation::Acquire);
        let landed = stage.seen(&name).await;
        assert_eq!(landed.is_some(), cut == Cut::After);
        let repeated = grant(stage.client.acquire(&wanted).await);
        let now = stage.seen(&name).await.unwrap();
        assert_eq!((now.fence, now.lock_id), (repeated.fence, wanted.lock_id));
        if let Some(landed) = landed {
            assert_eq!((landed.fence, landed.expires_at), (repeated.fence, repeated.expires_at));
        }
    }
    stage.end();
}

async fn a_release_that_is_cut_off_can_be_repeated_and_succeeds_once(store: Store) {
    let stage = Stage::set(store).await;
    for cut in [Cut::Before, Cut::After] {
        let held = request("k");
        grant(stage.client.acquire(&held).await);
        let rule = stage.cut(cut, Request::Change);
        let error = stage.client.release(&held.lock_id).await.unwrap_err();
        assert_cut_off(&rule, &error, Operation::Release);
        let (landed, repeated) = match cut {
            Cut::Before => (false, Release::Released),
            Cut::After => (true, Release::Absent(Absence::NotFound)),
        };
        assert_eq!(stage.seen("k").await.is_none(), landed);
        assert_eq!(stage.client.release(&held.lock_id).await.unwrap(), repeated);
        assert!(stage.seen("k").await.is_none());
    }
    stage.end();
}

async fn an_extend_that_is_cut_off_can_be_repeated(store: Store) {
    let stage = Stage::set(store).await;
    for cut in [Cut::Before, Cut::After] {
        let held = request(&format!("{cut:?}"));
        let grant = grant(stage.client.acquire(&held).await);
        let rule = stage.cut(cut, Request::Change);
        let longer = Ttl::from_millis(3_600_000).unwrap();
        let error = stage.client.extend(&held.lock_id, longer).await.unwrap_err();
        assert_cut_off(&rule, &error, Operation::Extend);
        let seen = stage.seen(held.key.as_str()).await.unwrap();
        assert_eq!((seen.expires_at > grant.expires_at, seen.fence), (cut == Cut::After, grant.fence));
        let Extend::Extended { expires_at } = stage.client.extend(&held.lock_id, longer).await.unwrap() else {
            panic!("the lock is held")
        };
        let seen = stage.seen(held.key.as_str()).await.unwrap();
        assert_eq!((seen.expires_at, seen.fence), (expires_at, grant.fence));
        assert!(expires_at > grant.expires_at);
    }
    stage.end();
}

async fn a_forced_release_that_is_cut_off_can_be_repeated(store: Store) {
    let stage = Stage::set(store).await;
    for cut in [Cut::Before, Cut::After] {
        let held = request(&format!("{cut:?}"));
        grant(stage.client.acquire(&held).await);
        let rule = stage.cut(cut, Request::Change);
        let error = stage.client.force_release(&held.key, None).await.unwrap_err();
        assert_cut_off(&rule, &error, Operation::ForceRelease);
        assert_eq!(stage.seen(held.key.as_str()).await.is_none(), cut == Cut::After);
        match stage.client.force_release(&held.key, None).await.unwrap().first() {
            Some(record) => assert_eq!((record.lock_id, cut), (held.lock_id, Cut::Before)),
            _ => assert_eq!(cut, Cut::After),
        }
        assert!(stage.seen(held.key.as_str()).await.is_none());
    }
    stage.end();
}

async fn questions_that_are_cut_off_can_be_repeated(store: Store) {
    let stage = Stage::set(store).await;
    let held = request("k");
    grant(stage.client.acquire(&held).await);
    let store = &stage.client.store;
    let (by_key, by_id) = (LookupBy::Key(&held.key), LookupBy::Id(&held.lock_id));
    let everything = ListRequest::new("");
    let interrupted = |rule: Broken<'_>, error: Error, operation| {
        assert!(rule.wait_fired() && error.is_retryable(), "{error:?}");
        assert_eq!(error.operation(), Some(operation));
    };
    for cut in [Cut::Before, Cut::After] {
        let rule = stage.cut(cut, Request::Question);
        interrupted(rule, store.is_locked(&held.key).await.unwrap_err(), Operation::IsLocked);
        assert!(store.is_locked(&held.key).await.unwrap());
        for by in [by_key, by_id] {
            let rule = stage.cut(cut, Request::Question);
            interrupted(rule, store.lookup(by).await.unwrap_err(), Operation::Lookup);
            assert_eq!(store.lookup(by).await.unwrap().unwrap().lock_id, held.lock_id);
        }
        let rule = stage.cut(cut, Request::Question);
        interrupted(rule, store.list(&everything).await.unwrap_err(), Operation::List);
        assert_eq!(store.list(&everything).await.unwrap().records.len(), 1);
    }
    stage.end();
}

async fn next(subscription: &mut Subscription) -> Option<Event> {
    soon("a wake-up", subscription.next()).await
}

async fn a_subscription_that_is_cut_off_can_be_made_again(store: Store) {
    let stage = Stage::set(store).await;
    for cut in [Cut::Before, Cut::After] {
        let held = request(&format!("{cut:?}"));
        grant(stage.client.acquire(&held).await);
        let rule = stage.cut(cut, Request::Subscription);
        let error = stage.client.store.subscribe(Topic::Freed(&held.key)).await.unwrap_err();
        assert!(rule.wait_fired() && error.is_retryable() && !error.outcome_unknown(), "{error:?}");
        assert_eq!(error.operation(), Some(Operation::Subscribe));
        let mut freed = stage.client.store.subscribe(Topic::Freed(&held.key)).await.unwrap();
        // It may have been told that it missed something, which is no more than a reason to look.
        let _ = tokio::time::timeout(Duration::ZERO, freed.next()).await;
        assert_eq!(stage.onlooker.release(&held.lock_id).await.unwrap(), Release::Released);
        assert_eq!(next(&mut freed).await, Some(Event::Freed));
    }
    stage.end();
}

async fn a_subscription_whose_connection_is_cut_goes_on_and_says_what_it_missed(store: Store) {
    let stage = Stage::set(store).await;
    let held = request("k");
    let mut freed = stage.client.store.subscribe(Topic::Freed(&held.key)).await.unwrap();
    let mut taken = stage.client.store.subscribe(Topic::Taken).await.unwrap();
    for _ in 0..3 {
        let fence = grant(stage.client.acquire(&held).await).fence;
        stage.proxy.cut_all();
        assert_eq!(next(&mut freed).await, Some(Event::Missed));
        assert_eq!(next(&mut taken).await, Some(Event::Missed));
        assert!(!stage.onlooker.force_release(&held.key, None).await.unwrap().is_empty());
        assert_eq!(next(&mut freed).await, Some(Event::Freed));
        let how = Loss::ForceReleased;
        assert_eq!(next(&mut taken).await, Some(Event::Taken { key: held.key.clone(), fence, how }));
    }
}

async fn a_request_that_never_left_is_known_not_to_have_landed(store: Store) {
    let stage = Stage::set(store).await;
    stage.proxy.refuse();
    stage.proxy.cut_all();
    let wanted = request("k");
    // The first may find the old connection and only then that it is gone.
    let error = loop {
        let error = stage.client.acquire(&wanted).await.map(drop).unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        if !error.outcome_unknown() {
            break error;
        }
    };
    assert_eq!(error.operation(), Some(Operation::Acquire));
    assert!(stage.seen("k").await.is_none());
    stage.proxy.accept();
    grant(stage.client.acquire(&wanted).await);
    stage.end();
}
