//! What `bench` measures, and how it leaves nothing behind.

mod hand_over;
mod live;
mod measured;
mod pairs;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::stores::ScratchKeys;
use leasehold::{Error, ErrorCode, Guard, Key, Locks};
use leasehold_plot::Histogram;
use tokio::task::JoinSet;

pub(crate) use live::{Live, progress};
pub(crate) use measured::Measured;

use crate::exit::{self, Failure};
use crate::store::{self, Store};
use crate::text;

/// How long a lock lasts if we are killed in the middle.
const LEASE: Duration = Duration::from_secs(10);

/// A store that does not answer for this long, and for a few times the longest that anything took,
/// has gone away.
const SILENCE: Duration = Duration::from_secs(1);

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) tasks: u16,
    pub(crate) keys: u16,
    pub(crate) time: Duration,
}

impl Plan {
    /// Half of the time is for pairs, the other half for hand-overs.
    fn phase(&self) -> Duration {
        self.time / 2
    }
}

/// Two handles on a store, and what they do there.
pub(crate) struct Bench {
    plan: Plan,
    first: Locks,
    second: Locks,
    keys: ScratchKeys,
    tasks: JoinSet<Result<pairs::Pairs, Error>>,
    live: Arc<Live>,
}

impl Bench {
    /// # Errors
    ///
    /// The store's, or that it did not answer in the time to measure.
    pub(crate) async fn open(store: &Store, plan: Plan) -> Result<Self, Failure> {
        let handles = async { Ok::<_, Failure>((store.connect().await?, store.connect().await?)) };
        let late = || Failure { of_store: true, ..Failure::new(exit::UNAVAILABLE, "no answer in the time to measure") };
        let (first, second) = tokio::time::timeout(plan.time, handles).await.unwrap_or_else(|_| Err(late()))?;
        // One more for the hand-over.
        let keys = ScratchKeys::new("leasehold-bench", usize::from(plan.keys) + 1)?;
        Ok(Self { plan, first, second, keys, tasks: JoinSet::new(), live: Arc::default() })
    }

    pub(crate) fn live(&self) -> Arc<Live> {
        self.live.clone()
    }

    /// Everything that there is to measure. Whether it ends well or not, and also if it is dropped,
    /// [`close`](Bench::close) has to follow.
    ///
    /// # Errors
    ///
    /// The store's, or that it has gone away.
    pub(crate) async fn measure(&mut self) -> Result<Measured, Failure> {
        let (plan, phase) = (self.plan, self.plan.phase());
        self.live.begin("acquire and release", phase);
        let started = Instant::now();
        let pairs = pairs::measure(self, started + phase).await?;
        let took = started.elapsed();
        self.answered(phase, &pairs.pair)?;
        self.live.begin("hand over", phase);
        let hand_over = hand_over::measure(self, Instant::now() + phase).await?;
        let Some(hand_over) = hand_over else { return Ok(Measured { plan, pairs, took, hand_over: None }) };
        self.answered(phase, &hand_over)?;
        Ok(Measured { plan, pairs, took, hand_over: Some(hand_over) })
    }

    /// That the store has answered, and until the end.
    fn answered(&self, phase: Duration, times: &Histogram) -> Result<(), Failure> {
        let silence = self.live.silence();
        let message = match times.max() {
            None => format!("too slow: nothing was complete within {}", text::duration(phase)),
            Some(longest) if silence > SILENCE.max(3 * longest) => {
                format!("no answer for the last {}", text::duration(silence))
            }
            Some(_) => return Ok(()),
        };
        let failure =
            Failure::new(exit::UNAVAILABLE, message).hint("see leasehold doctor, or give it more time (--for)");
        Err(Failure { of_store: true, ..failure })
    }

    /// Gives back every lock and has the store forget the fences. Returns what could not be
    /// removed.
    pub(crate) async fn close(&mut self, store: &Store) -> Option<Left> {
        self.tasks.shutdown().await;
        let close = |locks: Locks| async move {
            let closed = tokio::time::timeout(store::CLOSING, locks.shutdown()).await;
            closed.is_ok_and(|closed| closed.is_ok())
        };
        let (first, second) = tokio::join!(close(self.first.clone()), close(self.second.clone()));
        let forgotten = tokio::time::timeout(store::CLOSING, store.forget(&self.keys)).await;
        let forgotten = forgotten.unwrap_or_else(|_| Err(Error::new(ErrorCode::NetworkTimeout, "the store is silent")));
        let error = forgotten.err();
        let fences = if error.is_some() { self.keys.keys().len() } else { 0 };
        let left = Left { locks: !(first && second), fences, prefix: self.keys.prefix().to_owned(), error };
        (left.locks || left.fences > 0).then_some(left)
    }
}

/// What could not be removed from the store.
#[derive(Debug)]
pub(crate) struct Left {
    /// Whether locks may be held until their leases end.
    locks: bool,
    /// How many fences stay at most.
    pub(crate) fences: usize,
    prefix: String,
    error: Option<Error>,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fences, prefix, .. } = self;
        if self.locks {
            write!(f, "locks whose keys start with '{prefix}' may stay held, for {} at most", text::duration(LEASE))?;
        }
        if *fences > 0 {
            let and = if self.locks { "; " } else { "" };
            write!(f, "{and}up to {fences} fence counters of keys that start with '{prefix}' stay in the store")?;
        }
        self.error.as_ref().map_or(Ok(()), |error| write!(f, ": {}", text::one_line(&error.to_string())))
    }
}

/// The lock of `key`, or nothing if the time is over.
async fn acquire(locks: &Locks, key: &Key, until: Instant) -> Result<Option<Guard>, Error> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(None);
    }
    match locks.lock(key).ttl(LEASE).wait(left).acquire().await {
        Ok(guard) => Ok(Some(guard)),
        // Whether that is the end or the store was silent for long is seen when all have come to it.
        Err(error) if error.code() == ErrorCode::AcquisitionTimeout => Ok(None),
        Err(error) => Err(error),
    }
}

/// Gives a lock back; not if the time is over before that is known.
async fn release(guard: Guard, until: Instant) -> Result<Option<()>, Error> {
    match tokio::time::timeout_at(until.into(), guard.release()).await {
        Ok(released) => released.map(Some),
        // It goes on in the background.
        Err(_) => Ok(None),
    }
}
