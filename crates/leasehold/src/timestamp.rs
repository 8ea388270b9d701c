use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::Ttl;

/// How far past its expiry a lock still counts as held, on every store. It absorbs clock
/// differences and gives the old holder time to stop before a rival is let in.
pub const TIME_TOLERANCE: Duration = Duration::from_millis(TOLERANCE_MILLIS);

/// The tolerance as scripts, statements and columns need it.
pub(crate) const TOLERANCE_MILLIS: u64 = 1000;

/// Records are kept for this long past their expiry, on every store that sweeps: the tolerance, and
/// more than two seconds, because a sweep must not meet an extend that is on its way.
pub(crate) const SWEEP_AFTER_MILLIS: u64 = TOLERANCE_MILLIS + 2001;

/// A point on the store's clock, in microseconds since 1970. Only its milliseconds are stored and
/// serialised.
///
/// ```
/// use std::time::Duration;
/// use leasehold::{TIME_TOLERANCE, Timestamp};
///
/// let expiry = Timestamp::from_millis(60_000);
/// assert!(expiry.is_live(expiry), "the tolerance has begun, but has not passed");
/// assert!(!expiry.is_live(expiry + TIME_TOLERANCE));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
pub struct Timestamp(u64);

impl Timestamp {
    /// A time given in milliseconds since 1970.
    pub fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1000))
    }

    /// A time given in microseconds since 1970.
    pub fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// This machine's wall clock. Stores with a clock of their own do not use it.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }

    /// Milliseconds since 1970.
    pub fn as_millis(self) -> u64 {
        self.0 / 1000
    }

    /// Microseconds since 1970.
    pub fn as_micros(self) -> u64 {
        self.0
    }

    /// When a lock granted or extended now for `ttl` expires, in whole milliseconds.
    pub fn expiry(self, ttl: Ttl) -> Self {
        Self::from_millis(self.as_millis() + ttl.as_millis())
    }

    /// When a lock that expires at `self` was granted or extended for `ttl`.
    pub(crate) fn before(self, ttl: Ttl) -> Self {
        Self::from_millis(self.as_millis().saturating_sub(ttl.as_millis()))
    }

    /// The one rule of liveness: a lock that expires at `self` is held as long as
    /// `self > now - TIME_TOLERANCE`, in whole milliseconds. Every store decides with this or its
    /// exact translation.
    pub fn is_live(self, now: Timestamp) -> bool {
        self.as_millis() + TOLERANCE_MILLIS > now.as_millis()
    }

    /// At the time `self`, a lock that expires at this time or before is dead: the rule of
    /// liveness, solved for the expiry.
    #[cfg(feature = "sqlite")]
    pub(crate) fn latest_dead(self) -> Self {
        Self::from_millis(self.as_millis().saturating_sub(TOLERANCE_MILLIS))
    }

    /// A record that expires at this time or before may be swept.
    pub(crate) fn latest_swept(self) -> Self {
        Self::from_millis(self.as_millis().saturating_sub(SWEEP_AFTER_MILLIS))
    }

    /// The time from `earlier` to `self`, zero if it is the later one.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The same point as a `SystemTime`.
    pub fn to_system_time(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(self.0)
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, time: Duration) -> Timestamp {
        Self(self.0.saturating_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl From<u64> for Timestamp {
    fn from(millis: u64) -> Self {
        Self::from_millis(millis)
    }
}

impl From<Timestamp> for u64 {
    fn from(at: Timestamp) -> Self {
        at.as_millis()
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({} ms)", self.as_millis())
    }
}
