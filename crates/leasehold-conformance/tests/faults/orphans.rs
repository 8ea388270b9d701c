//! An acquire that failed in the middle leaves no lock behind.

use std::time::Duration;

use leasehold::backend::{Backend, LookupBy};
use leasehold::{ListRequest, Locks};
use leasehold_conformance::history::{History, What};
use test_servers::Proxy;
use test_support::{Breakage, Case, Request, StoreServer, cases, connect, eventually, key, with_option};

use crate::Store;
use crate::support::assert_sound;
use crate::turns::{acquire_recorded, name_of};

pub(crate) const CASES: &[Case] = cases![
    a_single_try_that_was_granted_without_an_answer_is_undone,
    an_acquire_dropped_before_its_answer_is_undone,
    a_patient_acquire_finds_the_grant_whose_answer_was_lost,
    a_guard_dropped_while_the_server_is_away_is_released_when_it_is_back,
    runtimes_dropped_in_the_middle_of_acquires_leave_no_lock,
];

/// So long that no lock in these tests goes away by itself.
const TTL: Duration = Duration::from_secs(3600);

/// A handle of a server that knows the scripts, if it keeps any.
async fn handle(server: &dyn StoreServer, proxy: &Proxy, option: &str) -> Locks {
    let locks = Locks::new(connect(&with_option(&server.url_at(proxy.address(), None), option)).await);
    locks.lock("known").acquire().await.unwrap().release().await.unwrap();
    locks
}

async fn a_single_try_that_was_granted_without_an_answer_is_undone(store: Store) {
    let server = store.server();
    let proxy = Proxy::start(server.server().address());
    let (locks, onlooker) = (handle(&*server, &proxy, "timeout=0.5s").await, connect(&server.url()).await);
    for how in [Breakage::CutAfter, Breakage::Stall] {
        let rule = server.break_next(&proxy, Request::Change, how);
        let error = locks.lock("k").ttl(TTL).try_acquire().await.unwrap_err();
        assert!(error.outcome_unknown() && error.is_retryable(), "{error:?}");
        assert!(rule.wait_fired());
        eventually("the orphan is released", async || !onlooker.is_locked(&key("k")).await.unwrap()).await;
    }
}

async fn an_acquire_dropped_before_its_answer_is_undone(store: Store) {
    let server = store.server();
    let proxy = Proxy::start(server.server().address());
    let (locks, onlooker) = (handle(&*server, &proxy, "timeout=2s").await, connect(&server.url()).await);
    let rule = server.break_next(&proxy, Request::Change, Breakage::Stall);
    let acquiring = tokio::spawn(locks.lock("k").ttl(TTL).acquire());
    eventually("the server grants it", async || onlooker.is_locked(&key("k")).await.unwrap()).await;
    assert!(rule.wait_fired());
    acquiring.abort();
    assert!(acquiring.await.unwrap_err().is_cancelled());
    eventually("the orphan is released", async || !onlooker.is_locked(&key("k")).await.unwrap()).await;
}

async fn a_patient_acquire_finds_the_grant_whose_answer_was_lost(store: Store) {
    let server = store.server();
    let proxy = Proxy::start(server.server().address());
    let (locks, onlooker) = (handle(&*server, &proxy, "timeout=0.5s").await, connect(&server.url()).await);
    let history = History::new();
    let mut last = None;
    for round in [Breakage::CutBefore, Breakage::CutAfter, Breakage::Stall] {
        let rule = server.break_next(&proxy, Request::Change, round);
        let connections = proxy.counts().connections;
        let guard = acquire_recorded(&locks, TTL, &history).await;
        assert!(rule.wait_fired() && proxy.counts().connections > connections, "{round:?}");
        let record = onlooker.lookup(LookupBy::Key(&key("k"))).await.unwrap().unwrap();
        assert_eq!((record.fence, &record.lock_id), (guard.fence(), guard.lock_id()), "{round:?}");
        assert!(Some(guard.fence()) > last);
        last = Some(guard.fence());
        history.record("k", &name_of(&guard), What::ReleaseSent);
        guard.release().await.unwrap();
        assert!(!onlooker.is_locked(&key("k")).await.unwrap(), "{round:?}");
    }
    assert_sound(&history.events());
}

async fn a_guard_dropped_while_the_server_is_away_is_released_when_it_is_back(store: Store) {
    let server = store.server();
    let proxy = Proxy::start(server.server().address());
    let (locks, onlooker) = (handle(&*server, &proxy, "timeout=0.5s").await, connect(&server.url()).await);
    let guard = locks.lock("k").ttl(TTL).acquire().await.unwrap();
    proxy.refuse();
    proxy.cut_all();
    drop(guard);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(onlooker.is_locked(&key("k")).await.unwrap());
    proxy.accept();
    eventually("the lock is given back", async || !onlooker.is_locked(&key("k")).await.unwrap()).await;
}

/// How many runtimes of a handle are dropped, and how many acquires each is in the middle of.
const RUNTIMES: u64 = 20;
const ACQUIRES: u64 = 5;

/// Has a runtime of its own begin some acquires, and ends it and them a moment later.
fn cut_short(locks: &Locks, round: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // Connections are made.
        drop(locks.lock(format!("first-{round}")).ttl(TTL).acquire().await.unwrap());
        for n in 0..ACQUIRES {
            tokio::spawn(locks.lock(format!("{round}-{n}")).ttl(TTL).acquire());
        }
        tokio::time::sleep(Duration::from_micros(round * 7919 % 4000)).await;
    });
}

async fn all_locks(store: &dyn Backend) -> usize {
    store.list(&ListRequest::new("").with_page_size(ListRequest::MAX_PAGE_SIZE)).await.unwrap().records.len()
}

async fn runtimes_dropped_in_the_middle_of_acquires_leave_no_lock(store: Store) {
    let server = store.server();
    let onlooker = connect(&server.url()).await;
    for handle in 0..3 {
        let locks = Locks::new(connect(&with_option(&server.url(), "timeout=1s")).await);
        let cut = tokio::task::spawn_blocking(move || {
            for round in 0..RUNTIMES {
                cut_short(&locks, handle * RUNTIMES + round);
            }
        });
        cut.await.unwrap();
    }
    // Some come after their release, whose handle is gone by then.
    eventually("no lock is left", async || all_locks(&*onlooker).await == 0).await;
}
