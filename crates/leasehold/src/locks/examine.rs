use std::time::{Duration, Instant};

use super::Locks;
use crate::backend::TimeAuthority;
use crate::stores::{StandIn, store_of};
use crate::{Check, Error, Fence, HashId, Holder, Key, Timestamp, Verdict};

/// Round trips beyond this make short ttls unsafe.
const SLOW: Duration = Duration::from_millis(250);

/// Clocks further apart than this will puzzle people who compare times.
const CLOCKS_APART: Duration = Duration::from_secs(1);

/// How long the lock of our own lasts if this process ends in the middle.
const LEASE: Duration = Duration::from_secs(5);

/// The longest to wait for the lock of our own: longer than somebody who died with it keeps it.
const WAIT: Duration = Duration::from_secs(10);

impl Locks {
    /// Looks for whatever could break locks or fences in the store at `url`: takes, extends, finds
    /// and releases a lock of its own, twice, and adds what the store can tell of itself. This is
    /// what `leasehold doctor` shows, and it works for [every store](crate::stores::register).
    /// Nothing is left behind, and a store that is not there yet is not made: another one is tried
    /// beside it. Only where fences may not be deleted, that of the lock stays.
    ///
    /// An operation that fails is a check that fails, with its error's code. The worst [`Verdict`]
    /// is the whole store's.
    ///
    /// ```
    /// use leasehold::{Locks, Verdict};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let checks = Locks::examine("memory:").await?;
    /// assert!(checks.iter().all(|check| check.verdict < Verdict::Fail));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cancel-safe: a lock of its own is released in the background.
    ///
    /// # Errors
    ///
    /// As [`connect`](Locks::connect): there is no store to examine.
    pub async fn examine(url: &str) -> Result<Vec<Check>, Error> {
        let driver = store_of(url)?.driver()?;
        let stand_in = driver.stand_in(url)?;
        let url = stand_in.as_ref().map_or(url, StandIn::url);
        let locks = Self::connect(url).await?;
        let mut checks = Vec::new();
        if stand_in.is_some() {
            checks.push(Check::new(
                "place",
                Verdict::Ok,
                "the store is not there yet: another one was tried beside it",
            ));
        }
        // One key for each host and program: two who examine at once must not make many.
        let key = Key::new(&format!("leasehold-examine-{}", HashId::of(Holder::default().as_str())))?;
        let operations = locks.examine_operations(&key, &mut checks).await;
        if let Err(error) = &operations {
            checks.push(Check::failed("operations", error));
        }
        match driver.examine(url).await {
            Ok(more) => checks.extend(more),
            Err(error) => checks.push(Check::failed("examination", &error)),
        }
        // A lock that could not be released shows among the operations.
        let _ = locks.shutdown().await;
        if operations.is_ok()
            && let Err(error) = driver.forget(url, std::slice::from_ref(&key)).await
        {
            let detail = format!("the fence counter of this examination stays, and no second one will: {error}");
            checks.push(Check::new("traces", Verdict::Ok, detail));
        }
        Ok(checks)
    }

    /// The checks that every store can pass: those of its operations, with a lock that nobody else
    /// wants.
    async fn examine_operations(&self, key: &Key, checks: &mut Vec<Check>) -> Result<(), Error> {
        let started = Instant::now();
        self.is_locked(key).await?;
        let round_trip = started.elapsed();
        checks.push(Check::new("reachable", Verdict::Ok, "answers"));

        let (first, apart) = self.examine_hold(key, checks).await?;
        let (second, _) = self.examine_hold(key, &mut Vec::new()).await?;
        let order = format!("{first}, then {second}");
        let disorder = format!("{order}: late writers cannot be told");
        checks.push(judge(second > first, "fences grow", order, disorder));
        let detail = format!("{:.1} ms", round_trip.as_secs_f64() * 1000.0);
        checks.push(Check::new("round trip", warn_unless(round_trip < SLOW), detail));
        // A store without a clock of its own goes by this one, and has to say itself if it is wrong.
        if self.backend().capabilities().time_authority == TimeAuthority::Store {
            let detail = format!("{} ms from the clock of this host", apart.as_millis());
            checks.push(Check::new("clocks", warn_unless(apart < CLOCKS_APART), detail));
        }
        checks.push(self.examine_times().await?);
        checks.extend(self.examine_capabilities());
        Ok(())
    }

    /// One hold of `key` with all that can be done to it. Returns its fence, and how far the clock
    /// that it goes by is from this host's.
    async fn examine_hold(&self, key: &Key, checks: &mut Vec<Check>) -> Result<(Fence, Duration), Error> {
        let before = Timestamp::now();
        let guard = self.lock(key).ttl(LEASE).wait(WAIT).acquire().await?;
        let (fence, acquired_at) = (guard.fence(), guard.acquired_at());
        // Between the two moments any time is as good as another.
        let apart = before.since(acquired_at).max(acquired_at.since(Timestamp::now()));
        guard.extend(LEASE).await?;
        let refused = self.lock(key).try_acquire().await?.is_none();
        let found = self.get_by_key(key).await?.is_some_and(|info| info.fence == fence);
        guard.release().await?;
        // Somebody else may examine the store at the same time, under the same key.
        let freed = self.get_by_key(key).await?.is_none_or(|info| info.fence != fence);
        checks.extend([
            judge(refused, "exclusion", "a second holder is refused", "a second holder was let in"),
            judge(found, "lookup", "a held lock is found", "a held lock is not found"),
            judge(freed, "release", "a released lock is free", "a released lock is still held"),
        ]);
        Ok((fence, apart))
    }

    fn examine_capabilities(&self) -> [Check; 3] {
        let found = self.backend().capabilities();
        let check = |name, passed, good: &str, bad: &str| {
            Check::new(name, warn_unless(passed), if passed { good } else { bad })
        };
        let time = match found.time_authority {
            TimeAuthority::Store => "the store's clock decides",
            TimeAuthority::Client => "each client's clock decides: keep them in step",
        };
        [
            Check::new("time", Verdict::Ok, time),
            check("wake-ups", found.wake_ups, "waiters are woken", "waiters poll"),
            check(
                "fence floor",
                found.clock_floored_fences,
                "fences never repeat, even if the store loses its last writes",
                "fences may repeat if the store loses its last writes",
            ),
        ]
    }
}

/// Without it, locks do not work.
fn judge(passed: bool, name: &'static str, good: impl Into<String>, bad: impl Into<String>) -> Check {
    if passed { Check::new(name, Verdict::Ok, good) } else { Check::new(name, Verdict::Fail, bad) }
}

fn warn_unless(passed: bool) -> Verdict {
    if passed { Verdict::Ok } else { Verdict::Warn }
}
