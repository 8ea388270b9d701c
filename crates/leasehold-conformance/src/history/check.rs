use std::collections::BTreeMap;

use super::state::KeyState;
use super::{Event, Violation, What};

/// What a history without violations amounts to, so that a test can tell that something happened at
/// all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Grants.
    pub granted: usize,
    /// Refused acquires.
    pub held: usize,
    /// Those of them that had a place in line.
    pub queued: usize,
    /// Successful releases.
    pub released: usize,
    /// Successful extends.
    pub extended: usize,
    /// Releases and extends that found nothing.
    pub absent: usize,
}

/// Checks a history, of however many keys.
///
/// A client holds a key from when the grant was answered to the earliest of: a release was sent, a
/// loss was noticed, the deadline. No two may hold a key at once, nor may a lock be given away
/// before the tolerance is over, unless a steal or a forced release was under way, or both want it
/// in a way that goes with the other: readers, and permits with different slots, as long as there
/// are any. Fences are unique, and in the order of grants that did not overlap. A lock is released
/// at most once, and once released or taken by somebody else it stays dead. Nobody who obeys the
/// line is let in before somebody whose place in it is older, unless its lease may have ended.
///
/// # Errors
///
/// All promises that the history shows to be broken.
pub fn check(events: &[Event]) -> Result<Summary, Vec<Violation>> {
    let mut events: Vec<&Event> = events.iter().collect();
    // Stable, so that events of one time stay in the order in which they were recorded.
    events.sort_by_key(|event| event.at);
    let mut keys: BTreeMap<&str, KeyState> = BTreeMap::new();
    let mut summary = Summary::default();
    let mut broken = Vec::new();
    for event in events {
        match event.what {
            What::Granted { .. } => summary.granted += 1,
            What::Held => summary.held += 1,
            What::Queued { .. } => {
                summary.held += 1;
                summary.queued += 1;
            }
            What::Released => summary.released += 1,
            What::Extended { .. } => summary.extended += 1,
            What::ReleaseAbsent | What::ExtendAbsent => summary.absent += 1,
            _ => {}
        }
        keys.entry(&event.key).or_default().apply(&event.key, &event.lock, event.at, event.what, &mut broken);
    }
    if broken.is_empty() { Ok(summary) } else { Err(broken) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Events of key `k`, one second apart.
    fn history(events: &[(&str, What)]) -> Vec<Event> {
        let event = |(second, (lock, what)): (u64, &(&str, What))| Event {
            at: second * SECOND,
            key: "k".to_owned(),
            lock: (*lock).to_owned(),
            what: *what,
        };
        (0..).zip(events).map(event).collect()
    }

    fn only_violation(events: &[(&str, What)]) -> Violation {
        let mut broken = check(&history(events)).unwrap_err();
        assert_eq!(broken.len(), 1, "{broken:?}");
        broken.remove(0)
    }

    const SENT: What = What::AcquireSent { may_steal: false };
    const STEAL: What = What::AcquireSent { may_steal: true };

    fn granted(fence: u64, deadline: u64) -> What {
        What::Granted { fence, deadline: deadline * SECOND }
    }

    fn names() -> (String, String, String) {
        ("k".to_owned(), "a".to_owned(), "b".to_owned())
    }

    #[test]
    fn an_ordinary_history_passes() {
        let events = history(&[
            ("a", SENT),
            ("b", SENT),
            ("a", granted(1, 60)),
            ("b", What::Held),
            ("a", What::ExtendSent { deadline: 64 * SECOND }),
            ("a", What::Extended { deadline: 64 * SECOND }),
            ("c", SENT),
            ("a", What::ReleaseSent),
            ("c", granted(2, 10)),
            ("a", What::Released),
            ("a", What::ReleaseSent),
            ("a", What::ReleaseAbsent),
            // Abandoned by c at 10, free from 11.
            ("d", SENT),
            ("d", granted(3, 72)),
            ("e", STEAL),
            ("e", granted(4, 80)),
            ("d", What::ExtendSent { deadline: 90 * SECOND }),
            ("d", What::ExtendAbsent),
            ("x", What::ForceSent),
            ("x", What::ForceAnswered),
            ("f", SENT),
            ("f", granted(5, 90)),
            ("e", What::Lost),
        ]);
        let summary = Summary { granted: 5, held: 1, queued: 0, released: 1, extended: 1, absent: 2 };
        assert_eq!(check(&events), Ok(summary));
    }

    #[test]
    fn two_holders_at_once_are_noticed() {
        let broken = only_violation(&[("a", SENT), ("a", granted(1, 60)), ("b", SENT), ("b", granted(2, 60))]);
        let (key, first, second) = names();
        assert_eq!(broken, Violation::Overlap { key, first, second });
    }

    #[test]
    fn a_steal_excuses_only_locks_that_it_met() {
        let events = [
            ("s", STEAL),
            ("s", granted(1, 2)),
            ("s", What::ReleaseSent),
            ("s", What::Released),
            ("a", SENT),
            ("a", granted(2, 60)),
            ("b", SENT),
            ("b", granted(3, 60)),
        ];
        let (key, first, second) = names();
        assert_eq!(only_violation(&events), Violation::Overlap { key, first, second });
    }

    #[test]
    fn a_steal_may_meet_a_grant_whose_answer_is_on_its_way() {
        let stolen = [("a", SENT), ("s", STEAL), ("s", granted(2, 60)), ("a", granted(1, 60)), ("a", What::Lost)];
        assert!(check(&history(&stolen)).is_ok());
        let asked_later = [("s", STEAL), ("a", SENT), ("a", granted(1, 60)), ("s", granted(2, 60)), ("a", What::Lost)];
        assert!(check(&history(&asked_later)).is_ok());
        let own = [("s", STEAL), ("s", granted(1, 60)), ("b", SENT), ("b", granted(2, 60))];
        let (key, first, second) = ("k".to_owned(), "s".to_owned(), "b".to_owned());
        assert_eq!(only_violation(&own), Violation::Overlap { key, first, second });
    }

    #[test]
    fn a_lock_given_away_within_the_tolerance_is_noticed() {
        let mut events = history(&[("a", SENT), ("a", granted(1, 2)), ("b", SENT), ("b", granted(2, 60))]);
        events[3].at = 2 * SECOND + SECOND / 2;
        let (key, first, second) = names();
        assert_eq!(check(&events), Err(vec![Violation::TakenTooEarly { key, first, second }]));
        events[3].at = 3 * SECOND;
        assert!(check(&events).is_ok());
    }

    #[test]
    fn repeated_and_falling_fences_are_noticed() {
        let falling = |after| {
            let first = [("a", SENT), ("a", granted(5, 60)), ("a", What::ReleaseSent), ("a", What::Released)];
            [&first[..], &[("b", SENT), ("b", granted(after, 60))]].concat()
        };
        let key = "k".to_owned();
        assert_eq!(only_violation(&falling(4)), Violation::FenceWentBack { key: key.clone(), before: 5, after: 4 });
        assert_eq!(only_violation(&falling(5)), Violation::FenceRepeated { key, fence: 5 });
    }

    #[test]
    fn grants_under_way_together_may_be_answered_in_any_order() {
        let events = [
            ("a", SENT),
            ("b", SENT),
            ("b", granted(2, 60)),
            ("b", What::ReleaseSent),
            ("a", granted(1, 3)),
            ("a", What::ExtendSent { deadline: 9 * SECOND }),
            ("a", What::ExtendAbsent),
        ];
        assert!(check(&history(&events)).is_ok());
    }

    #[test]
    fn a_repeated_acquire_with_another_grant_is_noticed() {
        let events = [("a", SENT), ("a", granted(1, 60)), ("a", SENT), ("a", granted(2, 60))];
        assert_eq!(only_violation(&events), Violation::GrantChanged { key: "k".to_owned(), lock: "a".to_owned() });
    }

    #[test]
    fn a_second_release_is_noticed() {
        let (key, lock, _) = names();
        let release = [("a", What::ReleaseSent), ("a", What::Released)];
        let events = [&[("a", SENT), ("a", granted(1, 60))][..], &release, &release].concat();
        assert_eq!(only_violation(&events), Violation::ReleasedTwice { key, lock });
    }

    #[test]
    fn a_lock_that_comes_back_is_noticed() {
        let (key, lock, _) = names();
        let resurrected = Violation::Resurrected { key, lock };
        let extended = [
            ("a", SENT),
            ("a", granted(1, 60)),
            ("a", What::ReleaseSent),
            ("a", What::Released),
            ("a", What::ExtendSent { deadline: 60 * SECOND }),
            ("a", What::Extended { deadline: 60 * SECOND }),
        ];
        assert_eq!(only_violation(&extended), resurrected);
        let released = [
            ("a", SENT),
            ("a", granted(1, 2)),
            ("b", SENT),
            ("b", granted(2, 60)),
            ("a", What::ReleaseSent),
            ("a", What::Released),
        ];
        assert_eq!(only_violation(&released), resurrected);
    }

    #[test]
    fn a_lock_denied_within_its_time_is_noticed() {
        let (key, lock, _) = names();
        let denied = |what| [("a", SENT), ("a", granted(1, 60)), ("a", What::ReleaseSent), ("a", what)];
        let lost = Violation::LostWithoutCause { key, lock };
        assert_eq!(only_violation(&denied(What::ReleaseAbsent)), lost);
        let extend = What::ExtendSent { deadline: 60 * SECOND };
        let events = [("a", SENT), ("a", granted(1, 60)), ("a", extend), ("a", What::ExtendAbsent)];
        assert_eq!(only_violation(&events), lost);
    }

    #[test]
    fn events_are_lines_of_json() {
        let event = &history(&[("a", granted(7, 60))])[0];
        let line = serde_json::to_string(event).unwrap();
        assert_eq!(line, r#"{"at":0,"key":"k","lock":"a","what":"granted","fence":7,"deadline":60000000000}"#);
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), *event);
    }
}
