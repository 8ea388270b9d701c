use std::time::Duration;

/// What a store can and cannot do.
///
/// ```
/// use leasehold::backend::{Capabilities, TimeAuthority};
///
/// let found = Capabilities::new(TimeAuthority::Store).with_wake_ups(true);
/// assert!(found.wake_ups && !found.clock_floored_fences);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Whose clock decides.
    pub time_authority: TimeAuthority,
    /// Whether subscriptions yield events. Without, waiting polls.
    pub wake_ups: bool,
    /// Whether fences are floored by the clock, so that they never repeat even if the store loses
    /// writes.
    pub clock_floored_fences: bool,
    /// Whether it has lines, all [modes](super::Mode), and takes several locks at once. Without, it
    /// refuses what is not [plain](super::AcquireRequest::is_plain), and whoever waits is not in
    /// line.
    pub lines: bool,
    /// Whether a line costs so much that nobody stands in it who did not ask for it, by
    /// [`LockRequest::fair`](crate::LockRequest::fair): those who wait work for each other's
    /// places.
    pub costly_lines: bool,
    /// Whether an event can be lost without anybody knowing. The first in line asks every second
    /// then, so that it does not lose its place together with its call. Other stores yield
    /// [`Event::Missed`](super::Event::Missed) where something may have been lost.
    pub lossy_wake_ups: bool,
    /// The longest that the store lets one call take before it answers with an error.
    /// [`Locks`](crate::Locks) gives up on a store that does not keep to this.
    pub call_timeout: Duration,
}

impl Capabilities {
    /// How long a call may take unless somebody says otherwise: every store's default.
    pub const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_secs(5);

    /// A store that cannot push events, has no lines, and whose fences know no clock.
    pub const fn new(time_authority: TimeAuthority) -> Self {
        Self {
            time_authority,
            wake_ups: false,
            clock_floored_fences: false,
            lines: false,
            costly_lines: false,
            lossy_wake_ups: false,
            call_timeout: Self::DEFAULT_CALL_TIMEOUT,
        }
    }

    /// Whether subscriptions yield events.
    #[must_use]
    pub const fn with_wake_ups(mut self, yes: bool) -> Self {
        self.wake_ups = yes;
        self
    }

    /// Whether fences are floored by the clock.
    #[must_use]
    pub const fn with_clock_floored_fences(mut self, yes: bool) -> Self {
        self.clock_floored_fences = yes;
        self
    }

    /// Whether it has lines and all modes.
    #[must_use]
    pub const fn with_lines(mut self, yes: bool) -> Self {
        self.lines = yes;
        self
    }

    /// Whether only those stand in line who ask for it.
    #[must_use]
    pub const fn with_costly_lines(mut self, yes: bool) -> Self {
        self.costly_lines = yes;
        self
    }

    /// Whether an event can be lost without anybody knowing.
    #[must_use]
    pub const fn with_lossy_wake_ups(mut self, yes: bool) -> Self {
        self.lossy_wake_ups = yes;
        self
    }

    /// The longest that the store lets one call take.
    #[must_use]
    pub const fn with_call_timeout(mut self, time: Duration) -> Self {
        self.call_timeout = time;
        self
    }
}

/// Whose clock decides when a lock expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeAuthority {
    /// The store's own.
    Store,
    /// Each client's; clocks must be kept in step.
    Client,
}
