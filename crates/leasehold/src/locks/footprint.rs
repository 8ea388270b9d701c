use crate::Error;
use crate::backend::Acquire;

/// What the store may have of a request, as far as its answers tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Footprint {
    /// The store may hold a lock with the request's id.
    pub(super) may_hold: bool,
    /// It has a place in the line.
    pub(super) waits: bool,
    /// A try was given up without an answer, and may arrive at any time.
    pub(super) may_be_late: bool,
}

impl Footprint {
    /// Of a request that was sent and never answered.
    pub(super) const UNKNOWN: Footprint = Footprint { may_hold: true, waits: true, may_be_late: true };

    /// Of a request that was released while a try of it may still arrive.
    pub(super) const LATE: Footprint = Footprint { may_hold: false, waits: false, may_be_late: true };

    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Takes note of what one try came to.
    pub(super) fn note(&mut self, answer: &Result<Acquire, Error>) {
        match answer {
            Ok(Acquire::Granted(_)) => (self.may_hold, self.waits) = (true, false),
            Ok(Acquire::Held(contention)) => self.waits |= contention.place.is_some(),
            Err(error) if error.outcome_unknown() => *self = Self::UNKNOWN,
            Err(_) => {}
        }
    }

    /// Whether there may be something to give back.
    pub(super) fn is_there(self) -> bool {
        self.may_hold || self.waits
    }
}
