//! What a store is asked and answers arrives as it was sent.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::backend::{
    Absence, Acquire, AcquireAll, Backend, Event, Extend, Line, LookupBy, Mode, Record, Release, Topic,
};
use leasehold::memory::Memory;
use leasehold::{Error, ErrorCode, Fence, ListRequest, Loss, Operation, Steal, Ttl};
use tokio::time::timeout;

use test_support::{granted, key};

use super::support::{next, peer, request};

pub(super) async fn locks_make_the_round_trip() {
    let peer = peer("memory").await;
    let first = request("a");
    let grant = granted(&peer, &first).await;
    assert_eq!(grant.lock_id, first.lock_id);
    assert_eq!(grant.expires_at.as_millis() - grant.acquired_at.as_millis(), Ttl::MAX.as_millis());
    assert_eq!(granted(&peer, &first).await, grant);
    let Acquire::Held(contention) = peer.acquire(&request("a")).await.unwrap() else { panic!("given away") };
    assert_eq!((contention.holder, contention.expires_at), (Some(first.holder.clone()), grant.expires_at));

    let never = request("a").with_steal(Steal::NEVER.with_held_longer_than(Duration::MAX));
    assert!(matches!(peer.acquire(&never).await.unwrap(), Acquire::Held(_)));
    let thief = request("a").with_steal(Steal::NEVER.with_same_holder());
    assert!(granted(&peer, &thief).await.fence > grant.fence);
    assert_eq!(peer.release(&first.lock_id).await.unwrap(), Release::Absent(Absence::NotFound));
    assert_eq!(peer.extend(&first.lock_id, Ttl::MAX).await.unwrap(), Extend::Absent(Absence::NotFound));

    let extended = peer.extend(&thief.lock_id, Ttl::default()).await.unwrap();
    let record = peer.lookup(LookupBy::Id(&thief.lock_id)).await.unwrap().unwrap();
    assert_eq!(extended, Extend::Extended { expires_at: record.expires_at });
    assert_eq!(peer.release(&thief.lock_id).await.unwrap(), Release::Released);
    assert_eq!(peer.force_release(&key("a"), None).await.unwrap(), []);
}

pub(super) async fn reads_make_the_round_trip() {
    let peer = peer("memory").await;
    assert_eq!(peer.capabilities(), Memory::new().capabilities());
    let mut expected = Vec::new();
    for name in ["page:1", "page:2", "page:3"] {
        let wanted = request(name);
        let grant = granted(&peer, &wanted).await;
        let record = peer.lookup(LookupBy::Key(&wanted.key)).await.unwrap().unwrap();
        assert_eq!(record.grant(), grant);
        assert_eq!((&record.key, record.holder.as_ref()), (&wanted.key, Some(&wanted.holder)));
        assert_eq!(record.metadata, wanted.metadata);
        assert_eq!(peer.lookup(LookupBy::Id(&wanted.lock_id)).await.unwrap().as_ref(), Some(&record));
        expected.push(record);
    }
    granted(&peer, &request("other")).await;
    let (mut listed, mut wanted) = (Vec::new(), ListRequest::new("page:").with_page_size(2));
    loop {
        let page = peer.list(&wanted).await.unwrap();
        assert!(page.records.len() <= 2);
        listed.extend(page.records);
        let Some(cursor) = page.next else { break };
        wanted = wanted.with_cursor(cursor);
    }
    listed.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(listed, expected);

    assert!(peer.is_locked(&key("page:1")).await.unwrap());
    let forced = peer.force_release(&key("page:1"), None).await.unwrap();
    assert_eq!(forced, [expected.remove(0)]);
    assert!(!peer.is_locked(&key("page:1")).await.unwrap());
    assert_eq!(peer.lookup(LookupBy::Key(&key("page:1"))).await.unwrap(), None);
}

pub(super) async fn lines_and_several_locks_make_the_round_trip() {
    let peer = peer("memory").await;
    let wanted = [request("a"), request("b").with_mode(Mode::Shared)];
    let AcquireAll::Granted(grants) = peer.acquire_all(&wanted).await.unwrap() else { panic!("refused") };
    assert_eq!(grants.iter().map(|grant| grant.lock_id).collect::<Vec<_>>(), wanted.each_ref().map(|one| one.lock_id));
    let AcquireAll::Held { which: 1, contention } = peer.acquire_all(&[request("c"), request("b")]).await.unwrap()
    else {
        panic!("given away")
    };
    assert_eq!((contention.mode, contention.fence), (Mode::Shared, Some(grants[1].fence)));

    let waiter = request("b").with_line(Line::Join { lease: Ttl::MAX });
    let Acquire::Held(contention) = peer.acquire(&waiter).await.unwrap() else { panic!("given away") };
    assert_eq!(contention.place, Some(0));
    let found = peer.inspect(&key("b")).await.unwrap();
    assert_eq!(found.holders.iter().map(Record::grant).collect::<Vec<_>>(), [grants[1].clone()]);
    assert_eq!(found.waiters.iter().map(|waiter| waiter.lock_id).collect::<Vec<_>>(), [waiter.lock_id]);
    assert_eq!(found.waiters[0].metadata, waiter.metadata);
    let page = peer.list(&ListRequest::new("")).await.unwrap();
    assert_eq!(page.waiting, HashMap::from([(key("b"), 1)]));

    let mut turn = peer.subscribe(Topic::Turn(&key("b"), &waiter.lock_id)).await.unwrap();
    assert_eq!(peer.force_release(&key("b"), Some(Fence::MAX)).await.unwrap(), []);
    assert_eq!(peer.force_release(&key("b"), Some(grants[1].fence)).await.unwrap().len(), 1);
    assert_eq!(next(&mut turn).await, Some(Event::Freed));
    let mut watched = peer.subscribe(Topic::Granted).await.unwrap();
    let fence = granted(&peer, &waiter).await.fence;
    let expected = Event::Granted { key: key("b"), fence, holder: Some(waiter.holder.clone()) };
    assert_eq!(next(&mut watched).await, Some(expected));
}

pub(super) async fn events_arrive_until_the_subscription_is_dropped() {
    let peer = peer("memory").await;
    let (mut freed, mut taken) =
        (peer.subscribe(Topic::Freed(&key("a"))).await.unwrap(), peer.subscribe(Topic::Taken).await.unwrap());
    let mut other = peer.subscribe(Topic::Freed(&key("b"))).await.unwrap();
    let first = granted(&peer, &request("a")).await;
    peer.release(&first.lock_id).await.unwrap();
    assert_eq!(next(&mut freed).await, Some(Event::Freed));
    let victim = granted(&peer, &request("a")).await;
    peer.force_release(&key("a"), None).await.unwrap();
    assert_eq!(next(&mut freed).await, Some(Event::Freed));
    let expected = Event::Taken { key: key("a"), fence: victim.fence, how: Loss::ForceReleased };
    assert_eq!(next(&mut taken).await, Some(expected));

    // One that is dropped, before or after it was answered, disturbs no other.
    drop(freed);
    let _ = timeout(Duration::ZERO, peer.subscribe(Topic::Freed(&key("b")))).await;
    let last = granted(&peer, &request("b")).await;
    peer.release(&last.lock_id).await.unwrap();
    assert_eq!(next(&mut other).await, Some(Event::Freed));
    drop(peer);
    assert_eq!(next(&mut other).await, None);
}

pub(super) async fn errors_keep_code_and_outcome() {
    let peer = peer("faulty").await;
    let summary = |error: Error| (error.code(), error.outcome_unknown(), error.operation());
    let error = peer.list(&ListRequest::new("")).await.unwrap_err();
    assert_eq!(summary(error), (ErrorCode::AuthFailed, false, Some(Operation::List)));
    let grant = granted(&peer, &request("a")).await;
    let second = request("b").with_lock_id(grant.lock_id);
    let error = peer.acquire(&second).await.unwrap_err();
    let (local, itself) = (Memory::new(), second.clone().with_key(key("a")));
    assert!(matches!(local.acquire(&itself).await.unwrap(), Acquire::Granted(_)));
    assert_eq!(error.to_string(), local.acquire(&second).await.unwrap_err().to_string());
    assert_eq!(summary(error), (ErrorCode::InvalidArgument, false, Some(Operation::Acquire)));
    let error = peer.release(&grant.lock_id).await.unwrap_err();
    assert_eq!(summary(error), (ErrorCode::NetworkTimeout, true, Some(Operation::Release)));
    assert!(!peer.is_locked(&key("a")).await.unwrap());
}
