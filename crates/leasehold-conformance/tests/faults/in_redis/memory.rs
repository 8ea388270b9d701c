//! Servers whose memory is full.

use std::time::Duration;

use leasehold::backend::{Acquire, Backend, Extend, LookupBy, Release};
use leasehold::{ListRequest, Locks, Loss, Ttl};
use leasehold_conformance::history::History;
use test_servers::Redis;
use test_support::{Case, cases_of_one_store, connect, grant, key, request, soon};

use super::amnesia::Amnesia;
use crate::recorder::Recorder;
use crate::support::{assert_sound, assert_unavailable};

pub(crate) const CASES: &[Case] = cases_of_one_store![
    a_server_out_of_memory_grants_and_extends_nothing_and_releases_everything,
    a_steal_without_memory_takes_nothing_from_the_holder,
    a_holder_whose_renewals_find_no_memory_is_told_at_its_deadline,
    fences_rise_though_their_counters_are_evicted,
];

/// More than the server has from now on, whatever it does.
fn run_out_of_memory(server: &Redis) {
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    assert!(server.cli(&["SET", "anything", "at all"]).starts_with("OOM"));
}

fn all_names(server: &Redis) -> Vec<String> {
    let mut names: Vec<String> = server.cli(&["KEYS", "*"]).lines().map(str::to_owned).collect();
    names.sort();
    names
}

async fn a_server_out_of_memory_grants_and_extends_nothing_and_releases_everything() {
    let server = Redis::with(&["--maxmemory-policy", "noeviction"]);
    let history = History::new();
    let client = Recorder::new(connect(&server.url()).await, &history);
    let (held, forced) = (request("held"), request("forced"));
    let fence = grant(client.acquire(&held).await).fence;
    grant(client.acquire(&forced).await);
    let before = client.store.lookup(LookupBy::Key(&held.key)).await.unwrap().unwrap();
    let names = all_names(&server);
    assert_eq!(names.len(), 7, "{names:?}");

    run_out_of_memory(&server);
    let refused = request("refused");
    assert_unavailable(&client.acquire(&refused).await.map(drop).unwrap_err(), "out of memory", false);
    let longer = Ttl::from_millis(3_600_000).unwrap();
    assert_unavailable(&client.extend(&held.lock_id, longer).await.map(drop).unwrap_err(), "out of memory", false);
    assert_eq!(all_names(&server), names, "nothing half-done is left");
    assert_eq!(client.store.lookup(LookupBy::Key(&held.key)).await.unwrap().unwrap(), before);
    assert!(!client.store.is_locked(&refused.key).await.unwrap());
    assert!(matches!(client.acquire(&request("held")).await.unwrap(), Acquire::Held(_)));
    assert_eq!(client.store.list(&ListRequest::new("")).await.unwrap().records.len(), 2);
    assert_eq!(client.release(&held.lock_id).await.unwrap(), Release::Released);
    assert!(!client.force_release(&forced.key, None).await.unwrap().is_empty());
    assert_eq!(all_names(&server), names.into_iter().filter(|name| name.contains("fence")).collect::<Vec<_>>());

    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
    grant(client.acquire(&refused).await);
    assert!(grant(client.acquire(&request("held")).await).fence > fence);
    assert_sound(&history.events());
}

async fn a_steal_without_memory_takes_nothing_from_the_holder() {
    let server = Redis::with(&["--maxmemory-policy", "noeviction"]);
    let store = connect(&server.url()).await;
    let held = request("k");
    grant(store.acquire(&held).await);
    run_out_of_memory(&server);
    let mut thief = request("k");
    thief.steal = leasehold::Steal::NEVER.with_same_holder();
    assert_unavailable(&store.acquire(&thief).await.map(drop).unwrap_err(), "out of memory", false);
    assert_eq!(store.lookup(LookupBy::Key(&held.key)).await.unwrap().unwrap().lock_id, held.lock_id);
    assert!(store.lookup(LookupBy::Id(&thief.lock_id)).await.unwrap().is_none());
    assert_eq!(store.release(&held.lock_id).await.unwrap(), Release::Released);
}

async fn a_holder_whose_renewals_find_no_memory_is_told_at_its_deadline() {
    let server = Redis::with(&["--maxmemory-policy", "noeviction"]);
    let locks = Locks::new(connect(&server.url()).await);
    let guard = locks.lock("k").ttl(Duration::from_millis(900)).acquire().await.unwrap();
    run_out_of_memory(&server);
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Expired);
}

async fn fences_rise_though_their_counters_are_evicted() {
    const COUNTER: &str = "syncguard:fence:syncguard:k";
    let server = Redis::with(&["--maxmemory-policy", "allkeys-lru"]);
    let history = History::new();
    let client = Recorder::new(connect(&server.url()).await, &history);
    let mut fences = Vec::new();
    for _ in 0..50 {
        let request = request("k");
        fences.push(grant(client.acquire(&request).await).fence);
        client.release(&request.lock_id).await.unwrap();
    }
    let abandoned = request("k");
    fences.push(grant(client.acquire(&abandoned).await).fence);
    assert_eq!(server.cli(&["EXISTS", COUNTER]), "1");

    let amnesia = Amnesia::begins(&history, [key("k")]);
    let limit = server.used_memory() + 1_000_000;
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", &limit.to_string()]), "OK");
    let junk = "x".repeat(10_000);
    // The lock itself is no safer than its counter, or than anything else in such a server.
    let mut number = 0;
    while server.cli(&["EXISTS", COUNTER, "syncguard:k"]) != "0" {
        assert_eq!(server.cli(&["SET", &format!("junk-{number}"), &junk]), "OK");
        assert!(number < 5000, "nothing is evicted");
        number += 1;
    }
    amnesia.over();

    let next = request("k");
    fences.push(grant(client.acquire(&next).await).fence);
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
    let late = client.extend(&abandoned.lock_id, Ttl::default()).await.unwrap();
    assert!(matches!(late, Extend::Absent(_)), "the holder is told, and the next one is left alone");
    assert_eq!(client.store.lookup(LookupBy::Key(&next.key)).await.unwrap().unwrap().lock_id, next.lock_id);
    assert_sound(&history.events());
}
