use std::collections::{BTreeMap, BTreeSet};

use leasehold::backend::Line;

use super::state::SLACK;
use super::{Violation, What};

/// Who stands in line for one key at one point of the history.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    asking: BTreeMap<String, Asking>,
    line: BTreeMap<String, Place>,
}

/// A request that was not granted yet.
#[derive(Debug, Default)]
struct Asking {
    obeys_line: bool,
    may_steal: bool,
    /// When it was sent for the first time.
    first: Option<u64>,
    /// When it was sent last, if it was not answered yet.
    under_way: Option<u64>,
}

#[derive(Debug)]
struct Place {
    /// When it had the place at the latest.
    since: u64,
    /// Until when it has it for certain: it may be called at once, and is then passed over before
    /// long.
    until: u64,
    /// Who was let in while its latest request was under way, and their fences. Its own may be
    /// lower.
    let_in: BTreeSet<(u64, String)>,
}

impl Waiting {
    /// Takes in the next event of `key`. That somebody who obeys the line was let in before
    /// somebody who stood in it for longer goes to `broken`.
    pub(super) fn apply(&mut self, of: (&str, &str), at: u64, what: What, broken: &mut Vec<Violation>) {
        let (key, lock) = of;
        match what {
            What::Wanted { obeys_line, .. } => {
                self.asking.entry(lock.to_owned()).or_default().obeys_line = obeys_line;
            }
            What::AcquireSent { may_steal } => {
                let asking = self.asking.entry(lock.to_owned()).or_default();
                (asking.may_steal, asking.under_way) = (may_steal, Some(at));
                asking.first.get_or_insert(at);
            }
            What::Held => {
                self.answered(lock);
                self.still_waits((key, lock), None, broken);
            }
            What::Queued { until } => {
                let sent = self.answered(lock).unwrap_or(at);
                self.still_waits((key, lock), None, broken);
                self.queued(lock, at, sent, until);
            }
            What::Granted { fence, .. } => self.granted((key, lock), at, fence, broken),
            // A release gives up a place, too.
            What::ReleaseSent | What::Lost => self.forget(lock),
            _ => {}
        }
    }

    fn forget(&mut self, lock: &str) {
        self.asking.remove(lock);
        self.line.remove(lock);
    }

    fn answered(&mut self, lock: &str) -> Option<u64> {
        self.asking.get_mut(lock)?.under_way.take()
    }

    fn queued(&mut self, lock: &str, at: u64, sent: u64, until: u64) {
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let until = until.min(sent.saturating_add(nanos(Line::CALL_LEASE))).saturating_sub(nanos(SLACK));
        let place = self.line.entry(lock.to_owned()).or_insert(Place { since: at, until, let_in: BTreeSet::new() });
        // Otherwise it may have lost its place before this one.
        if at > place.until {
            place.since = at;
        }
        place.until = until;
    }

    fn granted(&mut self, of: (&str, &str), at: u64, fence: u64, broken: &mut Vec<Violation>) {
        let (key, lock) = of;
        self.still_waits(of, Some(fence), broken);
        self.line.remove(lock);
        let Some(asking) = self.asking.remove(lock).filter(|asking| asking.obeys_line && !asking.may_steal) else {
            return;
        };
        let Some(first) = asking.first else { return };
        for (name, place) in &mut self.line {
            if place.since >= first || at >= place.until {
                continue;
            }
            if self.asking.get(name).is_some_and(|asking| asking.under_way.is_some()) {
                place.let_in.insert((fence, lock.to_owned()));
            } else {
                let (key, first, second) = (key.to_owned(), name.clone(), lock.to_owned());
                broken.push(Violation::Overtaken { key, first, second });
            }
        }
    }

    /// A request of somebody in line was answered, with a fence if it was granted: whoever was let
    /// in meanwhile was let in before, unless that has the higher fence.
    fn still_waits(&mut self, of: (&str, &str), fence: Option<u64>, broken: &mut Vec<Violation>) {
        let (key, lock) = of;
        let Some(place) = self.line.get_mut(lock) else { return };
        for (other, name) in std::mem::take(&mut place.let_in) {
            if fence.is_none_or(|fence| fence > other) {
                broken.push(Violation::Overtaken { key: key.to_owned(), first: lock.to_owned(), second: name });
            }
        }
    }
}
