//! Replicas: one that refuses writes, and one that takes over without the last of them.

use leasehold::backend::{Absence, Acquire, Extend, LookupBy, Release, Topic};
use leasehold::{ListRequest, Ttl};
use leasehold_conformance::history::History;
use test_servers::{Proxy, Redis};
use test_support::{Case, cases_of_one_store, connect, eventually, grant, key, request, soon};

use super::amnesia::Amnesia;
use crate::contest::Contest;
use crate::recorder::Recorder;
use crate::support::{assert_sound, assert_unavailable};

pub(crate) const CASES: &[Case] = cases_of_one_store![
    fences_rise_over_a_failover_that_loses_the_last_writes,
    clients_that_are_busy_during_a_failover_see_no_fence_twice,
    a_replica_answers_questions_and_refuses_writes_until_it_is_promoted,
];

/// A primary, and a replica that hears of it through a proxy.
struct Pair {
    primary: Redis,
    between: Proxy,
    replica: Redis,
}

impl Pair {
    fn start() -> Self {
        let primary = Redis::start();
        let between = Proxy::start(primary.address());
        let replica = Redis::with(&["--replicaof", "127.0.0.1", &between.port().to_string()]);
        Self { primary, between, replica }
    }

    /// Whichever of the two can be reached first.
    fn url(&self) -> String {
        format!("redis://127.0.0.1:{},127.0.0.1:{}", self.primary.port(), self.replica.port())
    }

    /// From now on the replica hears nothing more.
    fn sever(&self) {
        self.between.stall_all();
    }

    fn promote_replica(&self) {
        assert_eq!(self.replica.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    }
}

async fn fences_rise_over_a_failover_that_loses_the_last_writes() {
    let pair = Pair::start();
    let history = History::new();
    let client = Recorder::new(connect(&pair.url()).await, &history);
    let rival = Recorder::new(connect(&pair.url()).await, &history);
    let kept = request("kept");
    grant(client.acquire(&kept).await);
    eventually("the replica hears of the lock", async || pair.replica.cli(&["EXISTS", "syncguard:kept"]) == "1").await;

    pair.sever();
    let mut last = None;
    for _ in 0..20 {
        let request = request("lost");
        last = Some(grant(client.acquire(&request).await).fence);
        client.release(&request.lock_id).await.unwrap();
    }
    let forgotten = request("lost");
    let before = grant(client.acquire(&forgotten).await).fence;
    assert!(Some(before) > last);
    let amnesia = Amnesia::begins(&history, [key("lost")]);
    pair.primary.kill();
    pair.promote_replica();
    amnesia.over();
    assert_eq!(pair.replica.cli(&["EXISTS", "syncguard:lost", "syncguard:fence:syncguard:lost"]), "0");

    for moved in [&client, &rival] {
        eventually("a client moves over", async || moved.store.is_locked(&key("kept")).await.is_ok()).await;
    }
    assert!(grant(rival.acquire(&request("lost")).await).fence > before);
    assert_eq!(client.extend(&forgotten.lock_id, Ttl::default()).await.unwrap(), Extend::Absent(Absence::NotFound));
    assert!(matches!(rival.acquire(&request("kept")).await.unwrap(), Acquire::Held(_)), "what was replicated is held");
    assert_eq!(client.release(&kept.lock_id).await.unwrap(), Release::Released);
    assert_sound(&history.events());
}

async fn clients_that_are_busy_during_a_failover_see_no_fence_twice() {
    let pair = Pair::start();
    let url = pair.url();
    Contest::new()
        .during(pair, &url, |contest, pair| {
            contest.await_grants(30);
            pair.sever();
            contest.await_grants(50);
            let amnesia = Amnesia::begins(&contest.history, Contest::keys());
            pair.primary.kill();
            // Until then the replica refuses to write.
            contest.await_error();
            pair.promote_replica();
            amnesia.over();
            contest.await_grants(50);
        })
        .await;
}

async fn a_replica_answers_questions_and_refuses_writes_until_it_is_promoted() {
    let pair = Pair::start();
    let history = History::new();
    let primary = Recorder::new(connect(&pair.primary.url()).await, &history);
    let replica = Recorder::new(connect(&pair.replica.url()).await, &history);
    let held = request("k");
    let fence = grant(primary.acquire(&held).await).fence;
    eventually("the replica hears of it", async || replica.store.is_locked(&held.key).await.unwrap()).await;

    let seen = replica.store.lookup(LookupBy::Key(&held.key)).await.unwrap().unwrap();
    assert_eq!((seen.lock_id, seen.fence), (held.lock_id, fence));
    let seen = replica.store.lookup(LookupBy::Id(&held.lock_id)).await.unwrap().unwrap();
    assert_eq!(seen.key, held.key);
    assert_eq!(replica.store.list(&ListRequest::new("")).await.unwrap().records.len(), 1);
    let mut freed = replica.store.subscribe(Topic::Freed(&held.key)).await.unwrap();

    let other = request("other");
    let refused = [
        replica.acquire(&other).await.map(drop).unwrap_err(),
        replica.store.release(&held.lock_id).await.map(drop).unwrap_err(),
        replica.store.extend(&held.lock_id, Ttl::default()).await.map(drop).unwrap_err(),
        replica.store.force_release(&held.key, None).await.map(drop).unwrap_err(),
    ];
    for error in &refused {
        assert_unavailable(error, "read-only replica", false);
    }
    assert_eq!(primary.release(&held.lock_id).await.unwrap(), Release::Released, "nobody has released it");
    let woken = soon("a wake-up that the replica passes on", freed.next()).await;
    assert_eq!(woken, Some(leasehold::backend::Event::Freed));

    pair.primary.kill();
    pair.promote_replica();
    grant(replica.acquire(&other).await);
    assert!(grant(replica.acquire(&request("k")).await).fence > fence);
    assert_sound(&history.events());
}
