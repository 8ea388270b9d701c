//! Guards held through the crash of a server.

use std::time::Duration;

use leasehold::{Guard, LockState, Locks, Loss};
use leasehold_conformance::history::{History, What};
use test_servers::Redis;

use crate::store::{Amnesia, connect};
use crate::support::{assert_sound, eventually, in_time, key};
use crate::turns::record_grant;

/// Long enough to restart a server on a busy machine, short enough to wait for a third of it.
const TTL: Duration = Duration::from_secs(6);

async fn acquire(locks: &Locks, history: &History) -> Guard {
    let sent = history.now();
    let guard = locks.lock("k").ttl(TTL).acquire().await.unwrap();
    history.record_at(sent, "k", &name(&guard), What::AcquireSent { may_steal: false });
    record_grant(history, &guard);
    guard
}

fn name(guard: &Guard) -> String {
    guard.lock_id().hash_id().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_stays_held_through_the_restart_of_a_server_that_kept_it() {
    let server = Redis::builder().append_only("always").start();
    let history = History::new();
    let locks = Locks::new(connect(&server.url()).await);
    let others = Locks::new(connect(&server.url()).await);
    let guard = acquire(&locks, &history).await;
    server.kill();
    eventually("a renewal fails", async || guard.state() == LockState::Uncertain).await;
    let before = guard.expires_at();
    server.restart();
    eventually("renewals go on", async || guard.expires_at() > before).await;
    assert_eq!((guard.state(), guard.loss()), (LockState::Held, None));
    eventually("others see it held", async || matches!(others.lock("k").try_acquire().await, Ok(None))).await;
    history.record("k", &name(&guard), What::ReleaseSent);
    let fence = guard.fence();
    guard.release().await.unwrap();
    assert!(acquire(&others, &history).await.fence() > fence);
    assert_sound(&history.events());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_is_told_when_the_server_comes_back_without_its_lock() {
    let server = Redis::start();
    let history = History::new();
    let locks = Locks::new(connect(&server.url()).await);
    let others = Locks::new(connect(&server.url()).await);
    let guard = acquire(&locks, &history).await;
    let amnesia = Amnesia::begins(&history, [key("k")]);
    server.kill();
    server.restart();
    amnesia.over();
    // The answer to a renewal, long before the deadline.
    assert_eq!(in_time("a loss that is not told", guard.lost()).await, Loss::Gone);
    history.record("k", &name(&guard), What::Lost);
    assert_eq!(guard.state(), LockState::Lost);
    let next = acquire(&others, &history).await;
    assert!(next.fence() > guard.fence());
    assert_eq!(guard.release().await.unwrap_err().loss(), Some(Loss::Gone));
    assert!(others.is_locked(&key("k")).await.unwrap(), "the lock of the next one is left alone");
    assert_sound(&history.events());
}
