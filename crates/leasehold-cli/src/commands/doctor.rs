use std::time::{Duration, Instant};

use clap::Args;
use leasehold::{Check, Error, Fence, Key, Locks, TimeAuthority, Timestamp, Verdict};
use serde_json::json;

use crate::exit::{self, Failure};
use crate::locks_view::print;
use crate::options::Common;
use crate::store::{self, Store};
use crate::text;

/// Round trips beyond this make short ttls unsafe.
const SLOW: Duration = Duration::from_millis(250);

/// The difference between two clocks beyond which people will wonder.
const APART: Duration = Duration::from_secs(1);

/// Check the store
///
/// Takes, extends and releases a lock of its own, and looks for whatever could break locks or fences: whether the store
/// can be reached, its version, permissions, clock and persistence. Ends with a verdict. The exit code is 0 if locks
/// work, also with warnings; 69, 77 or 78 if not.
#[derive(Args, Debug)]
#[command(after_help = exit::help())]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) async fn run(options: &Options) -> Result<u8, Failure> {
    let store = Store::choose(&options.common)?;
    let report = Report { json: options.common.json };
    report.line(&Check::new("store", Verdict::Ok, store.public_url()))?;
    let (checks, failure) = match store.connect().await {
        Ok(locks) => {
            let (mut checks, mut failure) = examine(&locks).await;
            match store.examine().await {
                Ok(more) => checks.extend(more),
                Err(error) => {
                    checks.push(Check::new("examination", Verdict::Fail, error.message.clone()));
                    failure = failure.or(Some(error));
                }
            }
            store::close(&locks, store::CLOSING).await;
            (checks, failure)
        }
        Err(failure) => (vec![Check::new("reachable", Verdict::Fail, failure.message.clone())], Some(failure)),
    };
    for check in &checks {
        report.line(check)?;
    }
    let worst = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok);
    report.verdict(worst)?;
    match (worst, failure) {
        (Verdict::Ok | Verdict::Warn, _) => Ok(0),
        (Verdict::Fail, Some(failure)) => Ok(failure.code),
        (Verdict::Fail, None) => Ok(exit::BAD_STORE),
    }
}

/// The checks that every store can pass: those of its operations.
async fn examine(locks: &Locks) -> (Vec<Check>, Option<Failure>) {
    let mut checks = Vec::new();
    let failure = match probe(locks, &mut checks).await {
        Ok(()) => None,
        Err(error) => {
            checks.push(Check::new("operations", Verdict::Fail, text::one_line(&error.to_string())));
            Some(Failure::from(error))
        }
    };
    (checks, failure)
}

/// Takes, extends, lists and releases a lock that nobody else wants.
async fn probe(locks: &Locks, checks: &mut Vec<Check>) -> Result<(), Error> {
    let key = Key::new(&format!("leasehold-doctor-{}", leasehold::LockId::random()?.hash_id()))?;
    let started = Instant::now();
    let locked = locks.is_locked(&key).await?;
    let round_trip = started.elapsed();
    checks.push(Check::new("reachable", if locked { Verdict::Fail } else { Verdict::Ok }, "answers"));

    let before = Timestamp::now();
    let (first, acquired_at) = hold(locks, &key, checks).await?;
    let apart = acquired_at.since(before).max(before.since(acquired_at)).saturating_sub(started.elapsed());
    let (second, _) = hold(locks, &key, &mut Vec::new()).await?;
    checks.push(if second > first {
        Check::new("fences grow", Verdict::Ok, format!("{first}, then {second}"))
    } else {
        Check::new("fences grow", Verdict::Fail, format!("{first}, then {second}: late writers cannot be told"))
    });
    let verdict = if round_trip < SLOW { Verdict::Ok } else { Verdict::Warn };
    checks.push(Check::new("round trip", verdict, format!("{:.1} ms", round_trip.as_secs_f64() * 1000.0)));
    let verdict = if apart < APART { Verdict::Ok } else { Verdict::Warn };
    checks.push(Check::new("clocks", verdict, format!("{} from the clock of this host", text::duration(apart))));
    checks.extend(capabilities(locks));
    Ok(())
}

/// One hold of `key` with all that can be done to it.
async fn hold(locks: &Locks, key: &Key, checks: &mut Vec<Check>) -> Result<(Fence, Timestamp), Error> {
    let guard = locks.lock(key).wait(Duration::from_secs(5)).acquire().await?;
    let (fence, acquired_at) = (guard.fence(), guard.acquired_at());
    guard.extend(Duration::from_secs(30)).await?;
    let refused = locks.lock(key).try_acquire().await?.is_none();
    let listed = locks.get_by_key(key).await?.is_some_and(|info| info.fence == fence);
    guard.release().await?;
    let freed = !locks.is_locked(key).await?;
    let mut check = |name, passed, good, bad| {
        let verdict = if passed { Verdict::Ok } else { Verdict::Fail };
        checks.push(Check::new(name, verdict, if passed { good } else { bad }));
    };
    check("exclusion", refused, "a second holder is refused", "a second holder was let in");
    check("lookup", listed, "a held lock is found", "a held lock is not found");
    check("release", freed, "a released lock is free", "a released lock is still held");
    Ok((fence, acquired_at))
}

fn capabilities(locks: &Locks) -> [Check; 3] {
    let found = locks.backend().capabilities();
    let judge = |passed, name, good: &str, bad: &str| {
        let verdict = if passed { Verdict::Ok } else { Verdict::Warn };
        Check::new(name, verdict, if passed { good } else { bad })
    };
    [
        judge(
            found.time_authority == TimeAuthority::Store,
            "time",
            "the store's clock decides",
            "each client's clock decides: keep them in step",
        ),
        judge(found.wake_ups, "wake-ups", "waiters are woken", "waiters poll"),
        judge(
            found.clock_floored_fences,
            "fence floor",
            "fences never repeat, even if the store loses its last writes",
            "fences may repeat if the store loses its last writes",
        ),
    ]
}

/// Where the checks are told.
struct Report {
    json: bool,
}

impl Report {
    fn line(&self, check: &Check) -> Result<(), Failure> {
        if self.json {
            let (name, verdict, detail) = (check.name, check.verdict, &check.detail);
            return print(&format!("{}\n", json!({ "check": name, "verdict": verdict, "detail": detail })));
        }
        let verdict = word(check.verdict);
        print(&format!("{verdict:<5} {:<12} {}\n", check.name, text::safe(&check.detail)))
    }

    fn verdict(&self, worst: Verdict) -> Result<(), Failure> {
        if self.json {
            return print(&format!("{}\n", json!({ "verdict": worst })));
        }
        print(match worst {
            Verdict::Ok => "verdict: good, locks work here\n",
            Verdict::Warn => "verdict: locks work here, but mind the warnings\n",
            Verdict::Fail => "verdict: BAD, do not rely on locks here\n",
        })
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
    }
}
