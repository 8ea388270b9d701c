//! One lock that two handles pass to each other.

use std::time::{Duration, Instant};

use leasehold::{Error, Guard, Key, Locks};
use leasehold_plot::Histogram;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{Bench, LEASE, acquire, release};

/// Long enough that whoever waits has nothing else to do.
const ASLEEP: Duration = Duration::from_millis(3);

/// From the start of the release by one handle to the grant to the other, which waits in line.
/// Nothing if the other one does not see the lock at all, as in memory.
pub(super) async fn measure(bench: &Bench, until: Instant) -> Result<Option<Histogram>, Error> {
    let key = &bench.keys.keys()[usize::from(bench.plan.keys)];
    let mut times = Histogram::default();
    while let Some(held) = acquire(&bench.first, key, until).await? {
        if times.count() == 0 {
            match tokio::time::timeout_at(until.into(), bench.second.is_locked(key)).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return Ok(None),
                Ok(Err(error)) => return Err(error),
                Err(_) => break,
            }
        }
        let Some((time, guard)) = one(&bench.second, key, held, until).await? else { break };
        let Some(()) = release(guard, until).await? else { break };
        times.record(time);
        bench.live.count();
    }
    Ok(Some(times))
}

/// One hand-over, and what the other handle has got.
async fn one(second: &Locks, key: &Key, held: Guard, until: Instant) -> Result<Option<(Duration, Guard)>, Error> {
    let (tell, mut refused) = unbounded_channel();
    let left = until.saturating_duration_since(Instant::now());
    let request = second.lock(key).ttl(LEASE).wait(left).on_contention(move |_| {
        let _ = tell.send(());
    });
    let mut waiter = std::pin::pin!(async { request.acquire().await.map(|guard| (Instant::now(), guard)) });
    tokio::select! {
        biased;
        // The time is over, or something is wrong: it cannot be granted yet.
        ended = &mut waiter => return ended.map(|_| None).or_else(only_late),
        () = waits(&mut refused) => {}
    }
    let released = Instant::now();
    let (release, granted) = tokio::join!(release(held, until), waiter);
    match (release?, granted) {
        (Some(()), Ok((granted, guard))) => Ok(Some((granted.saturating_duration_since(released), guard))),
        (None, _) => Ok(None),
        (_, Err(error)) => only_late(error),
    }
}

/// Until somebody sleeps in line: it is refused once before it listens and once after.
async fn waits(refused: &mut UnboundedReceiver<()>) {
    refused.recv().await;
    refused.recv().await;
    tokio::time::sleep(ASLEEP).await;
}

/// That the time is over is no error.
fn only_late<T>(error: Error) -> Result<Option<T>, Error> {
    if error.code() == leasehold::ErrorCode::AcquisitionTimeout { Ok(None) } else { Err(error) }
}
