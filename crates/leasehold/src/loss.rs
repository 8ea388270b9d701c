use std::fmt;

use serde::{Deserialize, Serialize};

/// How a lock that was ours ceased to be ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Loss {
    /// The lease ran out before the store confirmed a renewal: the store was unreachable, this
    /// process was suspended, or the lock had no heartbeat.
    Expired,
    /// The store answered that it does not know the lock.
    Gone,
    /// Somebody stole the lock.
    Stolen,
    /// An operator released the lock by force.
    ForceReleased,
    /// The lock was held for as long as `max_hold` allows.
    MaxHold,
    /// This program gave all its locks back, with `release_all` or `shutdown`.
    Released,
    /// This process is a fork of the one that holds the lock, which never was this one's.
    Forked,
}

impl Loss {
    /// The reason as one word, as in metrics and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Loss::Expired => "expired",
            Loss::Gone => "gone",
            Loss::Stolen => "stolen",
            Loss::ForceReleased => "force_released",
            Loss::MaxHold => "max_hold",
            Loss::Released => "released",
            Loss::Forked => "forked",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::Expired => "its lease ran out before a renewal was confirmed",
            Loss::Gone => "the store no longer knows it",
            Loss::Stolen => "somebody stole it",
            Loss::ForceReleased => "an operator released it by force",
            Loss::MaxHold => "it was held for as long as max_hold allows",
            Loss::Released => "this program gave all its locks back",
            Loss::Forked => "it belongs to the process that this one was forked from",
        })
    }
}
