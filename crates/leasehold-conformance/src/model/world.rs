use leasehold::backend::{AcquireRequest, Line, Mode, Record, Waiter};
use leasehold::{Contention, Fence, Holder, LockId, Metadata, Timestamp};

use super::interval::Span;

/// How long past its expiry a lock is still held.
pub(super) const TOLERANCE_MILLIS: u64 = 1000;
/// How long somebody has who was called.
const CALL_MILLIS: u64 = 2000;

/// One way in which a key may be, as far as the answers of the store tell.
///
/// It does its own arithmetic: a mistake in what the library's stores share must not be shared by
/// their judge.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct World {
    /// The oldest first.
    pub(super) grants: Vec<Record>,
    /// The first in line first.
    pub(super) line: Vec<Place>,
}

/// A place in the line. Its times are the store's, and not always told.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) id: LockId,
    mode: Mode,
    holder: Holder,
    metadata: Metadata,
    since: Span,
    pub(super) until: Span,
    /// It was called since it asked last.
    called: bool,
}

/// What somebody is told who is not let in.
pub(super) struct Refusal {
    holder: Option<Holder>,
    fence: Option<Fence>,
    since: Span,
    expires: Span,
    mode: Mode,
    holders: usize,
    /// It is not held, but kept for the first in line.
    kept: bool,
    /// The place of the first in line is what it waits for.
    waits_for_place: bool,
}

impl World {
    /// Every way in which the key may be at some moment of `at`, with nothing in it that is over by
    /// then, and when that is. What happens at `edges` changes in between, too.
    pub(super) fn moments(&self, at: Span, edges: &[u64]) -> Vec<(World, Span)> {
        let ends = self.grants.iter().map(|grant| grant.expires_at.as_millis() + TOLERANCE_MILLIS);
        let leases = self.line.iter().flat_map(|place| [place.until.from, place.until.to]);
        let parts = at.parts(ends.chain(leases).chain(edges.iter().copied()));
        parts.into_iter().flat_map(|part| self.at(part).into_iter().map(move |world| (world, part))).collect()
    }

    /// The ways it may be within a part of time in which nothing ends, unless nobody knows when.
    fn at(&self, part: Span) -> Vec<World> {
        let is_live = |grant: &&Record| grant.expires_at.as_millis() + TOLERANCE_MILLIS > part.from;
        let grants: Vec<_> = self.grants.iter().filter(is_live).cloned().collect();
        let mut lines = vec![Vec::new()];
        for place in self.line.iter().filter(|place| place.until.to > part.from) {
            let ended = if place.until.from <= part.to { lines.clone() } else { Vec::new() };
            let mut live = place.clone();
            live.until.from = live.until.from.max(part.from + 1);
            lines.iter_mut().for_each(|line| line.push(live.clone()));
            lines.extend(ended);
        }
        lines.into_iter().map(|line| World { grants: grants.clone(), line }).collect()
    }

    pub(super) fn grant_of(&self, id: &LockId) -> Option<&Record> {
        self.grants.iter().find(|grant| grant.lock_id == *id)
    }

    fn others(&self, id: &LockId) -> Vec<&Record> {
        self.grants.iter().filter(|grant| grant.lock_id != *id).collect()
    }

    /// How many of the others have to go before `id` can hold the key like this.
    fn too_many(&self, id: &LockId, mode: Mode) -> usize {
        let others = self.others(id);
        let may_stay = match mode {
            Mode::Shared if others.iter().all(|other| other.mode == Mode::Shared) => usize::MAX,
            Mode::Permit { of } if others.iter().all(|other| matches!(other.mode, Mode::Permit { .. })) => {
                usize::from(of.get()) - 1
            }
            _ => 0,
        };
        others.len().saturating_sub(may_stay)
    }

    /// Why a request is not let in at a moment of `at`, if it is not.
    pub(super) fn refusal(&self, request: &AcquireRequest, at: Span) -> Option<Refusal> {
        let others = self.others(&request.lock_id);
        let too_many = self.too_many(&request.lock_id, request.mode);
        let first = self.line.first().filter(|first| first.id != request.lock_id);
        let before_it = first.filter(|first| request.line != Line::Ignore || (others.is_empty() && first.called));
        if too_many == 0 && before_it.is_none() {
            return None;
        }
        let mut ends: Vec<_> = others.iter().map(|other| other.expires_at).collect();
        ends.sort_unstable();
        // The last of those that have to go, counted from the one that goes first.
        let last = too_many.checked_sub(1).map(|last| Span::only(ends[last]));
        // The refusal calls the first in line if it could be let in.
        let called = self.clone().call(at);
        let place_ends = before_it.and(called.line.first()).map(|first| first.until.minus(TOLERANCE_MILLIS));
        let expires = last.or(place_ends)?;
        let waits_for_place = last.is_none();
        Some(match (others.first(), before_it) {
            (Some(oldest), _) => Refusal {
                holder: oldest.holder.clone(),
                fence: Some(oldest.fence),
                since: Span::only(oldest.acquired_at),
                expires,
                mode: oldest.mode,
                holders: others.len(),
                kept: false,
                waits_for_place,
            },
            (None, first) => {
                let Place { holder, since, mode, .. } = first?;
                let (holder, fence) = (Some(holder.clone()), None);
                Refusal { holder, fence, since: *since, expires, mode: *mode, holders: 0, kept: true, waits_for_place }
            }
        })
    }

    /// Whether a refusal is told as it is. What it tells of the times of the first in line is known
    /// from then on.
    pub(super) fn told(&mut self, refusal: &Refusal, contention: &Contention) -> Result<(), String> {
        let Contention { acquired_at, expires_at, .. } = contention;
        let holders = u32::try_from(refusal.holders).unwrap_or(u32::MAX);
        let wrong = |what: &str| Err(format!("the contention has another {what}: {contention:?}"));
        match () {
            () if contention.holder != refusal.holder => return wrong("holder"),
            () if contention.fence != refusal.fence => return wrong("fence"),
            () if contention.mode != refusal.mode => return wrong("mode"),
            () if contention.holders != holders => return wrong("number of holders"),
            () if !refusal.since.contains(acquired_at.as_millis()) => return wrong("beginning"),
            () if !refusal.expires.contains(expires_at.as_millis()) => return wrong("end"),
            () => {}
        }
        if let Some(first) = self.line.first_mut() {
            if refusal.kept {
                first.since = Span::only(*acquired_at);
            }
            if refusal.waits_for_place {
                first.until = Span::only(*expires_at).plus(TOLERANCE_MILLIS);
            }
        }
        Ok(())
    }

    /// Whom a request may take the lock from so that it is let in: the oldest, and no more than
    /// must go. `part` is when.
    pub(super) fn victims(&self, request: &AcquireRequest, part: Span) -> Vec<LockId> {
        let too_many = self.too_many(&request.lock_id, request.mode);
        let may_take = |held: &&&Record| {
            let steal = request.steal;
            let held_for = u128::from(part.from.saturating_sub(held.acquired_at.as_millis()));
            (steal.same_holder() && held.holder.as_ref() == Some(&request.holder))
                || steal.fence() == Some(held.fence)
                || steal.held_longer_than().is_some_and(|limit| held_for > limit.as_millis())
        };
        let others = self.others(&request.lock_id);
        let victims: Vec<_> = others.iter().filter(may_take).take(too_many).map(|victim| victim.lock_id).collect();
        if victims.len() < too_many { Vec::new() } else { victims }
    }

    pub(super) fn end(&mut self, ids: &[LockId]) {
        self.grants.retain(|grant| !ids.contains(&grant.lock_id));
    }

    pub(super) fn leave(&mut self, id: &LockId) -> bool {
        let before = self.line.len();
        self.line.retain(|place| place.id != *id);
        self.line.len() < before
    }

    /// The slot that a request gets that is let in.
    pub(super) fn slot(&self, request: &AcquireRequest) -> Option<u16> {
        let taken = |slot: &u16| self.others(&request.lock_id).iter().any(|other| other.slot == Some(*slot));
        matches!(request.mode, Mode::Permit { .. }).then(|| (0..).find(|slot| !taken(slot))).flatten()
    }

    /// Takes a place, or keeps the one there is. The number of those before it.
    pub(super) fn join(&mut self, request: &AcquireRequest, lease: u64, at: Span) -> usize {
        let found = self.line.iter().position(|place| place.id == request.lock_id);
        let since = found.map_or(at, |found| self.line[found].since);
        let place = Place {
            id: request.lock_id,
            mode: request.mode,
            holder: request.holder.clone(),
            metadata: request.metadata.clone(),
            since,
            until: at.plus(lease),
            called: false,
        };
        match found {
            Some(found) => self.line[found] = place,
            None => self.line.push(place),
        }
        found.unwrap_or(self.line.len() - 1)
    }

    /// Calls the first in line if it could be let in and was not called yet.
    pub(super) fn call(mut self, at: Span) -> Self {
        let Some((id, mode)) = self.line.first().map(|first| (first.id, first.mode)) else { return self };
        let has_room = self.too_many(&id, mode) == 0;
        if let Some(first) = self.line.first_mut().filter(|first| has_room && !first.called) {
            first.called = true;
            first.until = first.until.min(at.plus(CALL_MILLIS));
        }
        self
    }
}

impl Place {
    /// Whether this is what the store shows of it. Its times are known from then on.
    pub(super) fn is_shown_as(&mut self, waiter: &Waiter) -> bool {
        let same = self.id == waiter.lock_id
            && self.mode == waiter.mode
            && Some(&self.holder) == waiter.holder.as_ref()
            && self.metadata == waiter.metadata
            && self.since.contains(waiter.since.as_millis())
            && self.until.contains(waiter.until.as_millis());
        (self.since, self.until) = (Span::only(waiter.since), Span::only(waiter.until));
        same
    }

    pub(super) fn ends(&self) -> Timestamp {
        Timestamp::from_millis(self.until.to)
    }
}
