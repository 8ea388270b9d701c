//! A server that crashes and comes back without what it knew.

use std::time::Duration;

use leasehold::{LockState, Locks, Loss};
use leasehold_conformance::history::{History, What};
use test_servers::Redis;
use test_support::{Case, cases_of_one_store, connect, eventually, grant, key, request, soon};

use super::amnesia::Amnesia;
use crate::contest::Contest;
use crate::recorder::Recorder;
use crate::support::assert_sound;
use crate::turns::{acquire_recorded, name_of};

pub(crate) const CASES: &[Case] = cases_of_one_store![
    a_server_that_forgets_everything_repeats_no_fence,
    fences_are_higher_after_the_counters_are_forgotten,
    a_holder_is_told_when_the_server_comes_back_without_its_lock,
];

/// Long enough to restart a server on a busy machine, short enough to wait for a third of it.
const TTL: Duration = Duration::from_secs(6);

/// The server forgets who holds what, so two may hold a key until the first lease is over: nothing
/// in the store can prevent it. What it can promise is that the newer one has the higher fence, for
/// the resource to refuse the older one, and that the locks of one life of the server exclude each
/// other.
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

async fn fences_are_higher_after_the_counters_are_forgotten() {
    let server = Redis::start();
    let history = History::new();
    let client = Recorder::new(connect(&server.url()).await, &history);
    let mut fences = Vec::new();
    for _ in 0..100 {
        let request = request("k");
        fences.push(grant(client.acquire(&request).await).fence);
        client.release(&request.lock_id).await.unwrap();
    }
    server.kill();
    server.restart();
    assert_eq!(server.cli(&["DBSIZE"]), "0");
    eventually("the client finds the server again", async || client.store.is_locked(&key("k")).await.is_ok()).await;
    fences.push(grant(client.acquire(&request("k")).await).fence);
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
    assert_sound(&history.events());
}

async fn a_holder_is_told_when_the_server_comes_back_without_its_lock() {
    let server = Redis::start();
    let history = History::new();
    let locks = Locks::new(connect(&server.url()).await);
    let others = Locks::new(connect(&server.url()).await);
    let guard = acquire_recorded(&locks, TTL, &history).await;
    let amnesia = Amnesia::begins(&history, [key("k")]);
    server.kill();
    server.restart();
    amnesia.over();
    // The answer to a renewal, long before the deadline.
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Gone);
    history.record("k", &name_of(&guard), What::Lost);
    assert_eq!(guard.state(), LockState::Lost);
    let next = acquire_recorded(&others, TTL, &history).await;
    assert!(next.fence() > guard.fence());
    assert_eq!(guard.release().await.unwrap_err().loss(), Some(Loss::Gone));
    assert!(others.is_locked(&key("k")).await.unwrap(), "the lock of the next one is left alone");
    assert_sound(&history.events());
}
