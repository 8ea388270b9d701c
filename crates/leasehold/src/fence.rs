use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorCode, Timestamp};

/// The number of a grant, strictly increasing for each key for ever. Send it along with every write
/// to the protected resource, and let the resource refuse a number lower than one it has seen.
///
/// Written as exactly 15 digits, so that text order is number order in every language and database.
///
/// ```
/// use leasehold::Fence;
///
/// let old = Fence::new(42)?;
/// let new: Fence = "000000000000043".parse()?;
/// assert!(new > old);
/// assert_eq!(old.to_string(), "000000000000042");
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fence(u64);

impl Fence {
    /// The number of digits in the written form.
    pub const DIGITS: usize = 15;
    /// The highest fence that is granted. A store that would go past it fails with
    /// [`Internal`](ErrorCode::Internal).
    pub const MAX: Fence = Fence(900_000_000_000_000);
    /// Above this fence a warning is logged, long before [`MAX`](Fence::MAX).
    pub const WARN: Fence = Fence(90_000_000_000_000);

    /// # Errors
    ///
    /// [`Internal`](ErrorCode::Internal) above [`MAX`](Fence::MAX): the counter of that key has run
    /// out or has been tampered with.
    pub fn new(value: u64) -> Result<Self, Error> {
        if value > Self::MAX.0 {
            return Err(Error::new(ErrorCode::Internal, "the fence of this key is beyond the highest one").with_hint(
                "the store's clock or the key's fence counter is wrong; go on under a new key or a new prefix",
            ));
        }
        if value > Self::WARN.0 {
            tracing::warn!(fence = value, max = Self::MAX.0, "a fence is close to the highest one");
        }
        Ok(Self(value))
    }

    /// The fence of the next grant: one more than the last, and never below the clock, so that a
    /// store that lost its last writes still does not repeat a fence.
    ///
    /// # Errors
    ///
    /// As [`new`](Fence::new).
    pub fn next(last: Option<Fence>, now: Timestamp) -> Result<Self, Error> {
        let after_last = last.map_or(1, |last| last.0 + 1);
        Self::new(after_last.max(Self::clock_floor(now).0))
    }

    /// The lowest fence that may be granted at `now`: the time in units of 100 microseconds.
    pub fn clock_floor(now: Timestamp) -> Self {
        Self(now.as_micros() / 100)
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:015}", self.0)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({self})")
    }
}

impl FromStr for Fence {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let malformed = || Error::invalid("a fence is exactly 15 digits");
        if text.len() != Self::DIGITS || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(malformed());
        }
        text.parse().map(Self).map_err(|_| malformed())
    }
}

impl TryFrom<String> for Fence {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Fence> for String {
    fn from(fence: Fence) -> Self {
        fence.to_string()
    }
}
