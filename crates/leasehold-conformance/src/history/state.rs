use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold::TIME_TOLERANCE;
use leasehold::backend::Mode;

use super::line::Waiting;
use super::lock::Lock;
use super::{Violation, What};

/// The store's clock counts whole milliseconds and is not the clock of the history, so that a grant
/// may seem this much earlier than it was.
pub(super) const SLACK: Duration = Duration::from_millis(50);

/// What is known of one key at one point of the history.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    locks: BTreeMap<String, Lock>,
    fences: BTreeSet<u64>,
    /// The locks that somebody may count on. A history has many more, which are over, and a look at
    /// all of them for each event would take the square of its length.
    live: BTreeSet<String>,
    /// The locks that are not superseded, by their fences.
    latest: BTreeMap<u64, Vec<String>>,
    /// Steals and forced releases that were sent and not answered: any lock may be ended by one of
    /// them.
    interventions: u32,
    waiting: Waiting,
}

impl KeyState {
    /// Takes in the next event of `key`; the broken promises that it shows go to `broken`.
    pub(super) fn apply(&mut self, key: &str, lock: &str, at: u64, what: What, broken: &mut Vec<Violation>) {
        self.waiting.apply((key, lock), at, what, broken);
        match what {
            What::Wanted { mode, .. } => self.locks.entry(lock.to_owned()).or_default().mode = mode,
            What::Slot { slot } => self.locks.entry(lock.to_owned()).or_default().slot = Some(slot),
            What::AcquireSent { may_steal } => self.asked(lock, may_steal),
            What::Held | What::Queued { .. } => self.answered(lock),
            What::Granted { fence, deadline } => self.granted(key, lock, at, (fence, deadline), broken),
            What::ForceSent => self.intervene(lock),
            What::ForceAnswered => self.interventions = self.interventions.saturating_sub(1),
            What::Extended { deadline } => {
                let state = self.locks.entry(lock.to_owned()).or_default();
                state.deadline = deadline;
                if state.fence.is_some() {
                    self.live.insert(lock.to_owned());
                }
                if state.extend_too_late {
                    broken.push(Violation::Resurrected { key: key.to_owned(), lock: lock.to_owned() });
                }
                self.check_overlap(key, lock, at, broken);
            }
            _ => {
                let state = self.locks.entry(lock.to_owned()).or_default();
                if let Some(violation) = state.apply(key, lock, at, what) {
                    broken.push(violation);
                }
            }
        }
    }

    fn asked(&mut self, lock: &str, may_steal: bool) {
        let floor = self.fences.last().copied();
        let intervened = self.interventions > 0;
        let state = self.locks.entry(lock.to_owned()).or_default();
        state.may_steal = may_steal;
        state.intervened |= intervened;
        // A repeated acquire may be answered with the first grant.
        if state.fence.is_none() {
            state.floor = floor;
        }
        if may_steal {
            self.intervene(lock);
        }
    }

    /// From now on any lock of the key may be taken from its holder, except by itself.
    fn intervene(&mut self, by: &str) {
        self.interventions += 1;
        for (name, lock) in &mut self.locks {
            lock.intervened |= name != by;
        }
    }

    /// The acquire of `lock` is no longer under way.
    fn answered(&mut self, lock: &str) {
        if self.locks.get(lock).is_some_and(|state| state.may_steal) {
            self.interventions = self.interventions.saturating_sub(1);
        }
    }

    fn granted(&mut self, key: &str, lock: &str, at: u64, grant: (u64, u64), broken: &mut Vec<Violation>) {
        let (fence, deadline) = grant;
        self.answered(lock);
        let state = self.locks.entry(lock.to_owned()).or_default();
        if let Some(first) = state.fence {
            if first != fence {
                broken.push(Violation::GrantChanged { key: key.to_owned(), lock: lock.to_owned() });
            }
            return;
        }
        (state.fence, state.deadline) = (Some(fence), deadline);
        if let Some(before) = state.floor.filter(|floor| *floor > fence) {
            broken.push(Violation::FenceWentBack { key: key.to_owned(), before, after: fence });
        }
        if !self.fences.insert(fence) {
            broken.push(Violation::FenceRepeated { key: key.to_owned(), fence });
        }
        self.live.insert(lock.to_owned());
        self.check_overlap(key, lock, at, broken);
        self.supersede(lock, fence);
    }

    /// Those who got the key before `lock` have it no longer, unless they may have it together.
    fn supersede(&mut self, lock: &str, fence: u64) {
        let mut later = self.latest.split_off(&fence);
        let mut together = BTreeMap::new();
        for (before, mut names) in std::mem::take(&mut self.latest) {
            names.retain(|name| {
                let (Some(other), Some(new)) = (self.locks.get(name), self.locks.get(lock)) else { return false };
                if other.goes_with(new) {
                    return !other.released;
                }
                self.locks.entry(name.clone()).and_modify(|other| other.superseded = true);
                false
            });
            if !names.is_empty() {
                together.insert(before, names);
            }
        }
        self.latest = together;
        self.latest.append(&mut later);
        self.latest.entry(fence).or_default().push(lock.to_owned());
    }

    /// Nobody else may count on the key now that `lock` does.
    fn check_overlap(&mut self, key: &str, lock: &str, at: u64, broken: &mut Vec<Violation>) {
        let tolerance = u64::try_from((TIME_TOLERANCE - SLACK).as_nanos()).unwrap_or(u64::MAX);
        let is_live = |other: &Lock| !other.ended && at < other.deadline.saturating_add(tolerance);
        self.live.retain(|name| self.locks.get(name).is_some_and(is_live));
        let Some(new) = self.locks.get(lock).filter(|new| !new.ended && new.deadline > at) else { return };
        for (name, other) in self.live.iter().filter_map(|name| self.locks.get_key_value(name)) {
            // A lock that is extended may have been stolen before the answer arrived.
            let intervened = other.intervened || (new.intervened && other.fence > new.fence);
            if name == lock || other.fence.is_none() || other.ended || intervened || other.goes_with(new) {
                continue;
            }
            let (key, first, second) = (key.to_owned(), name.clone(), lock.to_owned());
            if at < other.deadline {
                broken.push(Violation::Overlap { key, first, second });
            } else if !other.superseded && other.fence < new.fence && at < other.deadline.saturating_add(tolerance) {
                broken.push(Violation::TakenTooEarly { key, first, second });
            }
        }
        self.check_permits(key, lock, broken);
    }

    /// Nobody has a permit that was granted while as many were out as there are. Of all who have
    /// one now, those with lower fences had theirs already when a permit was granted.
    fn check_permits(&self, key: &str, lock: &str, broken: &mut Vec<Violation>) {
        let certain = |lock: &&Lock| lock.fence.is_some() && !lock.ended && !lock.intervened && !lock.superseded;
        let live = self.live.iter().filter_map(|name| self.locks.get_key_value(name));
        let permits: Vec<_> =
            live.filter(|(_, held)| certain(held) && matches!(held.mode, Mode::Permit { .. })).collect();
        let Some(new) = permits.iter().find(|(name, _)| *name == lock).and_then(|(_, new)| new.fence) else { return };
        for (name, held) in &permits {
            let Mode::Permit { of } = held.mode else { continue };
            let before = permits.iter().filter(|(_, other)| other.fence < held.fence).count();
            // What does not depend on the new one was seen before.
            if held.fence >= Some(new) && before >= usize::from(of.get()) {
                let (key, lock) = (key.to_owned(), (*name).clone());
                broken.push(Violation::TooManyPermits { key, lock, of: of.get(), held: before + 1 });
            }
        }
    }
}
