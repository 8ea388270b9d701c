use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::Timestamp;
use crate::boot_clock::BootClock;

/// Where the time comes from: the system, or a test that moves it by hand.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The monotonic clock, set to the wall clock once: it never goes back while the process lives.
    System { started: Instant, at: Timestamp, boot: BootClock },
    /// Moved by a test.
    Manual(ManualClock),
}

impl Clock {
    pub(crate) fn system() -> Self {
        Self::System { started: Instant::now(), at: Timestamp::now(), boot: BootClock::default() }
    }

    /// The time of a store in this process. It stands still while the machine is suspended: a lease
    /// does not end in the store before its holder could notice.
    pub(crate) fn timestamp(&self) -> Timestamp {
        match self {
            Self::System { started, at, .. } => *at + started.elapsed(),
            Self::Manual(clock) => clock.now(),
        }
    }

    /// The time by which holders count. It goes on while the machine is suspended, where the system
    /// can tell.
    pub(crate) fn instant(&self) -> Instant {
        match self {
            Self::System { boot, .. } => boot.now(),
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

    /// Sleeps until `at` on the clock of [`instant`](Clock::instant).
    pub(crate) async fn sleep_until(&self, at: Instant) {
        match self {
            Self::System { boot, .. } => boot.sleep_until(at).await,
            Self::Manual(clock) => clock.sleep_until(at).await,
        }
    }

    /// For how long the machine was suspended so far.
    pub(crate) fn suspended(&self) -> Duration {
        match self {
            Self::System { boot, .. } => boot.suspended(),
            Self::Manual(_) => Duration::ZERO,
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
    set_back_micros: AtomicU64,
    moved: Notify,
}

impl ManualClock {
    /// A clock that shows the present time and stands still.
    pub fn new() -> Self {
        Self(Arc::new(Hands {
            started: Instant::now(),
            at: Timestamp::now(),
            advanced_micros: AtomicU64::new(0),
            set_back_micros: AtomicU64::new(0),
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

    /// Sets the time it shows back, as somebody does who sets the clock of a server. A store
    /// follows; deadlines, waits and heartbeats do not: nobody can undo that time has passed.
    ///
    /// For a store whose clock is set while those of its users go on, give it a clock of its own.
    pub fn set_back(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.0.set_back_micros.fetch_add(micros, Ordering::AcqRel);
    }

    /// The time it shows.
    pub fn now(&self) -> Timestamp {
        let shown = self.0.at + self.advanced();
        let set_back = self.0.set_back_micros.load(Ordering::Acquire);
        Timestamp::from_micros(shown.as_micros().saturating_sub(set_back))
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
