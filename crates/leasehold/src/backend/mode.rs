use std::fmt;
use std::num::NonZeroU16;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Ttl;

/// How a lock is held: alone, or together with others who want the same.
///
/// A request is granted if nobody holds the key, or if all who do hold it in the same way as the
/// request wants, that way is not [`Exclusive`](Mode::Exclusive), and there is room for one more.
/// Different ways exclude each other: whoever wants the key in another way waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mode {
    /// Alone.
    #[default]
    Exclusive,
    /// Together with any number of others who share it: readers.
    Shared,
    /// One of so many: a semaphore. The grant has a [slot](crate::Grant::slot), the lowest that is
    /// free.
    ///
    /// The number belongs to the request and not to the key. While programs with 3 and programs
    /// with 5 permits share a key, each keeps to its own number.
    Permit {
        /// The most who may hold the key, as this request sees it.
        of: NonZeroU16,
    },
}

impl Mode {
    /// Whether one who holds the key in this way leaves room for one more who wants it in the way
    /// of `other`, as long as there are not too many.
    pub fn goes_with(self, other: Mode) -> bool {
        match (self, other) {
            (Mode::Shared, Mode::Shared) | (Mode::Permit { .. }, Mode::Permit { .. }) => true,
            (Mode::Exclusive | Mode::Shared | Mode::Permit { .. }, _) => false,
        }
    }

    /// The most who may hold a key at the same time in this way.
    pub fn limit(self) -> u32 {
        match self {
            Mode::Exclusive => 1,
            Mode::Shared => u32::MAX,
            Mode::Permit { of } => u32::from(of.get()),
        }
    }

    /// Whether a lock that is held in this way has a slot.
    pub fn has_slots(self) -> bool {
        matches!(self, Mode::Permit { .. })
    }
}

/// `exclusive`, `shared`, `one of 3`.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Exclusive => f.write_str("exclusive"),
            Mode::Shared => f.write_str("shared"),
            Mode::Permit { of } => write!(f, "one of {of}"),
        }
    }
}

/// What a request does about the line of those who wait for its key.
///
/// Each of them has a lease on its place, which it keeps by asking again. A place without a lease
/// is gone: there is no tolerance, because a lost place endangers nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Line {
    /// It passes the line. Only if the lock was just released and the first in line has been called
    /// is it kept for that one.
    #[default]
    Ignore,
    /// It passes nobody who waits, and does not wait itself.
    Heed,
    /// It passes nobody, and if it is refused it has a place in the line: the last, or the one that
    /// its lock id has already.
    Join {
        /// How long it has the place, unless it asks again.
        lease: Ttl,
    },
}

impl Line {
    /// How long a waiter has its place unless told otherwise. It asks again three times in that
    /// time.
    pub const DEFAULT_LEASE: Duration = Duration::from_secs(9);

    /// How long the first in line has to ask once it was called: its lease is cut to this.
    pub const CALL_LEASE: Duration = Duration::from_secs(2);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_readers_and_permits_go_with_their_like() {
        let permit = |of| Mode::Permit { of: NonZeroU16::new(of).unwrap() };
        let modes = [Mode::Exclusive, Mode::Shared, permit(1), permit(5)];
        let together: Vec<_> = modes.iter().map(|a| modes.iter().filter(|b| a.goes_with(**b)).count()).collect();
        assert_eq!(together, [0, 1, 2, 2]);
        assert_eq!(modes.map(Mode::limit), [1, u32::MAX, 1, 5]);
    }
}
