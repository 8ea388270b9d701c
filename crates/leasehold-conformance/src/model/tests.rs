use std::num::NonZeroU16;

use leasehold::backend::{Absence, Acquire, AcquireRequest, Line, Mode, Release};
use leasehold::{Contention, Fence, Grant, Key, LockId, Timestamp, Ttl};

use super::{Interval, KeyModel};

fn at(earliest: u64, latest: u64) -> Interval {
    Interval { earliest: Timestamp::from_millis(earliest), latest: Timestamp::from_millis(latest) }
}

/// For one second.
fn request(mode: Mode) -> AcquireRequest {
    let ttl = Ttl::from_millis(1000).unwrap();
    AcquireRequest::new(Key::new("key").unwrap(), LockId::random().unwrap(), ttl).with_mode(mode)
}

fn grant(request: &AcquireRequest, fence: u64, millis: u64) -> Grant {
    let fence = Fence::new(fence).unwrap();
    let (acquired_at, expires_at) = (Timestamp::from_millis(millis), Timestamp::from_millis(millis + 1000));
    Grant::new(request.lock_id, fence, acquired_at, expires_at)
}

/// A lock granted at 10 s for one second: expires at 11 s, free from 12 s.
fn held(mode: Mode) -> (KeyModel, Grant) {
    let mut model = KeyModel::new(true);
    let request = request(mode);
    let slot = matches!(mode, Mode::Permit { .. }).then_some(0);
    let grant = grant(&request, 100_000, 10_000).with_slot(slot);
    model.acquire(&request, at(10_000, 10_000), &Acquire::Granted(grant.clone())).unwrap();
    (model, grant)
}

/// What somebody is told whom `grant` is in the way of.
fn told(grant: &Grant, mode: Mode, now: u64, place: Option<u32>) -> Acquire {
    let contention = Contention::new(
        Some(leasehold::Holder::default()),
        grant.acquired_at,
        grant.expires_at,
        Timestamp::from_millis(now),
    );
    Acquire::Held(contention.with_fence(Some(grant.fence)).with_mode(mode).with_place(place))
}

fn joining(mode: Mode, lease: u64) -> AcquireRequest {
    request(mode).with_line(Line::Join { lease: Ttl::from_millis(lease).unwrap() })
}

const PERMIT: Mode = Mode::Permit { of: NonZeroU16::MIN };

#[test]
fn on_one_side_of_an_edge_only_one_answer_is_right() {
    let (mut model, _) = held(Mode::Exclusive);
    assert!(model.is_locked(at(11_999, 11_999), true).is_ok());
    assert!(model.is_locked(at(11_999, 11_999), false).is_err());
    assert!(model.clone().is_locked(at(12_000, 12_000), false).is_ok());
    assert!(model.is_locked(at(12_000, 12_000), true).is_err());
}

#[test]
fn across_an_edge_either_answer_is_right_and_taken_over() {
    let (model, held) = held(Mode::Exclusive);
    let edge = at(11_990, 12_010);
    let mut expired = model.clone();
    assert!(expired.release(&held.lock_id, edge, Release::Absent(Absence::Expired)).is_ok());
    assert!(expired.is_locked(edge, true).is_err(), "it was over before");
    let mut released = model;
    assert!(released.release(&held.lock_id, edge, Release::Released).is_ok());
    assert!(released.release(&held.lock_id, edge, Release::Released).is_err(), "released twice");
}

#[test]
fn a_fence_below_the_clock_is_wrong_only_where_the_clock_is_the_floor() {
    let low = |floored| {
        let request = request(Mode::Exclusive);
        let grant = grant(&request, 1, 10_000);
        KeyModel::new(floored).acquire(&request, at(10_000, 10_000), &Acquire::Granted(grant))
    };
    assert!(low(true).is_err());
    assert!(low(false).is_ok());
}

#[test]
fn only_those_go_together_who_want_the_same() {
    for (first, second, together) in [
        (Mode::Shared, Mode::Shared, true),
        (Mode::Exclusive, Mode::Exclusive, false),
        (Mode::Shared, Mode::Exclusive, false),
        (Mode::Exclusive, Mode::Shared, false),
        (PERMIT, PERMIT, false),
        (PERMIT, Mode::Permit { of: NonZeroU16::MAX }, true),
        (PERMIT, Mode::Shared, false),
    ] {
        let (mut model, held) = held(first);
        let wanted = request(second);
        let slot = matches!(second, Mode::Permit { .. }).then_some(1);
        let granted = Acquire::Granted(grant(&wanted, 200_000, 10_001).with_slot(slot));
        let now = at(10_001, 10_001);
        assert_eq!(model.clone().acquire(&wanted, now, &granted).is_ok(), together, "{first} and {second}");
        let refused = model.acquire(&wanted, now, &told(&held, first, 10_001, None));
        assert_eq!(refused.is_ok(), !together, "{first} and {second}");
    }
}

#[test]
fn somebody_who_was_called_is_passed_over_two_seconds_later() {
    let (mut model, held) = held(Mode::Exclusive);
    let (first, second) = (joining(Mode::Exclusive, 60_000), joining(Mode::Exclusive, 60_000));
    for (waiter, place) in [(&first, 0), (&second, 1)] {
        let answer = told(&held, Mode::Exclusive, 10_100, Some(place));
        model.acquire(waiter, at(10_100, 10_100), &answer).unwrap();
    }
    model.release(&held.lock_id, at(10_200, 10_220), Release::Released).unwrap();
    let granted = |millis| Acquire::Granted(grant(&second, 200_000, millis));
    assert!(model.clone().acquire(&second, at(12_199, 12_199), &granted(12_199)).is_err(), "it overtakes");
    assert!(model.clone().acquire(&second, at(12_210, 12_210), &granted(12_210)).is_ok(), "nobody knows");
    assert!(model.acquire(&second, at(12_220, 12_220), &granted(12_220)).is_ok(), "it is passed over");
}

#[test]
fn across_the_end_of_a_lease_either_place_is_right() {
    let (mut model, held) = held(Mode::Exclusive);
    let (brief, lasting) = (joining(Mode::Exclusive, 100), joining(Mode::Exclusive, 60_000));
    for (waiter, place) in [(&brief, 0), (&lasting, 1)] {
        let answer = told(&held, Mode::Exclusive, 10_100, Some(place));
        model.acquire(waiter, at(10_100, 10_120), &answer).unwrap();
    }
    // The first place ends at some time from 10,200 to 10,220.
    for (now, possible) in [(10_199, [false, true]), (10_210, [true, true]), (10_220, [true, false])] {
        for (place, possible) in [0, 1].into_iter().zip(possible) {
            let answer = told(&held, Mode::Exclusive, now, Some(place));
            let verdict = model.clone().acquire(&lasting, at(now, now), &answer);
            assert_eq!(verdict.is_ok(), possible, "{now} {place}: {verdict:?}");
        }
    }
}
