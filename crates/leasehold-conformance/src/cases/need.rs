use leasehold::backend::Capabilities;

/// What a store must be like to make a promise that not every store makes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Need {
    /// It pushes events.
    WakeUps,
    /// It does not.
    NoWakeUps,
    /// Its fences are floored by the clock.
    ClockFlooredFences,
    /// It has lines, all modes, and takes several locks at once.
    Lines,
    /// It does not.
    NoLines,
}

impl Need {
    /// Why a store with these capabilities is not like that, if it is not.
    pub(super) fn unmet(self, found: &Capabilities) -> Option<&'static str> {
        let (met, otherwise) = match self {
            Need::WakeUps => (found.wake_ups, "the store does not push events"),
            Need::NoWakeUps => (!found.wake_ups, "the store pushes events"),
            Need::Lines => (found.lines, "the store has neither lines nor shared locks nor permits"),
            Need::NoLines => (!found.lines, "the store has lines"),
            Need::ClockFlooredFences => (found.clock_floored_fences, "its fences are not floored by the clock"),
        };
        (!met).then_some(otherwise)
    }
}
