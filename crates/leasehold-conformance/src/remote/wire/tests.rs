use std::time::Duration;

use leasehold::backend::{Absence, AcquireRequest, Extend, Record, Release, TimeAuthority};
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

fn record(holder: Option<&str>, metadata: Value) -> Record {
    let since = Timestamp::from_micros(1_700_000_000_123_457);
    let grant = Grant::new(LockId::random().unwrap(), Fence::MAX, since, Timestamp::from_micros(u64::MAX));
    Record::new(key("line\nbreak \u{1f512} \"x\""), &grant)
        .with_holder(holder.map(|name| Holder::new(name).unwrap()))
        .with_metadata(Metadata::new(metadata).unwrap())
}

#[test]
fn an_acquire_arrives_as_it_was_sent() {
    let steals = [
        Steal::NEVER,
        Steal::NEVER.with_same_holder(),
        Steal::NEVER.with_held_longer_than(Duration::ZERO),
        Steal::NEVER.with_same_holder().with_held_longer_than(Duration::MAX),
        Steal::NEVER.with_fence(Fence::MAX),
    ];
    for steal in steals {
        let request = AcquireRequest::new(key("caf\u{e9}"), LockId::random().unwrap(), Ttl::MAX)
            .with_holder(Holder::new("web-1/\u{e9}").unwrap())
            .with_metadata(Metadata::new(json!({"job": "nightly"})).unwrap())
            .with_steal(steal);
        let Call::Acquire(arrived) = sent(Call::Acquire(request.clone())) else { panic!("another call") };
        assert_eq!((arrived.key, arrived.lock_id, arrived.ttl), (request.key, request.lock_id, request.ttl));
        assert_eq!((arrived.holder, arrived.metadata), (request.holder, request.metadata));
        assert_eq!(arrived.steal, request.steal);
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
    let grant: Grant = record.grant();
    let contention = record.contention(Timestamp::from_micros(1));
    let Answer::Acquire(leasehold::backend::Acquire::Granted(arrived)) =
        answered(Answer::Acquire(leasehold::backend::Acquire::Granted(grant.clone())))
    else {
        panic!("another answer")
    };
    assert_eq!(arrived, grant);
    let Answer::Acquire(leasehold::backend::Acquire::Held(arrived)) =
        answered(Answer::Acquire(leasehold::backend::Acquire::Held(contention.clone())))
    else {
        panic!("another answer")
    };
    assert_eq!(arrived, contention);
    for expected in [Release::Released, Release::Absent(Absence::Expired), Release::Absent(Absence::NotFound)] {
        assert!(matches!(answered(Answer::Release(expected)), Answer::Release(arrived) if arrived == expected));
    }
    for expected in [Extend::Extended { expires_at: Timestamp::from_micros(3) }, Extend::Absent(Absence::Expired)] {
        assert!(matches!(answered(Answer::Extend(expected)), Answer::Extend(arrived) if arrived == expected));
    }
    for expected in [leasehold::backend::ForceRelease::Absent, leasehold::backend::ForceRelease::Released(record)] {
        let answer = answered(Answer::ForceRelease(expected.clone()));
        assert!(matches!(answer, Answer::ForceRelease(arrived) if arrived == expected));
    }
    for time_authority in [TimeAuthority::Store, TimeAuthority::Client] {
        let expected =
            Capabilities::new(time_authority).with_wake_ups(true).with_call_timeout(Duration::from_millis(7));
        let answer = answered(Answer::Capabilities(expected));
        assert!(matches!(answer, Answer::Capabilities(arrived) if arrived == expected));
    }
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
    let Answer::List(arrived, next) = answered(Answer::List(listed, Some("cursor \u{0}".into()))) else {
        panic!("another answer")
    };
    assert_eq!(next.as_deref(), Some("cursor \u{0}"));
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
    for event in [Event::Freed, Event::Missed, taken] {
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
