use std::num::NonZeroU16;
use std::time::Duration;

use leasehold::backend::{
    Absence, Acquire, AcquireAll, AcquireRequest, Extend, Line, Mode, Record, Release, TimeAuthority, Waiter,
};
use leasehold::{ErrorCode, Fence, Grant, Holder, Loss, Metadata, Operation, Steal, Timestamp};
use serde_json::{Value, json};

use super::*;

fn sent(call: Call) -> Call {
    let line = serde_json::to_string(&Request { id: u64::MAX, call }).unwrap();
    assert!(!line.contains('\n'));
    let request: Request = serde_json::from_str(&line).unwrap();
    assert_eq!(request.id, u64::MAX);
    request.call
}

fn answered(answer: Answer) -> Answer {
    let line = serde_json::to_string(&Reply { id: 7, said: Said::Answer(answer) }).unwrap();
    match serde_json::from_str(&line).unwrap() {
        Reply { id: 7, said: Said::Answer(answer) } => answer,
        _ => panic!("not the answer that was sent"),
    }
}

fn key(key: &str) -> Key {
    Key::new(key).unwrap()
}

const PERMIT: Mode = Mode::Permit { of: NonZeroU16::MAX };

fn record(holder: Option<&str>, metadata: Value) -> Record {
    let since = Timestamp::from_micros(1_700_000_000_123_457);
    let grant = Grant::new(LockId::random().unwrap(), Fence::MAX, since, Timestamp::from_micros(u64::MAX));
    Record::new(key("line\nbreak \u{1f512} \"x\""), &grant)
        .with_holder(holder.map(|name| Holder::new(name).unwrap()))
        .with_metadata(Metadata::new(metadata).unwrap())
}

/// Every field of a request, so that none is left out of a comparison.
fn fields(request: &AcquireRequest) -> String {
    // The text hides the key and the lock id.
    format!("{request:?} {} {}", request.key.as_str(), request.lock_id.expose())
}

fn requests() -> Vec<AcquireRequest> {
    let steals = [
        Steal::NEVER,
        Steal::NEVER.with_same_holder(),
        Steal::NEVER.with_held_longer_than(Duration::ZERO),
        Steal::NEVER.with_same_holder().with_held_longer_than(Duration::MAX),
        Steal::NEVER.with_fence(Fence::MAX),
    ];
    let request = |steal| {
        AcquireRequest::new(key("caf\u{e9}"), LockId::random().unwrap(), Ttl::MAX)
            .with_holder(Holder::new("web-1/\u{e9}").unwrap())
            .with_metadata(Metadata::new(json!({"job": "nightly"})).unwrap())
            .with_steal(steal)
    };
    let plain = steals.map(request);
    let modes = [Mode::Shared, PERMIT].map(|mode| request(Steal::NEVER).with_mode(mode));
    let lines = [Line::Heed, Line::Join { lease: Ttl::MAX }].map(|line| request(Steal::NEVER).with_line(line));
    [&plain[..], &modes, &lines].concat()
}

#[test]
fn an_acquire_arrives_as_it_was_sent() {
    for request in requests() {
        let Call::Acquire(arrived) = sent(Call::Acquire(request.clone())) else { panic!("another call") };
        assert_eq!(fields(&arrived), fields(&request));
        assert_eq!(arrived.metadata, request.metadata);
    }
}

#[test]
fn an_acquire_of_several_locks_arrives_as_it_was_sent() {
    for requests in [vec![], requests()] {
        let wanted = requests.iter().cloned().map(Wanted).collect();
        let Call::AcquireAll(arrived) = sent(Call::AcquireAll(wanted)) else { panic!("another call") };
        let arrived: Vec<_> = arrived.iter().map(|wanted| fields(&wanted.0)).collect();
        assert_eq!(arrived, requests.iter().map(fields).collect::<Vec<_>>());
    }
}

#[test]
fn a_topic_arrives_as_it_was_sent() {
    let (key, id) = (key("k"), LockId::random().unwrap());
    let shown = |topic: Topic<'_>| match topic {
        Topic::Freed(key) => format!("freed {}", key.as_str()),
        Topic::Turn(key, id) => format!("turn {} {}", key.as_str(), id.expose()),
        other => format!("{other:?}"),
    };
    for topic in [Topic::Freed(&key), Topic::Turn(&key, &id), Topic::Taken, Topic::Granted] {
        let Call::Subscribe(arrived) = sent(Call::Subscribe(About::of(topic).unwrap())) else { panic!("another call") };
        assert_eq!(shown(arrived.topic()), shown(topic));
    }
}

#[test]
fn a_forced_release_arrives_as_it_was_sent() {
    for only in [None, Some(Fence::MAX)] {
        let Call::ForceRelease(arrived, fence) = sent(Call::ForceRelease(key("k"), only)) else {
            panic!("another call")
        };
        assert_eq!((arrived, fence), (key("k"), only));
    }
}

#[test]
fn a_list_arrives_as_it_was_sent() {
    let requests = [
        ListRequest::new(""),
        ListRequest::new("cafe\u{301}").with_page_size(1).with_cursor(""),
        ListRequest::new("a").with_page_size(usize::MAX).with_cursor("\u{1f512}\n"),
    ];
    for request in requests {
        let Call::List(arrived) = sent(Call::List(request.clone())) else { panic!("another call") };
        assert_eq!(arrived.prefix(), request.prefix());
        assert_eq!((arrived.page_size(), arrived.cursor()), (request.page_size(), request.cursor()));
    }
}

#[test]
fn answers_arrive_as_they_were_sent() {
    let record = record(None, json!({}));
    let grant = record.grant().with_slot(Some(u16::MAX));
    let contention = record
        .contention(Timestamp::from_micros(1))
        .with_mode(PERMIT)
        .with_holders(u32::MAX)
        .with_place(Some(u32::MAX - 1));
    let answer = answered(Answer::Acquire(Acquire::Granted(grant.clone())));
    assert!(matches!(answer, Answer::Acquire(Acquire::Granted(arrived)) if arrived == grant));
    for contention in [contention.clone(), record.contention(Timestamp::from_micros(1))] {
        let answer = answered(Answer::Acquire(Acquire::Held(contention.clone())));
        assert!(matches!(answer, Answer::Acquire(Acquire::Held(arrived)) if arrived == contention));
    }
    for grants in [vec![], vec![grant, record.grant()]] {
        let answer = answered(Answer::AcquireAll(AcquireAll::Granted(grants.clone())));
        assert!(matches!(answer, Answer::AcquireAll(AcquireAll::Granted(arrived)) if arrived == grants));
    }
    let answer = answered(Answer::AcquireAll(AcquireAll::Held { which: 31, contention: contention.clone() }));
    let Answer::AcquireAll(AcquireAll::Held { which, contention: arrived }) = answer else { panic!("another answer") };
    assert_eq!((which, arrived), (31, contention));
    for expected in [Release::Released, Release::Absent(Absence::Expired), Release::Absent(Absence::NotFound)] {
        assert!(matches!(answered(Answer::Release(expected)), Answer::Release(arrived) if arrived == expected));
    }
    for expected in [Extend::Extended { expires_at: Timestamp::from_micros(3) }, Extend::Absent(Absence::Expired)] {
        assert!(matches!(answered(Answer::Extend(expected)), Answer::Extend(arrived) if arrived == expected));
    }
    for expected in [vec![], vec![record]] {
        let answer = answered(Answer::ForceRelease(expected.iter().cloned().map(Listed).collect()));
        let Answer::ForceRelease(arrived) = answer else { panic!("another answer") };
        assert_eq!(arrived.into_iter().map(|arrived| arrived.0).collect::<Vec<_>>(), expected);
    }
    for time_authority in [TimeAuthority::Store, TimeAuthority::Client] {
        let expected =
            Capabilities::new(time_authority).with_wake_ups(true).with_call_timeout(Duration::from_millis(7));
        let costly = expected.with_lines(true).with_costly_lines(true).with_lossy_wake_ups(true);
        for expected in [expected, expected.with_lines(true), costly, expected.with_clock_floored_fences(true)] {
            let answer = answered(Answer::Capabilities(expected));
            assert!(matches!(answer, Answer::Capabilities(arrived) if arrived == expected));
        }
    }
}

#[test]
fn who_holds_and_who_waits_arrives_as_it_was_sent() {
    let grant = record(None, json!({})).grant().with_slot(Some(7));
    let held = Record::new(key("k"), &grant).with_mode(PERMIT);
    let waiter = |mode| {
        let (since, until) = (Timestamp::from_micros(1_700_000_000_123_457), Timestamp::from_micros(u64::MAX));
        Waiter::new(key("k"), LockId::random().unwrap(), mode, since, until)
    };
    let named = waiter(Mode::Shared)
        .with_holder(Some(Holder::new("h").unwrap()))
        .with_metadata(Metadata::new(json!({"a": [0.1]})).unwrap());
    let (holders, waiters) = (vec![held, record(Some("h"), json!({}))], vec![named, waiter(PERMIT)]);
    let answer = answered(Answer::Inspect(
        holders.iter().cloned().map(Listed).collect(),
        waiters.iter().cloned().map(Waiting).collect(),
    ));
    let Answer::Inspect(arrived, waiting) = answer else { panic!("another answer") };
    assert_eq!(arrived.into_iter().map(|arrived| arrived.0).collect::<Vec<_>>(), holders);
    assert_eq!(waiting.into_iter().map(|arrived| arrived.0).collect::<Vec<_>>(), waiters);
}

#[test]
fn records_arrive_with_every_digit_and_at_every_depth() {
    let deep = (0..31).fold(json!(null), |inner, _| json!([inner]));
    let notes = [
        json!({}),
        json!({"": [], "b": {}, "a": [1, -1, u64::MAX, i64::MIN, true, null, "1", {"b": 1, "a": [2]}]}),
        json!({"fractions": [0.1, -0.0, 1.0, 5e-324, f64::MAX, 6.3e-7, 1.234_567_890_123_456_7e-290]}),
        json!({"deep": deep}),
    ];
    let records: Vec<Record> =
        notes.into_iter().map(|notes| record(Some("h"), notes)).chain([record(None, json!({}))]).collect();
    let listed = records.iter().cloned().map(Listed).collect();
    let (counts, cursor) = (vec![(key("k\n"), u32::MAX), (key("\""), 1)], "cursor \u{0}");
    let answer = Answer::List { records: listed, waiting: counts.clone(), next: Some(cursor.into()) };
    let Answer::List { records: arrived, waiting, next } = answered(answer) else { panic!("another answer") };
    assert_eq!((waiting, next.as_deref()), (counts, Some(cursor)));
    let arrived: Vec<Record> = arrived.into_iter().map(|listed| listed.0).collect();
    assert_eq!(arrived, records);
    // Zero equals its negative, but is not written like it.
    for (arrived, record) in arrived.iter().zip(&records) {
        assert_eq!(arrived.metadata.to_json(), record.metadata.to_json());
    }
}

#[test]
fn events_arrive_as_they_were_sent() {
    let taken = Event::Taken { key: key("k"), fence: Fence::MAX, how: Loss::ForceReleased };
    let granted = |holder| Event::Granted { key: key("k"), fence: Fence::MAX, holder };
    let (named, nameless) = (granted(Some(Holder::new("h").unwrap())), granted(None));
    for event in [Event::Freed, Event::Missed, taken, named, nameless] {
        let line = serde_json::to_string(&Said::Event(event.clone())).unwrap();
        assert!(matches!(serde_json::from_str(&line).unwrap(), Said::Event(arrived) if arrived == event));
    }
}

#[test]
fn an_error_arrives_with_all_but_the_type_of_its_source() {
    let error = Error::new(ErrorCode::RateLimited, "acquire: slower")
        .with_hint("wait")
        .with_source("429")
        .during(Operation::Acquire)
        .with_outcome_unknown();
    for error in [error, Error::new(ErrorCode::AuthFailed, "no")] {
        let line = serde_json::to_string(&Failure::from(&error)).unwrap();
        let arrived = Error::from(serde_json::from_str::<Failure>(&line).unwrap());
        assert_eq!(format!("{arrived:?}"), format!("{error:?}"));
        assert_eq!(arrived.to_string(), error.to_string());
    }
}
