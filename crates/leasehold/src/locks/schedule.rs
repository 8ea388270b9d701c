use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use super::hold::Hold;
use crate::{Fence, Key, LockId};

/// All the locks this handle holds, and when each needs the keeper next.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    holds: HashMap<LockId, Entry>,
    by_due: BTreeSet<(Instant, LockId)>,
    /// When the keeper will look next by itself; `None` if it sleeps until it is woken.
    planned: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    hold: Arc<Hold>,
    /// `None` while the keeper is busy with it.
    due: Option<Instant>,
}

impl Schedule {
    /// Adds a hold, or sets a new time for one that is there. Tells whether the keeper must be
    /// woken for it. It need not be in most cases, and a wake-up costs more than all the rest of
    /// taking a lock.
    pub(super) fn set(&mut self, hold: Arc<Hold>, due: Instant) -> bool {
        let id = hold.lock_id;
        let before = self.holds.insert(id, Entry { hold, due: Some(due) });
        if let Some(Entry { due: Some(before), .. }) = before {
            self.by_due.remove(&(before, id));
        }
        self.by_due.insert((due, id));
        self.planned.is_none_or(|planned| due < planned)
    }

    /// Like [`set`](Schedule::set), but only for a hold that is still there.
    pub(super) fn reset(&mut self, hold: &Arc<Hold>, due: Instant) -> bool {
        self.holds.contains_key(&hold.lock_id) && self.set(hold.clone(), due)
    }

    pub(super) fn remove(&mut self, id: &LockId) {
        if let Some(Entry { due: Some(due), .. }) = self.holds.remove(id) {
            self.by_due.remove(&(due, *id));
        }
    }

    pub(super) fn get(&self, id: &LockId) -> Option<Arc<Hold>> {
        self.holds.get(id).map(|entry| entry.hold.clone())
    }

    /// The hold of this grant. Looks at all of them: locks are seldom taken from their holders.
    pub(super) fn find(&self, key: &Key, fence: Fence) -> Option<Arc<Hold>> {
        let mut holds = self.holds.values().map(|entry| &entry.hold);
        holds.find(|hold| hold.fence == fence && hold.key == *key).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Hold>> {
        self.holds.values().map(|entry| entry.hold.clone()).collect()
    }

    /// When the keeper must look next. It sleeps until then.
    pub(super) fn plan(&mut self) -> Option<Instant> {
        self.planned = self.by_due.first().map(|(due, _)| *due);
        self.planned
    }

    /// The holds that are due; they stay in the schedule without a time until
    /// [`reset`](Schedule::reset).
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Arc<Hold>> {
        let mut due = Vec::new();
        while let Some(first) = self.by_due.first().copied().filter(|(at, _)| *at <= now) {
            self.by_due.remove(&first);
            if let Some(entry) = self.holds.get_mut(&first.1) {
                entry.due = None;
                due.push(entry.hold.clone());
            }
        }
        due
    }
}
