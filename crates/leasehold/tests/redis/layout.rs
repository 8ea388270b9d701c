//! What we write is what the shared layout says.

use leasehold::backend::{Backend, Extend, LookupBy, Release};
use leasehold::{Holder, Metadata};
use serde_json::json;
use test_servers::Redis as Server;
use test_support::redis::{HELD, PREFIX, exists, get, index_of, json, now, pttl, snapshot};
use test_support::{eventually, granted, request, stealing, ttl};

use crate::support::connect;

const LOCK: &str = "syncguard:order:42";
const FENCE: &str = "syncguard:fence:syncguard:order:42";

/// That a name ends one second after the ttl that was given it between then and now.
fn lasts(server: &Server, name: &str, ttl: u64, then: u64) {
    let (left, longest) = (pttl(server, name), i64::try_from(ttl + 1000).unwrap());
    let elapsed = i64::try_from(now(server) - then).unwrap() + 1;
    assert!((longest - elapsed..=longest).contains(&left), "{name}: {left} of {longest} left after {elapsed} ms");
}

#[tokio::test]
async fn a_lock_is_stored_as_a_record_an_index_a_counter_and_a_name_among_those_held() {
    let server = Server::start();
    let store = connect(&server).await;
    let metadata = json!({ "order": "A-17", "lines": [], "total": 12345678901234567u64 });
    let wanted = request("order:42")
        .with_holder(Holder::new("db-1/\"report\" é").unwrap())
        .with_metadata(Metadata::new(metadata.clone()).unwrap());
    let before = now(&server);
    let grant = granted(&store, &wanted).await;

    let index = index_of(&wanted.lock_id);
    let names: Vec<_> = snapshot(&server).into_keys().collect();
    let mut expected = [FENCE, &index, HELD, LOCK];
    expected.sort_unstable();
    assert_eq!(names, expected);
    // Numbers compare equal only if they are plain integers.
    let acquired_at = grant.acquired_at.as_millis();
    assert_eq!(
        json(&server, LOCK),
        json!({
            "lockId": wanted.lock_id.expose(),
            "expiresAtMs": acquired_at + 30_000,
            "acquiredAtMs": acquired_at,
            "key": "order:42",
            "fence": format!("{:015}", grant.fence.get()),
            "holder": "db-1/\"report\" é",
            "metadata": metadata,
        })
    );
    assert!((before..=now(&server)).contains(&acquired_at), "by the server's clock");
    assert_eq!(get(&server, &index), LOCK);
    assert_eq!(get(&server, FENCE), grant.fence.get().to_string());
    lasts(&server, LOCK, 30_000, before);
    lasts(&server, &index, 30_000, before);
    assert_eq!(pttl(&server, FENCE), -1, "a counter never ends");
    assert_eq!(server.cli(&["SMEMBERS", HELD]), LOCK);
    assert_eq!(store.release(&wanted.lock_id).await.unwrap(), Release::Released);
    assert_eq!(snapshot(&server).into_keys().collect::<Vec<_>>(), [FENCE]);
    assert_eq!(pttl(&server, FENCE), -1, "a counter never ends");
}

#[tokio::test]
async fn a_lock_without_notes_has_no_field_for_them() {
    let server = Server::start();
    let store = connect(&server).await;
    granted(&store, &request("order:42")).await;
    let record = json(&server, LOCK);
    let mut fields: Vec<_> = record.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["acquiredAtMs", "expiresAtMs", "fence", "holder", "key", "lockId"]);
}

#[tokio::test]
async fn an_extend_changes_the_expiry_and_nothing_else() {
    let server = Server::start();
    let store = connect(&server).await;
    let held = request("order:42").with_metadata(Metadata::new(json!({ "lines": [] })).unwrap());
    granted(&store, &held).await;
    let (mut record, counter) = (json(&server, LOCK), get(&server, FENCE));
    for millis in [90_000, 5_000] {
        let before = now(&server);
        let Extend::Extended { expires_at } = store.extend(&held.lock_id, ttl(millis)).await.unwrap() else {
            panic!("not extended");
        };
        assert!((before + millis..=now(&server) + millis).contains(&expires_at.as_millis()));
        record["expiresAtMs"] = expires_at.as_millis().into();
        assert_eq!(json(&server, LOCK), record);
        assert_eq!(get(&server, FENCE), counter);
        lasts(&server, LOCK, millis, before);
        lasts(&server, &index_of(&held.lock_id), millis, before);
    }
}

#[tokio::test]
async fn the_index_of_a_stolen_lock_leads_its_victim_nowhere() {
    let server = Server::start();
    let store = connect(&server).await;
    let (victim, thief) = (request("order:42"), stealing("order:42", 0));
    granted(&store, &victim).await;
    let since = now(&server);
    eventually("a millisecond has passed", async || now(&server) > since + 1).await;
    granted(&store, &thief).await;
    let stolen = snapshot(&server)[LOCK].clone();
    assert_ne!(store.release(&victim.lock_id).await.unwrap(), Release::Released);
    assert!(matches!(store.extend(&victim.lock_id, ttl(60_000)).await.unwrap(), Extend::Absent(_)));
    assert!(store.lookup(LookupBy::Id(&victim.lock_id)).await.unwrap().is_none());
    assert_eq!(snapshot(&server)[LOCK], stolen, "the thief's lock is not touched");
    assert!(exists(&server, &format!("{PREFIX}:id:{}", thief.lock_id.expose())));
}
