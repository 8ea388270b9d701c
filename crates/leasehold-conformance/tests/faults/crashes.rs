//! A server that crashes and comes back with what it knew.

use std::time::Duration;

use leasehold::backend::{Acquire, AcquireRequest, Release};
use leasehold::{LockState, Locks};
use leasehold_conformance::history::{History, What};
use test_support::{Case, Setup, cases, connect, eventually, grant, request};

use crate::Store;
use crate::contest::Contest;
use crate::recorder::Recorder;
use crate::support::assert_sound;
use crate::turns::{acquire_recorded, name_of};

pub(crate) const CASES: &[Case] = cases![
    a_server_that_crashes_breaks_no_promise,
    a_lock_outlives_the_crash_of_its_server,
    a_lock_stays_held_through_the_restart_of_its_server,
];

const DURABLE: Setup = Setup { durable: true, password: None, tls: false };

/// Long enough to restart a server on a busy machine, short enough to wait for a third of it.
const TTL: Duration = Duration::from_secs(6);

/// The second call, if the first finds only that the connection is gone.
async fn acquire(client: &Recorder, request: &AcquireRequest) -> Acquire {
    match client.acquire(request).await {
        Ok(answer) => answer,
        Err(error) => {
            assert!(error.is_retryable(), "{error:?}");
            client.acquire(request).await.unwrap()
        }
    }
}

async fn a_server_that_crashes_breaks_no_promise(store: Store) {
    let server = store.server_with(&DURABLE);
    let url = server.url();
    Contest::new()
        .during(server, &url, |contest, server| {
            for _ in 0..4 {
                contest.await_grants(30);
                server.server().kill();
                contest.await_error();
                std::thread::sleep(Duration::from_millis(fastrand::u64(0..200)));
                server.server().restart();
            }
            contest.await_grants(30);
        })
        .await;
}

async fn a_lock_outlives_the_crash_of_its_server(store: Store) {
    let server = store.server_with(&DURABLE);
    let history = History::new();
    let holder = Recorder::new(connect(&server.url()).await, &history);
    let rival = Recorder::new(connect(&server.url()).await, &history);
    let held = request("k");
    let fence = grant(holder.acquire(&held).await).fence;
    server.server().kill();
    server.server().restart();
    assert!(matches!(acquire(&rival, &request("k")).await, Acquire::Held(_)));
    assert_eq!(grant(Ok(acquire(&holder, &held).await)).fence, fence, "the same grant, not another one");
    assert_eq!(holder.release(&held.lock_id).await.unwrap(), Release::Released);
    assert!(grant(rival.acquire(&request("k")).await).fence > fence);
    assert_sound(&history.events());
}

async fn a_lock_stays_held_through_the_restart_of_its_server(store: Store) {
    let server = store.server_with(&DURABLE);
    let history = History::new();
    let locks = Locks::new(connect(&server.url()).await);
    let others = Locks::new(connect(&server.url()).await);
    let guard = acquire_recorded(&locks, TTL, &history).await;
    server.server().kill();
    eventually("a renewal fails", async || guard.state() == LockState::Uncertain).await;
    let before = guard.expires_at();
    server.server().restart();
    eventually("renewals go on", async || guard.expires_at() > before).await;
    assert_eq!((guard.state(), guard.loss()), (LockState::Held, None));
    eventually("others see it held", async || matches!(others.lock("k").try_acquire().await, Ok(None))).await;
    history.record("k", &name_of(&guard), What::ReleaseSent);
    let fence = guard.fence();
    guard.release().await.unwrap();
    assert!(acquire_recorded(&others, TTL, &history).await.fence() > fence);
    assert_sound(&history.events());
}
