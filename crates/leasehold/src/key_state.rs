//! The one rule about a key's grants and its line, for stores that decide in this process.

use std::collections::VecDeque;
use std::time::Duration;

use crate::backend::{Absence, Acquire, AcquireRequest, Grant, Inspected, Line, Mode, Record, Release, Waiter};
use crate::{Contention, Error, Fence, LockId, TIME_TOLERANCE, Timestamp, Ttl};

/// Who holds a key, and who stands in line for it.
///
/// A request is granted if the live grants of others leave room for it, and if nobody live stands
/// before it in the line. Everything else follows from that.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KeyState {
    /// The oldest first. Dead ones stay until somebody else is let in.
    pub(crate) grants: Vec<Record>,
    pub(crate) line: VecDeque<Place>,
    /// Ids that were here and are not any more.
    pub(crate) gone: Vec<LockId>,
}

/// A place in the line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) waiter: Waiter,
    /// It was called since it asked last.
    pub(crate) called: bool,
}

impl Place {
    /// Whether it was called since it asked last, and has to come soon. If the clock was set back
    /// meanwhile, nobody knows what became of it, and it is called again.
    pub(crate) fn is_called(&self, now: Timestamp) -> bool {
        self.called && self.waiter.until <= called_until(now)
    }
}

/// When the place of somebody ends who is called now.
fn called_until(now: Timestamp) -> Timestamp {
    now.whole_millis() + Line::CALL_LEASE
}

/// What came of an acquire.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) answer: Acquire,
    /// The grant is a new one.
    pub(crate) is_new: bool,
    /// Whom it was taken from.
    pub(crate) stolen: Vec<Record>,
}

impl KeyState {
    pub(crate) fn of(record: Record) -> Self {
        Self { grants: vec![record], ..Self::default() }
    }

    /// The record of an exclusive lock that nobody stands in line for, if that is all there is.
    pub(crate) fn into_plain(mut self) -> Result<Record, Self> {
        let plain = self.line.is_empty() && matches!(&self.grants[..], [only] if only.mode == Mode::Exclusive);
        if plain && let Some(record) = self.grants.pop() { Ok(record) } else { Err(self) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.grants.is_empty() && self.line.is_empty()
    }

    pub(crate) fn live(&self, now: Timestamp) -> impl Iterator<Item = &Record> {
        self.grants.iter().filter(move |grant| grant.expires_at.is_live(now))
    }

    pub(crate) fn grant_of(&self, id: &LockId, now: Timestamp) -> Option<&Record> {
        self.live(now).find(|grant| grant.lock_id == *id)
    }

    /// Decides about a request. `fence` makes the number of a new grant.
    pub(crate) fn acquire(
        &mut self,
        request: &AcquireRequest,
        now: Timestamp,
        fence: impl FnOnce() -> Result<Fence, Error>,
    ) -> Result<Acquired, Error> {
        if let Some(held) = self.grant_of(&request.lock_id, now) {
            return Ok(Acquired { answer: Acquire::Granted(held.grant()), is_new: false, stolen: Vec::new() });
        }
        let mut victims = Vec::new();
        if let Some(contention) = self.obstacle(request, now) {
            victims = self.victims(request, now);
            if victims.is_empty() {
                let place = match request.line {
                    Line::Join { lease } => Some(self.join(request, lease, now)),
                    Line::Ignore | Line::Heed => None,
                };
                let answer = Acquire::Held(contention.with_place(place));
                return Ok(Acquired { answer, is_new: false, stolen: Vec::new() });
            }
        }
        let fence = fence()?;
        let (stolen, rest): (Vec<_>, _) = self.grants.drain(..).partition(|grant| victims.contains(&grant.lock_id));
        self.grants = rest;
        self.gone.extend(victims);
        let answer = Acquire::Granted(self.grant(request, fence, now));
        Ok(Acquired { answer, is_new: true, stolen })
    }

    /// Who is in the way of a request, apart from a lock that its own id has.
    pub(crate) fn obstacle(&self, request: &AcquireRequest, now: Timestamp) -> Option<Contention> {
        let others: Vec<_> = self.others(request, now).collect();
        let room = self.room(request, now);
        let first = self.line.iter().find(|place| place.waiter.is_live(now));
        let ahead = first.filter(|first| {
            let is_ours = first.waiter.lock_id == request.lock_id;
            !is_ours && (request.line != Line::Ignore || (others.is_empty() && first.is_called(now)))
        });
        if room && ahead.is_none() {
            return None;
        }
        // Whoever is refused calls the first in line if it can come. And live for a lock is a while
        // longer than live for a place.
        let place_ends = |place: &Place| {
            let until = place.waiter.until;
            let until = if self.can_come(place, now) { until.min(called_until(now)) } else { until };
            until.minus(TIME_TOLERANCE)
        };
        let Some(oldest) = others.first() else {
            let first = ahead?;
            let Waiter { holder, since, mode, .. } = &first.waiter;
            let contention = Contention::new(holder.clone(), *since, place_ends(first), now);
            return Some(contention.with_mode(*mode).with_holders(0));
        };
        let mut ends: Vec<_> = others.iter().map(|grant| grant.expires_at).collect();
        ends.sort_unstable();
        let expires_at = match ahead {
            Some(first) if room => place_ends(first),
            _ => {
                let must_end = self.must_end(request, now);
                ends.get(must_end.saturating_sub(1)).copied().unwrap_or(oldest.expires_at)
            }
        };
        let contention = oldest.contention(now).with_holders(u32::try_from(others.len()).unwrap_or(u32::MAX));
        Some(Contention { expires_at, ..contention })
    }

    fn others(&self, request: &AcquireRequest, now: Timestamp) -> impl Iterator<Item = &Record> {
        self.live(now).filter(move |grant| grant.lock_id != request.lock_id)
    }

    /// Whether those who hold the key leave room for one more.
    fn room(&self, request: &AcquireRequest, now: Timestamp) -> bool {
        self.must_end(request, now) == 0
    }

    /// How many grants are in the way of a request.
    fn must_end(&self, request: &AcquireRequest, now: Timestamp) -> usize {
        let count = self.others(request, now).count();
        if self.others(request, now).all(|grant| grant.mode.goes_with(request.mode)) {
            let limit = usize::try_from(request.mode.limit()).unwrap_or(usize::MAX);
            return (count + 1).saturating_sub(limit);
        }
        count
    }

    /// The grants to take for a request: the oldest of those it may take, as many as are in its
    /// way, or none.
    fn victims(&self, request: &AcquireRequest, now: Timestamp) -> Vec<LockId> {
        let must_end = self.must_end(request, now);
        let may_take = |grant: &&Record| request.steal.allows(&request.holder, grant, now);
        let victims: Vec<_> =
            self.others(request, now).filter(may_take).take(must_end).map(|grant| grant.lock_id).collect();
        if victims.len() == must_end { victims } else { Vec::new() }
    }

    /// Takes a place, or keeps the one there is. Tells how many are before it.
    fn join(&mut self, request: &AcquireRequest, lease: Ttl, now: Timestamp) -> u32 {
        self.forget_places(|waiter| !waiter.is_live(now));
        let waiter = |since| {
            Waiter::new(request.key.clone(), request.lock_id, request.mode, since, now.expiry(lease))
                .with_holder(Some(request.holder.clone()))
                .with_metadata(request.metadata.clone())
        };
        // What it had here before, and what had ended, is followed by this place.
        self.forget_grants(|grant| grant.lock_id == request.lock_id);
        self.gone.retain(|id| *id != request.lock_id);
        let found = self.line.iter().position(|place| place.waiter.lock_id == request.lock_id);
        let place = match found {
            Some(place) => {
                let since = self.line[place].waiter.since;
                self.line[place] = Place { waiter: waiter(since), called: false };
                place
            }
            None => {
                self.line.push_back(Place { waiter: waiter(now.whole_millis()), called: false });
                self.line.len() - 1
            }
        };
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    /// Lets a request in, whoever is in its way.
    pub(crate) fn grant(&mut self, request: &AcquireRequest, fence: Fence, now: Timestamp) -> Grant {
        self.forget_grants(|grant| !grant.expires_at.is_live(now) || grant.lock_id == request.lock_id);
        self.gone.retain(|id| *id != request.lock_id);
        self.line.retain(|place| place.waiter.lock_id != request.lock_id);
        let slot = if request.mode.has_slots() { Some(self.lowest_free_slot()) } else { None };
        let record = Record {
            key: request.key.clone(),
            lock_id: request.lock_id,
            fence,
            acquired_at: now.whole_millis(),
            expires_at: now.expiry(request.ttl),
            holder: Some(request.holder.clone()),
            metadata: request.metadata.clone(),
            mode: request.mode,
            slot,
        };
        let grant = record.grant();
        self.grants.push(record);
        grant
    }

    /// Fewer grants than permits were there before, so it is below their number.
    fn lowest_free_slot(&self) -> u16 {
        let mut taken: Vec<_> = self.grants.iter().filter_map(|grant| grant.slot).collect();
        taken.sort_unstable();
        (0..).zip(taken).take_while(|(slot, taken)| slot == taken).map(|(slot, _)| slot + 1).last().unwrap_or(0)
    }

    /// Calls the first in line if there is room for it and it was not called yet. Tells which it
    /// is. To be done after everything that may have made room.
    pub(crate) fn call_next(&mut self, now: Timestamp) -> Option<LockId> {
        self.forget_places(|waiter| !waiter.is_live(now));
        let can_come = self.can_come(self.line.front()?, now);
        let first = self.line.front_mut().filter(|first| can_come && !first.is_called(now))?;
        first.called = true;
        first.waiter.until = first.waiter.until.min(called_until(now));
        Some(first.waiter.lock_id)
    }

    /// Whether there is room for somebody in line.
    fn can_come(&self, place: &Place, now: Timestamp) -> bool {
        let Waiter { key, lock_id, mode, .. } = &place.waiter;
        self.room(&AcquireRequest::new(key.clone(), *lock_id, Ttl::default()).with_mode(*mode), now)
    }

    /// Who was called and has not come yet, while nobody holds the key.
    #[cfg(feature = "sqlite")]
    pub(crate) fn kept_for(&self, now: Timestamp) -> Option<LockId> {
        let first = self.line.front().filter(|first| first.is_called(now) && first.waiter.is_live(now))?;
        self.live(now).next().is_none().then_some(first.waiter.lock_id)
    }

    pub(crate) fn release(&mut self, id: &LockId, now: Timestamp) -> Release {
        match self.grants.iter().position(|grant| grant.lock_id == *id) {
            Some(found) if self.grants[found].expires_at.is_live(now) => {
                self.gone.push(self.grants.remove(found).lock_id);
                Release::Released
            }
            Some(_) => Release::Absent(Absence::Expired),
            None => {
                self.forget_places(|waiter| waiter.lock_id == *id);
                Release::Absent(Absence::NotFound)
            }
        }
    }

    /// Ends the live grants, or the one with a fence, and forgets dead ones.
    pub(crate) fn force_release(&mut self, only: Option<Fence>, now: Timestamp) -> Vec<Record> {
        self.forget_grants(|grant| !grant.expires_at.is_live(now));
        self.forget_grants(|grant| only.is_none_or(|only| grant.fence == only))
    }

    pub(crate) fn inspect(&self, now: Timestamp) -> Inspected {
        Inspected::new(self.live(now).cloned().collect(), self.waiting(now).cloned().collect())
    }

    pub(crate) fn waiting(&self, now: Timestamp) -> impl Iterator<Item = &Waiter> {
        self.line.iter().map(|place| &place.waiter).filter(move |waiter| waiter.is_live(now))
    }

    fn forget_places(&mut self, which: impl Fn(&Waiter) -> bool) {
        let gone = &mut self.gone;
        self.line.retain(|Place { waiter, .. }| {
            let forget = which(waiter);
            gone.extend(forget.then_some(waiter.lock_id));
            !forget
        });
    }

    fn forget_grants(&mut self, which: impl Fn(&Record) -> bool) -> Vec<Record> {
        let forgotten: Vec<_> = self.grants.extract_if(.., |grant| which(grant)).collect();
        self.gone.extend(forgotten.iter().map(|grant| grant.lock_id));
        forgotten
    }

    /// Forgets grants that have been dead for a while, and places whose lease has ended.
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        self.forget_places(|waiter| !waiter.is_live(now));
        self.forget_grants(|grant| grant.expires_at <= now.latest_swept());
    }
}

impl Waiter {
    /// Whether the place is still its owner's. There is no tolerance: losing it endangers nothing.
    pub(crate) fn is_live(&self, now: Timestamp) -> bool {
        self.until.as_millis() > now.as_millis()
    }
}

impl Timestamp {
    pub(crate) fn whole_millis(self) -> Self {
        Self::from_millis(self.as_millis())
    }

    fn minus(self, time: Duration) -> Self {
        Self::from_micros(self.as_micros().saturating_sub(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
    }
}
