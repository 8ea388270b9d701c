//! Two hosts whose clocks differ, which only tests in here can bring about.

use std::time::{Duration, Instant};

use test_servers::{DEADLINE, Firestore as Server};

use super::clocks::WallClock;
use super::{Firestore, FirestoreOptions};
use crate::backend::{Acquire, AcquireAll, AcquireRequest, Backend, Extend, Line, Mode};
use crate::{ErrorCode, Key, LockId, TIME_TOLERANCE, Timestamp, Ttl, Verdict};

const TTL: Duration = Duration::from_millis(300);

/// A host whose clock is ahead by so many milliseconds.
async fn host(server: &Server, ahead_millis: i64) -> Firestore {
    let options = FirestoreOptions { clock: WallClock { ahead_millis }, ..FirestoreOptions::default() };
    Firestore::connect_with(&server.url(), options).await.unwrap()
}

fn request() -> AcquireRequest {
    AcquireRequest::new(Key::new("order:42").unwrap(), LockId::random().unwrap(), Ttl::new(TTL).unwrap())
}

/// When the lock is granted, after as many tries as it takes.
async fn granted_at(host: &Firestore) -> Instant {
    let (request, begun) = (request(), Instant::now());
    while begun.elapsed() < DEADLINE {
        if let Acquire::Granted(_) = host.acquire(&request).await.unwrap() {
            return Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never was");
}

#[tokio::test]
async fn nobody_gets_a_lock_before_its_ttl_and_the_tolerance_have_passed_whatever_the_clocks_show() {
    let cases = [(900, 0), (-900, 0), (0, 900), (0, -900), (900, -900), (-900, 900), (450, -450), (-450, 450)];
    let cases = cases.map(|(one, other)| async move {
        let server = Server::start();
        let (holder, rival) = (host(&server, one).await, host(&server, other).await);
        let held = request();
        let sent = Instant::now();
        assert!(matches!(holder.acquire(&held).await.unwrap(), Acquire::Granted(_)));
        let waited = granted_at(&rival).await - sent;
        assert!(waited >= TTL + TIME_TOLERANCE, "{one} and {other} ms ahead: granted again after {waited:?}");
    });
    tokio::task::JoinSet::from_iter(cases).join_all().await;
}

#[tokio::test]
async fn readers_permits_and_several_locks_keep_rivals_out_for_as_long_whatever_the_clocks_show() {
    let permit = Mode::Permit { of: 1.try_into().unwrap() };
    let cases = [(900, -900), (-900, 900)];
    let cases = cases.into_iter().flat_map(|clocks| [Mode::Exclusive, Mode::Shared, permit].map(|mode| (clocks, mode)));
    let cases = cases.flat_map(|(clocks, mode)| ["acquire", "acquire_all", "extend"].map(|by| (clocks, mode, by)));
    let cases = cases.map(|((one, other), mode, by)| async move {
        let server = Server::start();
        let (holder, rival) = (host(&server, one).await, host(&server, other).await);
        let held = request().with_mode(mode);
        let mut sent = Instant::now();
        if by == "acquire_all" {
            let granted = holder.acquire_all(std::slice::from_ref(&held)).await.unwrap();
            assert!(matches!(granted, AcquireAll::Granted(_)));
        } else {
            assert!(matches!(holder.acquire(&held).await.unwrap(), Acquire::Granted(_)));
        }
        if by == "extend" {
            sent = Instant::now();
            assert!(matches!(holder.extend(&held.lock_id, held.ttl).await.unwrap(), Extend::Extended { .. }));
        }
        let waited = granted_at(&rival).await - sent;
        assert!(waited >= TTL + TIME_TOLERANCE, "{mode}, {by}, {one} and {other} ms ahead: again after {waited:?}");
    });
    tokio::task::JoinSet::from_iter(cases).join_all().await;
}

#[tokio::test]
async fn a_line_is_kept_by_hosts_whose_clocks_differ() {
    for (one, other) in [(-900, 900), (900, -900)] {
        let server = Server::start();
        let hosts = [host(&server, one).await, host(&server, other).await];
        let held = request();
        assert!(matches!(hosts[0].acquire(&held).await.unwrap(), Acquire::Granted(_)));
        hosts[0].extend(&held.lock_id, Ttl::default()).await.unwrap();
        // A lease that is longer than clocks may be apart.
        let lease = Ttl::new(TIME_TOLERANCE * 9).unwrap();
        let line: Vec<_> = (0..4).map(|_| request().with_line(Line::Join { lease })).collect();
        for (place, waiter) in line.iter().enumerate() {
            let Acquire::Held(contention) = hosts[place % 2].acquire(waiter).await.unwrap() else { panic!("granted") };
            assert_eq!(contention.place.map(|place| place as usize), Some(place), "{one} and {other} ms ahead");
        }
        hosts[1].release(&held.lock_id).await.unwrap();
        for (place, waiter) in line.iter().enumerate() {
            let host = &hosts[place % 2];
            assert!(matches!(host.acquire(waiter).await.unwrap(), Acquire::Granted(_)), "{one} and {other} ms ahead");
            host.release(&waiter.lock_id).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_extend_keeps_rivals_out_for_as_long_as_a_grant() {
    for (one, other) in [(-900, 900), (900, -900)] {
        let server = Server::start();
        let (holder, rival) = (host(&server, one).await, host(&server, other).await);
        let held = request();
        assert!(matches!(holder.acquire(&held).await.unwrap(), Acquire::Granted(_)));
        tokio::time::sleep(TTL / 2).await;
        let sent = Instant::now();
        assert!(matches!(holder.extend(&held.lock_id, held.ttl).await.unwrap(), Extend::Extended { .. }));
        let waited = granted_at(&rival).await - sent;
        assert!(waited >= TTL + TIME_TOLERANCE, "{one} and {other} ms ahead: granted again after {waited:?}");
    }
}

#[tokio::test]
async fn each_host_whose_clock_is_off_is_refused_by_itself() {
    let server = Server::start();
    let (right, wrong) = (host(&server, 0).await, host(&server, 1_200).await);
    assert!(matches!(right.acquire(&request()).await.unwrap(), Acquire::Granted(_)));
    let error = wrong.acquire(&request().with_key(Key::new("other").unwrap())).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Internal);
    assert!(error.to_string().contains("clock") && error.to_string().contains("ahead"), "{error}");
    let clock = wrong.examine().await.unwrap().into_iter().find(|check| check.name == "clock").unwrap();
    assert_eq!(clock.verdict, Verdict::Fail, "{clock:?}");
    assert!(clock.detail.contains("ahead of the server"), "{clock:?}");
}

#[tokio::test]
async fn a_host_that_is_far_ahead_does_not_keep_a_lock_for_longer() {
    let server = Server::start();
    let (right, wrong) = (host(&server, 0).await, host(&server, 3_600_000).await);
    let held = request();
    assert!(matches!(right.acquire(&held).await.unwrap(), Acquire::Granted(_)));
    let Extend::Extended { expires_at } = wrong.extend(&held.lock_id, held.ttl).await.unwrap() else { panic!("lost") };
    assert!(expires_at.since(Timestamp::now()) <= TTL + TIME_TOLERANCE * 2, "{expires_at:?}");
    assert!(granted_at(&right).await.elapsed() < DEADLINE);
}
