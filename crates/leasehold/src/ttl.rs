use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Error;

/// How long a grant lasts unless it is extended: whole milliseconds, from 1 ms to ten years. 30
/// seconds by default.
///
/// A lock with a heartbeat is renewed at a third of its ttl, so the ttl is not how long the work
/// may take but how long others wait after the holder crashed. Ten seconds to a minute suits most.
///
/// Without a heartbeat a long ttl is exposed to drift: the store's clock and the holder's need not
/// run at the same pace, and only [`TIME_TOLERANCE`](crate::TIME_TOLERANCE) lies between the end of
/// a lease and the next one. It covers a difference of 100 parts in a million for less than three
/// hours, and clocks that are being slewed may differ by more. A heartbeat starts the count anew.
///
/// ```
/// use std::time::Duration;
/// use leasehold::Ttl;
///
/// assert_eq!(Ttl::default().as_millis(), 30_000);
/// assert_eq!(Ttl::new(Duration::from_secs(60))?.as_millis(), 60_000);
/// assert!(Ttl::new(Duration::ZERO).is_err());
/// assert!(Ttl::new(Duration::from_micros(1_500)).is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Millis", into = "Millis")]
pub struct Ttl(u64);

/// How a ttl is written. Nobody else can turn a bare number, which may mean seconds, into a ttl.
#[derive(Serialize, Deserialize)]
struct Millis(u64);

impl Ttl {
    /// Ten years of 365 days.
    pub const MAX: Ttl = Ttl(10 * 365 * 24 * 60 * 60 * 1000);

    /// How often a lock with a heartbeat is renewed within its ttl. One renewal may take as long as
    /// the pause between two of them, so a healthy lease always has one such pause left.
    pub const RENEWALS: u32 = 3;

    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the time is zero, longer than
    /// [`MAX`](Ttl::MAX), or not a whole number of milliseconds.
    pub fn new(time: Duration) -> Result<Self, Error> {
        if !time.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(Error::invalid("the ttl is not a whole number of milliseconds"));
        }
        u64::try_from(time.as_millis()).map_err(|_| too_long()).and_then(Self::from_millis)
    }

    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if `millis` is 0 or more than
    /// [`MAX`](Ttl::MAX).
    pub fn from_millis(millis: u64) -> Result<Self, Error> {
        match millis {
            0 => Err(Error::invalid("the ttl is zero").with_hint("30 seconds suits most locks")),
            _ if millis > Self::MAX.0 => Err(too_long()),
            _ => Ok(Self(millis)),
        }
    }

    /// The time nearest to `time` that is a ttl; for computed times, not for users' input.
    pub(crate) fn nearest(time: Duration) -> Self {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self(millis.clamp(1, Self::MAX.0))
    }

    /// The ttl in milliseconds.
    pub fn as_millis(self) -> u64 {
        self.0
    }

    /// How long after it was granted or renewed a lock is renewed: two renewals may fail before the
    /// lease runs out.
    pub(crate) fn renew_after(self) -> Duration {
        self.as_duration() / Self::RENEWALS
    }

    /// Whether a lock that was asked for so long ago lasts until it is renewed.
    pub(crate) fn is_fresh_after(self, time: Duration) -> bool {
        time.saturating_add(self.renew_after()) <= self.as_duration()
    }

    /// The ttl as a `Duration`.
    pub fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

fn too_long() -> Error {
    Error::invalid("the ttl is longer than ten years")
}

impl Default for Ttl {
    fn default() -> Self {
        Self(30_000)
    }
}

impl fmt::Debug for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ttl({self})")
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_duration())
    }
}

impl TryFrom<Duration> for Ttl {
    type Error = Error;

    fn try_from(time: Duration) -> Result<Self, Error> {
        Self::new(time)
    }
}

impl TryFrom<Millis> for Ttl {
    type Error = Error;

    fn try_from(millis: Millis) -> Result<Self, Error> {
        Self::from_millis(millis.0)
    }
}

impl From<Ttl> for Millis {
    fn from(ttl: Ttl) -> Self {
        Self(ttl.0)
    }
}

impl From<Ttl> for Duration {
    fn from(ttl: Ttl) -> Self {
        ttl.as_duration()
    }
}
