use crate::backend::Record;
use crate::key_state::KeyState;
use crate::{LockId, Timestamp};

/// What is kept of a key. Nearly all are exclusive locks that nobody stands in line for, and those
/// take no more than their record.
#[derive(Debug)]
pub(super) enum Entry {
    Plain(Record),
    Busy(Box<KeyState>),
}

impl Entry {
    pub(super) fn into_state(self) -> KeyState {
        match self {
            Entry::Plain(record) => KeyState::of(record),
            Entry::Busy(state) => *state,
        }
    }

    pub(super) fn to_state(&self) -> KeyState {
        match self {
            Entry::Plain(record) => KeyState::of(record.clone()),
            Entry::Busy(state) => (**state).clone(),
        }
    }

    pub(super) fn of(state: KeyState) -> Option<Self> {
        if state.is_empty() {
            return None;
        }
        Some(state.into_plain().map_or_else(|state| Entry::Busy(Box::new(state)), Entry::Plain))
    }

    /// The grants, live and dead.
    pub(super) fn grants(&self) -> &[Record] {
        match self {
            Entry::Plain(record) => std::slice::from_ref(record),
            Entry::Busy(state) => &state.grants,
        }
    }

    /// The grant of an id, live or dead.
    pub(super) fn grant_mut(&mut self, id: &LockId) -> Option<&mut Record> {
        let grants = match self {
            Entry::Plain(record) => std::slice::from_mut(record),
            Entry::Busy(state) => &mut state.grants,
        };
        grants.iter_mut().find(|grant| grant.lock_id == *id)
    }

    /// How many stand in line.
    pub(super) fn waiting(&self, now: Timestamp) -> u32 {
        match self {
            Entry::Plain(_) => 0,
            Entry::Busy(state) => u32::try_from(state.waiting(now).count()).unwrap_or(u32::MAX),
        }
    }

    /// The oldest live grant, or the one of an id.
    pub(super) fn live(&self, id: Option<&LockId>, now: Timestamp) -> Option<&Record> {
        let wanted = |grant: &&Record| id.is_none_or(|id| grant.lock_id == *id) && grant.expires_at.is_live(now);
        self.grants().iter().find(wanted)
    }

    /// How many records there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Entry::Plain(_) => 1,
            Entry::Busy(state) => state.grants.len() + state.line.len(),
        }
    }
}
