use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::hold::Hold;
use crate::backend::MOST_AT_ONCE;
use crate::map::Map;
use crate::{Fence, Key, LockId, Mode};

/// All the locks this handle holds, when each needs the keeper next, and which of them wait for
/// their renewal to be sent.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    holds: Map<LockId, Entry>,
    /// Of exclusive locks: others may have many holds of one key.
    keys: Map<Key, LockId>,
    by_due: BTreeSet<(Instant, LockId)>,
    /// The holds whose renewal is due: by the magnitude of their ttl, the most urgent first. One
    /// that lasts for a moment does not travel with one that lasts for minutes, because the store
    /// gets less time for it.
    renewals: BTreeMap<Magnitude, BTreeSet<(Instant, LockId)>>,
    /// When the keeper will look next by itself; `None` if it sleeps until it is woken.
    planned: Option<Instant>,
}

/// The whole part of the binary logarithm of a ttl in milliseconds.
type Magnitude = u32;

#[derive(Debug)]
struct Entry {
    hold: Arc<Hold>,
    /// `None` while the keeper looks at it.
    due: Option<Instant>,
    /// Where it waits for its renewal.
    renewal: Option<(Magnitude, Instant)>,
}

/// The renewals that wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Urgency {
    /// The end of the lease that ends first.
    pub(super) deadline: Instant,
    /// No lease of those that wait is shorter.
    pub(super) ttl: Duration,
}

impl Schedule {
    /// Adds a hold, or sets a new time for one that is there. Tells whether the keeper must be
    /// woken for it. It need not be in most cases, and a wake-up costs more than all the rest of
    /// taking a lock.
    pub(super) fn set(&mut self, hold: Arc<Hold>, due: Instant) -> bool {
        let id = hold.lock_id;
        match self.holds.get_mut(&id) {
            Some(entry) => {
                let (before, renewal) = (entry.due.replace(due), entry.renewal.take());
                self.unlist(&id, before, renewal);
            }
            None => {
                if hold.mode == Mode::Exclusive {
                    self.keys.insert(hold.key.clone(), id);
                }
                self.holds.insert(id, Entry { hold, due: Some(due), renewal: None });
            }
        }
        self.by_due.insert((due, id));
        self.planned.is_none_or(|planned| due < planned)
    }

    /// Like [`set`](Schedule::set), but only for a hold that is still there.
    pub(super) fn reset(&mut self, hold: &Arc<Hold>, due: Instant) -> bool {
        self.holds.contains_key(&hold.lock_id) && self.set(hold.clone(), due)
    }

    /// Has a hold wait for its renewal. Meanwhile, and while the renewal is on its way, the keeper
    /// looks at it when its time is over.
    pub(super) fn await_renewal(&mut self, hold: &Arc<Hold>) {
        let (deadline, magnitude) = (hold.deadline(), hold.lasts().as_millis().ilog2());
        self.reset(hold, deadline);
        if let Some(entry) = self.holds.get_mut(&hold.lock_id) {
            entry.renewal = Some((magnitude, deadline));
            self.renewals.entry(magnitude).or_default().insert((deadline, hold.lock_id));
        }
    }

    /// Takes the renewals to be sent next: the most urgent, and others with a similar ttl. Only of
    /// leases that end before the given moment, if there is one.
    pub(super) fn next_renewals(&mut self, before: Option<Instant>) -> Vec<Arc<Hold>> {
        let urgent = |holds: &BTreeSet<(Instant, LockId)>| holds.first().map(|(deadline, _)| *deadline);
        let Some(holds) = self.renewals.values_mut().min_by_key(|holds| urgent(holds)) else { return Vec::new() };
        let mut next = Vec::new();
        while next.len() < MOST_AT_ONCE
            && let Some((deadline, id)) = holds.first().copied()
            && before.is_none_or(|before| deadline < before)
        {
            let entry = self.holds.get_mut(&id);
            let alone = entry.as_ref().is_some_and(|entry| entry.hold.is_alone());
            if alone && !next.is_empty() {
                break;
            }
            holds.pop_first();
            if let Some(entry) = entry {
                entry.renewal = None;
                next.push(entry.hold.clone());
            }
            if alone {
                break;
            }
        }
        self.renewals.retain(|_, holds| !holds.is_empty());
        next
    }

    /// How urgent the renewals are that wait, if there are any.
    pub(super) fn urgency(&self) -> Option<Urgency> {
        let deadline = self.renewals.values().filter_map(|holds| holds.first()).map(|(deadline, _)| *deadline).min()?;
        let (magnitude, _) = self.renewals.first_key_value()?;
        Some(Urgency { deadline, ttl: Duration::from_millis(1 << magnitude) })
    }

    pub(super) fn remove(&mut self, id: &LockId) {
        if let Some(Entry { hold, due, renewal }) = self.holds.remove(id) {
            self.unlist(id, due, renewal);
            if self.keys.get(&hold.key) == Some(id) {
                self.keys.remove(&hold.key);
            }
        }
    }

    fn unlist(&mut self, id: &LockId, due: Option<Instant>, renewal: Option<(Magnitude, Instant)>) {
        if let Some(due) = due {
            self.by_due.remove(&(due, *id));
        }
        if let Some((magnitude, deadline)) = renewal
            && let Some(holds) = self.renewals.get_mut(&magnitude)
        {
            holds.remove(&(deadline, *id));
            if holds.is_empty() {
                self.renewals.remove(&magnitude);
            }
        }
    }

    pub(super) fn get(&self, id: &LockId) -> Option<Arc<Hold>> {
        self.holds.get(id).map(|entry| entry.hold.clone())
    }

    /// The newest exclusive hold of `key`.
    pub(super) fn of_key(&self, key: &Key) -> Option<Arc<Hold>> {
        self.get(self.keys.get(key)?)
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
