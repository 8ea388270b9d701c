use std::collections::{BTreeMap, BTreeSet};

use super::{Party, Reads};
use crate::data::history::Change;

/// Who waits for whom.
#[derive(Debug, Default)]
pub(crate) struct Waiting(BTreeMap<Party, Waiter>);

#[derive(Debug)]
struct Waiter {
    blockers: BTreeSet<Party>,
    /// What it is about to change; nothing for one that wants to read.
    changes: Vec<Change>,
}

impl Waiting {
    pub(crate) fn add(&mut self, party: Party, blockers: BTreeSet<Party>, changes: Vec<Change>) {
        self.0.insert(party, Waiter { blockers, changes });
    }

    /// Whether it did wait.
    pub(crate) fn remove(&mut self, party: Party) -> bool {
        self.0.remove(&party).is_some()
    }

    pub(crate) fn contains(&self, party: Party) -> bool {
        self.0.contains_key(&party)
    }

    /// Whether one of the blockers waits for `party`, by itself or through others.
    pub(crate) fn is_deadlock(&self, party: Party, blockers: &BTreeSet<Party>) -> bool {
        let mut seen = BTreeSet::new();
        let mut next: Vec<_> = blockers.iter().copied().collect();
        while let Some(blocker) = next.pop() {
            if blocker == party {
                return true;
            }
            if seen.insert(blocker)
                && let Some(waiter) = self.0.get(&blocker)
            {
                next.extend(&waiter.blockers);
            }
        }
        false
    }

    /// The commits that already wait to change what `party` wants to read. It queues behind them:
    /// otherwise new readers could keep a commit waiting forever. It does not queue behind one that
    /// waits for it.
    pub(crate) fn ahead_of(&self, party: Party, reads: &Reads) -> BTreeSet<Party> {
        let ahead = self.0.iter().filter(|(waiter, _)| **waiter != party);
        let ahead = ahead.filter(|(_, waiter)| reads.touched_by(&waiter.changes)).map(|(waiter, _)| *waiter);
        let ahead = ahead.filter(|waiter| !self.is_deadlock(party, &BTreeSet::from([*waiter])));
        ahead.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_of_any_length_is_a_deadlock() {
        let mut waiting = Waiting::default();
        waiting.add(1, BTreeSet::from([2]), Vec::new());
        waiting.add(2, BTreeSet::from([3]), Vec::new());
        assert!(waiting.is_deadlock(3, &BTreeSet::from([1])));
        assert!(waiting.is_deadlock(2, &BTreeSet::from([1])));
        assert!(!waiting.is_deadlock(4, &BTreeSet::from([1])));
        waiting.remove(2);
        assert!(!waiting.is_deadlock(3, &BTreeSet::from([1])));
    }
}
