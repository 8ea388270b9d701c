use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::Timestamp;

/// Where the time comes from: the system, or a test that moves it by hand.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The monotonic clock, set to the wall clock once: it never goes back while the process lives.
    System { started: Instant, at: Timestamp },
    /// Moved by a test.
    Manual(ManualClock),
}

impl Clock {
    pub(crate) fn system() -> Self {
        Self::System { started: Instant::now(), at: Timestamp::now() }
    }

    pub(crate) fn timestamp(&self) -> Timestamp {
        match self {
            Self::System { started, at } => *at + started.elapsed(),
            Self::Manual(clock) => clock.now(),
        }
    }

    pub(crate) fn instant(&self) -> Instant {
        match self {
            Self::System { .. } => Instant::now(),
            Self::Manual(clock) => clock.instant(),
        }
    }

    /// The last moment not after `at` that is a whole multiple of `grain` away from the start of
    /// this clock.
    pub(crate) fn rounded_down(&self, at: Instant, grain: Duration) -> Instant {
        let started = match self {
            Self::System { started, .. } => *started,
            Self::Manual(clock) => clock.0.started,
        };
        let over = at.saturating_duration_since(started).as_nanos().checked_rem(grain.as_nanos()).unwrap_or(0);
        at - Duration::from_nanos(u64::try_from(over).unwrap_or(0))
    }

    pub(crate) async fn sleep_until(&self, at: Instant) {
        match self {
            Self::System { .. } => tokio::time::sleep_until(at.into()).await,
            Self::Manual(clock) => clock.sleep_until(at).await,
        }
    }
}

/// A clock that stands still until it is moved, so that tests of code that takes locks need not
/// sleep.
///
/// Give the same clock to the store and to the handle: the store's expiry and the guards'
/// deadlines, waits and heartbeats then follow it.
///
/// ```
/// use std::time::Duration;
/// use leasehold::memory::Memory;
/// use leasehold::testing::ManualClock;
/// use leasehold::Locks;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let clock = ManualClock::new();
/// let locks = Locks::builder(Memory::with_clock(&clock)).clock(&clock).build();
///
/// let guard = locks.lock("job").heartbeat(false).acquire().await?;
/// clock.advance(Duration::from_secs(31));
/// guard.lost().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Hands>);

#[derive(Debug)]
struct Hands {
    started: Instant,
    at: Timestamp,
    advanced_micros: AtomicU64,
    moved: Notify,
}

impl ManualClock {
    /// A clock that shows the present time and stands still.
    pub fn new() -> Self {
        Self(Arc::new(Hands {
            started: Instant::now(),
            at: Timestamp::now(),
            advanced_micros: AtomicU64::new(0),
            moved: Notify::new(),
        }))
    }

    /// Moves the clock forward. Everything that was due in the meantime happens, as after a long
    /// pause of the whole process: locks whose time passed are lost, even those with a heartbeat.
    pub fn advance(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.0.advanced_micros.fetch_add(micros, Ordering::AcqRel);
        self.0.moved.notify_waiters();
    }

    /// The time it shows.
    pub fn now(&self) -> Timestamp {
        self.0.at + self.advanced()
    }

    fn instant(&self) -> Instant {
        self.0.started + self.advanced()
    }

    fn advanced(&self) -> Duration {
        Duration::from_micros(self.0.advanced_micros.load(Ordering::Acquire))
    }

    async fn sleep_until(&self, at: Instant) {
        loop {
            let mut moved = std::pin::pin!(self.0.moved.notified());
            moved.as_mut().enable();
            if self.instant() >= at {
                return;
            }
            moved.await;
        }
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}
