//! A server that crashes and comes back, with and without what it knew.

use std::time::Duration;

use leasehold::{Acquire, AcquireRequest, Release};
use leasehold_conformance::history::History;
use test_servers::Redis;

use crate::contest::Contest;
use crate::recorder::Recorder;
use crate::store::{Amnesia, connect};
use crate::support::{assert_sound, eventually, granted, key, request};

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

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_writes_everything_down_crashes_and_breaks_no_promise() {
    let server = Redis::builder().append_only("always").start();
    let url = server.url();
    Contest::new()
        .during(server, &url, |contest, server| {
            for _ in 0..6 {
                contest.await_grants(60);
                server.kill();
                contest.await_error();
                std::thread::sleep(Duration::from_millis(fastrand::u64(0..200)));
                server.restart();
            }
            contest.await_grants(60);
        })
        .await;
}

/// The server forgets who holds what, so two may hold a key until the first lease is over: nothing in the store can prevent
/// it. What it can promise is that the newer one has the higher fence, for the resource to refuse the older one, and that the
/// locks of one life of the server exclude each other.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_everything_repeats_no_fence() {
    let server = Redis::start();
    let url = server.url();
    Contest::new()
        .during(server, &url, |contest, server| {
            for _ in 0..6 {
                contest.await_grants(60);
                let amnesia = Amnesia::begins(&contest.history, Contest::keys());
                server.kill();
                contest.await_error();
                server.restart();
                assert_eq!(server.cli(&["CONFIG", "GET", "appendonly"]), "appendonly\nno");
                amnesia.over();
            }
            contest.await_grants(60);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_outlives_the_crash_of_a_server_that_writes_everything_down() {
    let server = Redis::builder().append_only("always").start();
    let history = History::new();
    let holder = Recorder::new(connect(&server.url()).await, &history);
    let rival = Recorder::new(connect(&server.url()).await, &history);
    let held = request("k");
    let fence = granted(holder.acquire(&held).await).fence;
    server.kill();
    server.restart();
    assert!(matches!(acquire(&rival, &request("k")).await, Acquire::Held(_)));
    assert_eq!(granted(Ok(acquire(&holder, &held).await)).fence, fence, "the same grant, not another one");
    assert_eq!(holder.release(&held.lock_id).await.unwrap(), Release::Released);
    assert!(granted(rival.acquire(&request("k")).await).fence > fence);
    assert_sound(&history.events());
}

#[tokio::test(flavor = "multi_thread")]
async fn fences_are_higher_after_the_counters_are_forgotten() {
    let server = Redis::start();
    let history = History::new();
    let client = Recorder::new(connect(&server.url()).await, &history);
    let mut fences = Vec::new();
    for _ in 0..100 {
        let request = request("k");
        fences.push(granted(client.acquire(&request).await).fence);
        client.release(&request.lock_id).await.unwrap();
    }
    server.kill();
    server.restart();
    assert_eq!(server.cli(&["DBSIZE"]), "0");
    eventually("the client finds the server again", async || client.store.is_locked(&key("k")).await.is_ok()).await;
    fences.push(granted(client.acquire(&request("k")).await).fence);
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
    assert_sound(&history.events());
}
