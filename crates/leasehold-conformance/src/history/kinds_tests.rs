use std::num::NonZeroU16;

use leasehold::backend::Mode;

use super::{Event, Violation, What, check};

const SECOND: u64 = 1_000_000_000;
const SENT: What = What::AcquireSent { may_steal: false };
const READER: What = What::Wanted { mode: Mode::Shared, obeys_line: false };

/// Events of key `k`, a tenth of a second apart.
fn history(events: &[(&str, What)]) -> Vec<Event> {
    let event = |(number, (lock, what)): (u64, &(&str, What))| Event {
        at: number * SECOND / 10,
        key: "k".to_owned(),
        lock: (*lock).to_owned(),
        what: *what,
    };
    (0..).zip(events).map(event).collect()
}

fn broken(events: &[(&str, What)]) -> Vec<Violation> {
    check(&history(events)).err().unwrap_or_default()
}

fn granted(fence: u64) -> What {
    What::Granted { fence, deadline: 60 * SECOND }
}

fn permit(of: u16) -> What {
    What::Wanted { mode: Mode::Permit { of: NonZeroU16::new(of).unwrap() }, obeys_line: false }
}

/// `lock` gets the permit with this slot and fence.
fn takes(lock: &'static str, of: u16, slot: u16, fence: u64) -> [(&'static str, What); 4] {
    [(lock, permit(of)), (lock, SENT), (lock, What::Slot { slot }), (lock, granted(fence))]
}

fn overlap(first: &str, second: &str) -> Violation {
    Violation::Overlap { key: "k".to_owned(), first: first.to_owned(), second: second.to_owned() }
}

fn overtaken(first: &str, second: &str) -> Violation {
    Violation::Overtaken { key: "k".to_owned(), first: first.to_owned(), second: second.to_owned() }
}

#[test]
fn readers_share_a_key_and_go_on_when_others_come() {
    let extend = What::ExtendSent { deadline: 60 * SECOND };
    let events = [
        ("a", READER),
        ("a", SENT),
        ("a", granted(1)),
        ("b", READER),
        ("b", SENT),
        ("b", granted(2)),
        ("a", extend),
        ("a", What::Extended { deadline: 60 * SECOND }),
        ("b", What::ReleaseSent),
        ("b", What::Released),
        ("a", What::ReleaseSent),
        ("a", What::Released),
        ("c", SENT),
        ("c", granted(3)),
    ];
    assert_eq!(broken(&events), []);
    // A lock that a higher fence was granted beside is not lost because of it.
    let denied = [&events[..7], &[("a", What::ExtendAbsent)]].concat();
    assert_eq!(broken(&denied), [Violation::LostWithoutCause { key: "k".to_owned(), lock: "a".to_owned() }]);
}

#[test]
fn a_writer_beside_a_reader_is_noticed() {
    let reader = |lock, fence| [(lock, READER), (lock, SENT), (lock, granted(fence))];
    let writer = |lock, fence| [(lock, SENT), (lock, granted(fence))];
    assert_eq!(broken(&[&reader("a", 1)[..], &writer("b", 2)].concat()), [overlap("a", "b")]);
    assert_eq!(broken(&[&writer("a", 1)[..], &reader("b", 2)].concat()), [overlap("a", "b")]);
    assert_eq!(broken(&[&reader("a", 1)[..], &takes("b", 9, 0, 2)].concat()), [overlap("a", "b")]);
}

#[test]
fn a_slot_that_two_have_is_noticed() {
    assert_eq!(broken(&[takes("a", 3, 0, 1), takes("b", 3, 1, 2)].concat()), []);
    assert_eq!(broken(&[takes("a", 3, 0, 1), takes("b", 3, 0, 2)].concat()), [overlap("a", "b")]);
}

#[test]
fn too_many_permits_are_noticed_in_whatever_order_they_are_answered() {
    let too_many = |lock: &str, of, held| Violation::TooManyPermits { key: "k".into(), lock: lock.into(), of, held };
    let three = [takes("a", 3, 0, 1), takes("b", 3, 1, 2), takes("c", 3, 2, 3)].concat();
    assert_eq!(broken(&three), []);
    assert_eq!(broken(&[&three[..], &takes("d", 4, 3, 4)].concat()), [], "it sees more of them");
    assert_eq!(broken(&[&three[..], &takes("d", 3, 3, 4)].concat()), [too_many("d", 3, 4)]);
    assert_eq!(broken(&[&three[..], &takes("d", 2, 3, 4)].concat()), [too_many("d", 2, 4)]);
    let a = takes("a", 3, 0, 1);
    let late = [&a[..2], &takes("b", 1, 1, 2), &a[2..]].concat();
    assert_eq!(broken(&late), [too_many("b", 1, 2)]);
    let returned = [("a", What::ReleaseSent), ("a", What::Released)];
    assert_eq!(broken(&[&three[..], &returned, &takes("d", 3, 0, 4)].concat()), []);
}

/// `lock` asks and has a place in line for a minute.
fn queues(lock: &'static str) -> [(&'static str, What); 3] {
    let wanted = What::Wanted { mode: Mode::Exclusive, obeys_line: true };
    [(lock, wanted), (lock, SENT), (lock, What::Queued { until: 60 * SECOND })]
}

#[test]
fn whoever_overtakes_in_the_line_is_noticed() {
    let holder = [("x", SENT), ("x", granted(1))];
    let line = [&holder[..], &queues("a"), &queues("b"), &[("x", What::ReleaseSent)]].concat();
    let enters = |lock, fence| [(lock, SENT), (lock, granted(fence))];
    let leaves = |lock| [(lock, What::ReleaseSent), (lock, What::Released)];
    assert_eq!(broken(&[&line[..], &enters("a", 2), &leaves("a"), &enters("b", 3)].concat()), []);
    assert_eq!(broken(&[&line[..], &enters("b", 2)].concat()), [overtaken("a", "b")]);
    // It gave up its place.
    let left = [("a", What::ReleaseSent)];
    assert_eq!(broken(&[&line[..], &left, &enters("b", 2)].concat()), []);
    // It may have been called two seconds ago.
    let mut late = history(&[&line[..], &enters("b", 2)].concat());
    for event in late.iter_mut().rev().take(2) {
        event.at += 2 * SECOND;
    }
    assert!(check(&late).is_ok());
    // Who does not obey the line passes it.
    let stranger = [("c", SENT), ("c", granted(2))];
    assert_eq!(broken(&[&line[..], &stranger].concat()), []);
}

#[test]
fn a_grant_whose_answer_is_on_its_way_is_not_overtaken() {
    let wanted = What::Wanted { mode: Mode::Shared, obeys_line: true };
    let queued = What::Queued { until: 60 * SECOND };
    let line = [("a", wanted), ("a", SENT), ("a", queued), ("b", wanted), ("b", SENT), ("b", queued), ("a", SENT)];
    let b_first = |fence| [&line[..], &[("b", SENT), ("b", granted(5)), ("a", granted(fence))]].concat();
    assert_eq!(broken(&b_first(4)), []);
    assert_eq!(broken(&b_first(6)), [overtaken("a", "b")]);
    let refused = [&line[..], &[("b", SENT), ("b", granted(5)), ("a", queued)]].concat();
    assert_eq!(broken(&refused), [overtaken("a", "b")]);
}

#[test]
fn a_place_that_may_have_ended_counts_from_when_it_was_taken_anew() {
    let brief = What::Queued { until: SECOND / 10 };
    let wanted = What::Wanted { mode: Mode::Exclusive, obeys_line: true };
    let again = [("a", SENT), ("a", What::Queued { until: 60 * SECOND })];
    let events =
        [&[("a", wanted), ("a", SENT), ("a", brief)][..], &queues("b"), &again, &[("b", SENT), ("b", granted(1))]];
    assert_eq!(broken(&events.concat()), []);
}
