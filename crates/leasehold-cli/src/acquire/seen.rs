use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::{Contention, Key};
use tokio::sync::Notify;
use tokio::time::Instant;

/// For how long it counts that somebody was seen with the lock.
const FRESH: Duration = Duration::from_secs(10);

/// Which lock somebody else has, and who.
#[derive(Clone, Debug)]
pub(crate) struct Obstacle {
    pub(crate) key: Key,
    pub(crate) contention: Contention,
}

/// Who was last seen with a lock, and when.
#[derive(Default)]
pub(super) struct Seen {
    last: Mutex<Option<(Obstacle, Instant)>>,
    pub(super) changed: Notify,
}

impl Seen {
    /// Says nothing yet: whoever waits from now on knows more in a moment.
    pub(super) fn note_quietly(&self, obstacle: Obstacle) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((obstacle, Instant::now()));
    }

    pub(super) fn note(&self, obstacle: Obstacle) {
        self.note_quietly(obstacle);
        self.changed.notify_one();
    }

    /// Who has the lock, and how long ago we saw that. A waiter looks every few seconds; if it has
    /// not seen anybody for longer, the store fails or is silent.
    pub(super) fn recently(&self) -> Option<(Obstacle, Duration)> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.map(|(obstacle, at)| (obstacle, at.elapsed())).filter(|(_, ago)| *ago <= FRESH)
    }
}
