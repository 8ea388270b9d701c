use leasehold::backend::{Acquire, AcquireRequest, Extend, ForceRelease, Record, Release};
use leasehold::{Contention, Fence, Grant, LockId, Timestamp, Ttl};

/// When something happened by the store's clock: at some moment between the two, both included.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// Not before.
    pub earliest: Timestamp,
    /// Not after.
    pub latest: Timestamp,
}

impl Interval {
    fn contains(self, millis: u64) -> bool {
        (self.earliest.as_millis()..=self.latest.as_millis()).contains(&millis)
    }

    fn allows_expiry(self, expires_at: Timestamp, ttl: Ttl) -> bool {
        expires_at.as_millis().checked_sub(ttl.as_millis()).is_some_and(|granted_at| self.contains(granted_at))
    }
}

/// What a question may be answered with, as far as the model can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Truth {
    Yes,
    No,
    /// It changed, or may have, during the interval.
    Either,
}

impl Truth {
    fn within(at: Interval, holds: impl Fn(Timestamp) -> bool) -> Self {
        match (holds(at.earliest), holds(at.latest)) {
            (true, true) => Truth::Yes,
            (false, false) => Truth::No,
            _ => Truth::Either,
        }
    }

    fn allows(self, answer: bool) -> bool {
        self == Truth::Either || (self == Truth::Yes) == answer
    }
}

/// How long past its expiry a lock is still held.
const TOLERANCE_MILLIS: u64 = 1000;

/// The lock of one key, as the rules have it: the record, and the highest fence ever granted.
///
/// It does its own arithmetic: a mistake in what the library's stores share must not be shared by
/// their judge.
///
/// Each method is given an answer of the store and when it was given. It tells whether the rules
/// allow the answer, and takes over what the rules leave to the store: the fence, the exact time,
/// and on which side of an edge that lies within the interval the answer was given.
#[derive(Clone, Debug, Default)]
pub struct KeyModel {
    record: Option<Record>,
    last_fence: Option<Fence>,
    floored: bool,
}

type Verdict = Result<(), String>;

impl KeyModel {
    /// A key that was never locked, in a store whose fences are floored by the clock or not.
    pub fn new(clock_floored_fences: bool) -> Self {
        Self { record: None, last_fence: None, floored: clock_floored_fences }
    }

    /// The record, live or dead.
    pub fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    fn live(&self, at: Interval) -> Truth {
        let Some(record) = &self.record else { return Truth::No };
        Truth::within(at, |now| record.expires_at.as_millis() + TOLERANCE_MILLIS > now.as_millis())
    }

    fn live_under(&self, id: &LockId, at: Interval) -> Truth {
        if self.record.as_ref().is_some_and(|record| record.lock_id == *id) { self.live(at) } else { Truth::No }
    }

    /// Checks the answer to an acquire.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn acquire(&mut self, request: &AcquireRequest, at: Interval, answer: &Acquire) -> Verdict {
        let live = self.live(at);
        match answer {
            Acquire::Held(contention) => self.held(request, at, contention),
            Acquire::Granted(grant) => {
                let old = self.record.as_ref().filter(|_| live != Truth::No);
                let Some(old) = old else { return self.grant(request, at, grant) };
                if old.lock_id == request.lock_id {
                    if *grant == old.grant() {
                        return Ok(());
                    }
                    // The time of the first grant may have passed within the interval: then this is
                    // a new one.
                    return match live {
                        Truth::Either => self.grant(request, at, grant),
                        _ => Err(format!("a repeated acquire got {grant:?}, not {:?} again", old.grant())),
                    };
                }
                if live == Truth::Yes && self.stealable(request, at) == Truth::No {
                    return Err(format!("the lock was given away although held: {old:?}"));
                }
                self.grant(request, at, grant)
            }
            other => Err(format!("an answer that the model does not know: {other:?}")),
        }
    }

    fn stealable(&self, request: &AcquireRequest, at: Interval) -> Truth {
        let Some(old) = &self.record else { return Truth::No };
        if request.steal.same_holder() && old.holder.as_ref() == Some(&request.holder) {
            return Truth::Yes;
        }
        if request.steal.fence() == Some(old.fence) {
            return Truth::Yes;
        }
        let Some(limit) = request.steal.held_longer_than() else { return Truth::No };
        Truth::within(at, |now| {
            let held_for = now.as_millis().saturating_sub(old.acquired_at.as_millis());
            u128::from(held_for) > limit.as_millis()
        })
    }

    fn held(&self, request: &AcquireRequest, at: Interval, contention: &Contention) -> Verdict {
        let Some(old) = self.record.as_ref().filter(|_| self.live(at) != Truth::No) else {
            return Err("the lock was refused although free".to_owned());
        };
        if old.lock_id == request.lock_id {
            return Err("the lock was refused to its own holder".to_owned());
        }
        if self.stealable(request, at) == Truth::Yes {
            return Err("the lock was refused although it may be stolen".to_owned());
        }
        let expected = old.contention(contention.now);
        if *contention != expected {
            return Err(format!("the contention is {contention:?}, not {expected:?}"));
        }
        if !at.contains(contention.now.as_millis()) {
            return Err(format!("the contention's time {:?} is not within {at:?}", contention.now));
        }
        Ok(())
    }

    fn grant(&mut self, request: &AcquireRequest, at: Interval, grant: &Grant) -> Verdict {
        if grant.lock_id != request.lock_id {
            return Err("the grant carries another lock id".to_owned());
        }
        if self.last_fence >= Some(grant.fence) {
            return Err(format!("{:?} follows {:?}", grant.fence, self.last_fence));
        }
        if self.floored && grant.fence.get() < at.earliest.as_micros() / 100 {
            return Err(format!("{:?} is below the clock, {:?}", grant.fence, at.earliest));
        }
        if !at.contains(grant.acquired_at.as_millis()) {
            return Err(format!("acquired_at {:?} is not within {at:?}", grant.acquired_at));
        }
        if !at.allows_expiry(grant.expires_at, request.ttl) {
            return Err(format!("expires_at {:?} is not {:?} after {at:?}", grant.expires_at, request.ttl));
        }
        self.last_fence = Some(grant.fence);
        let record = Record::new(request.key.clone(), grant);
        self.record = Some(record.with_holder(Some(request.holder.clone())).with_metadata(request.metadata.clone()));
        Ok(())
    }

    /// Checks the answer to a release.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn release(&mut self, id: &LockId, at: Interval, answer: Release) -> Verdict {
        let released = answer == Release::Released;
        if !self.live_under(id, at).allows(released) {
            return Err(format!("the answer to a release is {answer:?}, the record is {:?}", self.record));
        }
        if released {
            self.record = None;
        }
        Ok(())
    }

    /// Checks the answer to an extend.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn extend(&mut self, id: &LockId, ttl: Ttl, at: Interval, answer: Extend) -> Verdict {
        let extended = matches!(answer, Extend::Extended { .. });
        if !self.live_under(id, at).allows(extended) {
            return Err(format!("the answer to an extend is {answer:?}, the record is {:?}", self.record));
        }
        if let (Extend::Extended { expires_at: extended }, Some(record)) = (answer, &mut self.record) {
            if !at.allows_expiry(extended, ttl) {
                return Err(format!("extended to {extended:?}, which is not {ttl:?} after {at:?}"));
            }
            record.expires_at = extended;
        }
        Ok(())
    }

    /// Checks whether the lock is held.
    ///
    /// # Errors
    ///
    /// What is wrong with the answer.
    pub fn is_locked(&self, at: Interval, answer: bool) -> Verdict {
        if self.live(at).allows(answer) {
            return Ok(());
        }
        Err(format!("is_locked is {answer}, the record is {:?}", self.record))
    }

    /// Checks the record found, by key, or by `id` if there is one.
    ///
    /// # Errors
    ///
    /// What is wrong with the answer.
    pub fn lookup(&self, id: Option<&LockId>, at: Interval, answer: Option<&Record>) -> Verdict {
        let live = id.map_or_else(|| self.live(at), |id| self.live_under(id, at));
        if live.allows(answer.is_some()) && (answer.is_none() || answer == self.record.as_ref()) {
            return Ok(());
        }
        Err(format!("found {answer:?}, the record is {:?}", self.record))
    }

    /// Checks the answer to a forced release.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn force_release(&mut self, at: Interval, answer: &ForceRelease) -> Verdict {
        let ended = match answer {
            ForceRelease::Released(record) => Some(record),
            ForceRelease::Absent => None,
            other => return Err(format!("an answer that the model does not know: {other:?}")),
        };
        self.lookup(None, at, ended)?;
        self.record = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::Key;
    use leasehold::backend::Absence;

    fn at(earliest: u64, latest: u64) -> Interval {
        Interval { earliest: Timestamp::from_millis(earliest), latest: Timestamp::from_millis(latest) }
    }

    /// A lock granted at 10 s for one second: expires at 11 s, free from 12 s.
    fn held() -> (KeyModel, LockId) {
        let mut model = KeyModel::new(true);
        let ttl = Ttl::from_millis(1000).unwrap();
        let request = AcquireRequest::new(Key::new("key").unwrap(), LockId::random().unwrap(), ttl);
        let grant = Grant::new(
            request.lock_id,
            Fence::new(100_000).unwrap(),
            Timestamp::from_millis(10_000),
            Timestamp::from_millis(11_000),
        );
        model.acquire(&request, at(10_000, 10_000), &Acquire::Granted(grant)).unwrap();
        (model, request.lock_id)
    }

    #[test]
    fn on_one_side_of_an_edge_only_one_answer_is_right() {
        let (model, _) = held();
        assert!(model.is_locked(at(11_999, 11_999), true).is_ok());
        assert!(model.is_locked(at(11_999, 11_999), false).is_err());
        assert!(model.is_locked(at(12_000, 12_000), false).is_ok());
        assert!(model.is_locked(at(12_000, 12_000), true).is_err());
    }

    #[test]
    fn across_an_edge_either_answer_is_right_and_taken_over() {
        let (model, id) = held();
        let edge = at(11_990, 12_010);
        assert!(model.clone().release(&id, edge, Release::Absent(Absence::Expired)).is_ok());
        let mut released = model;
        assert!(released.release(&id, edge, Release::Released).is_ok());
        assert!(released.release(&id, edge, Release::Released).is_err(), "released twice");
    }

    #[test]
    fn a_fence_below_the_clock_is_wrong_only_where_the_clock_is_the_floor() {
        let low = |floored| {
            let ttl = Ttl::from_millis(1000).unwrap();
            let request = AcquireRequest::new(Key::new("key").unwrap(), LockId::random().unwrap(), ttl);
            let grant = Grant::new(
                request.lock_id,
                Fence::new(1).unwrap(),
                Timestamp::from_millis(10_000),
                Timestamp::from_millis(11_000),
            );
            KeyModel::new(floored).acquire(&request, at(10_000, 10_000), &Acquire::Granted(grant))
        };
        assert!(low(true).is_err());
        assert!(low(false).is_ok());
    }
}
