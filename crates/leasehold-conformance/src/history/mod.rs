//! What concurrent clients saw, and whether a lock that keeps its promises can have let them see
//! it.

mod check;
mod client;
mod concurrent;
mod guards;
#[cfg(test)]
mod kinds_tests;
mod line;
mod lock;
mod state;
mod violation;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use leasehold::backend::Mode;
use serde::{Deserialize, Serialize};

pub use check::{Summary, check};
pub use concurrent::{HistoryOptions, concurrent};
pub use guards::concurrent_guards;
pub use violation::Violation;

/// Something a client did or learnt, and when. One line of JSON each is a good form for histories
/// of several processes; the clock must then be one that they share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Nanoseconds on a monotonic clock. What is sent carries a time before the sending, an answer
    /// one after it arrived.
    pub at: u64,
    /// Which key.
    pub key: String,
    /// Which lock: its lock id or, better, the hash of it.
    pub lock: String,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What happened to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
#[non_exhaustive]
pub enum What {
    /// How the lock will be asked for. Without this, alone and past the line.
    Wanted {
        /// How it will be held.
        mode: Mode,
        /// Whether it is let in only after those who stand in line.
        obeys_line: bool,
    },
    /// An acquire was sent.
    AcquireSent {
        /// Whether it may take the lock from its holder.
        may_steal: bool,
    },
    /// It was granted.
    Granted {
        /// The number of the grant.
        fence: u64,
        /// When its holder stops at the latest: the time of sending plus the ttl.
        deadline: u64,
    },
    /// The number of the permit that is granted in the next event of this lock.
    Slot {
        /// The number.
        slot: u16,
    },
    /// It was refused: somebody else holds the lock.
    Held,
    /// It was refused, and has a place in line.
    Queued {
        /// Until when, if it is not called: the time of sending plus the lease.
        until: u64,
    },
    /// A release was sent. From here on its sender no longer counts on the lock.
    ReleaseSent,
    /// The release found the lock and ended it.
    Released,
    /// The release found nothing.
    ReleaseAbsent,
    /// An extend was sent.
    ExtendSent {
        /// When the holder stops at the latest if it succeeds: the time of sending plus the ttl.
        deadline: u64,
    },
    /// The extend succeeded.
    Extended {
        /// As it was sent.
        deadline: u64,
    },
    /// The extend found nothing.
    ExtendAbsent,
    /// The holder noticed that the lock is no longer its own, and stopped.
    Lost,
    /// A forced release of the key was sent, by whoever; `lock` does not matter.
    ForceSent,
    /// The forced release was answered.
    ForceAnswered,
}

/// Collects the events of the clients of one process, in an order that agrees with real time.
#[derive(Clone)]
pub struct History {
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl History {
    /// An empty history on the system's monotonic clock, from zero.
    pub fn new() -> Self {
        let started = Instant::now();
        Self::with_clock(move || u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// An empty history on another clock, such as the manual one that the store runs on. It must
    /// never go back.
    pub fn with_clock(clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock), events: Arc::default() }
    }

    /// The time in nanoseconds.
    pub fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Adds what happened now. Call it before sending and after the answer.
    pub fn record(&self, key: &str, lock: &str, what: What) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the mutex, so that the order of the events is the order of their times.
        let at = self.now();
        events.push(Event { at, key: key.to_owned(), lock: lock.to_owned(), what });
    }

    /// Adds what happened at an earlier time, for what is known only later.
    pub fn record_at(&self, at: u64, key: &str, lock: &str, what: What) {
        let event = Event { at, key: key.to_owned(), lock: lock.to_owned(), what };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// What was recorded so far.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Default for History {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History").field("events", &self.events().len()).finish_non_exhaustive()
    }
}
