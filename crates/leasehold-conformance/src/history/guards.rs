use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::testing::{Fault, FaultLayer, Faults};
use leasehold::{ErrorCode, Guard, Locks, Operation};

use super::{History, Summary, What, check};
use crate::Harness;

/// How long the guards fight. Losses take the ttl and the tolerance each, so less would show
/// little.
const DURATION: Duration = Duration::from_secs(10);
const KEYS: usize = 2;
const TASKS_OF_A_HANDLE: usize = 3;

/// Lets the tasks of several handles fight for a few keys through guards, while calls to the store
/// fail, hang and lose their answers and wake-ups are dropped, and checks what they saw: above all
/// that every guard was told of its loss before anybody else was let in. Needs a store on a real
/// clock.
///
/// # Errors
///
/// The violations found, or that next to nothing happened.
pub async fn concurrent_guards(harness: Arc<dyn Harness>) -> Result<Summary, String> {
    let history = History::new();
    let losses = Arc::new(AtomicUsize::new(0));
    let until = Instant::now() + DURATION;
    let mut tasks = Vec::new();
    for store in [harness.backend(), harness.peer(), harness.backend()] {
        let (store, faults) = FaultLayer::new(store);
        let builder = harness.locks(Arc::new(store)).on_release_error(|_| {});
        let locks = builder.call_timeout(Duration::from_millis(150)).build();
        tasks.push(tokio::spawn(cause_trouble(faults, until)));
        for _ in 0..TASKS_OF_A_HANDLE {
            let contestant = Contestant {
                locks: locks.clone(),
                harness: harness.clone(),
                history: history.clone(),
                losses: losses.clone(),
            };
            tasks.push(tokio::spawn(contestant.fight(until)));
        }
    }
    for task in tasks {
        task.await.map_err(|failure| format!("a task failed: {failure}"))?;
    }
    let summary = check(&history.events()).map_err(|broken| {
        let shown: Vec<String> = broken.iter().take(10).map(|violation| format!("  {violation}")).collect();
        format!("{} violations:\n{}", broken.len(), shown.join("\n"))
    })?;
    let losses = losses.load(Ordering::Relaxed);
    if summary.granted < 10 || summary.released < 5 || losses == 0 {
        return Err(format!("next to nothing happened: {summary:?}, {losses} losses"));
    }
    Ok(summary)
}

/// Makes things go wrong, one call at a time, so that in between something goes well.
async fn cause_trouble(faults: Faults, until: Instant) {
    let lost_answer = Fault::FailAfter(ErrorCode::NetworkTimeout);
    let away = Fault::FailBefore(ErrorCode::ServiceUnavailable);
    let slow = Fault::DelayAfter(Duration::from_millis(60));
    while Instant::now() < until {
        let operation = [Operation::Acquire, Operation::Extend, Operation::Extend, Operation::Release];
        let operation = operation[fastrand::usize(..operation.len())];
        let fault = [lost_answer, away, slow, Fault::HangBefore, Fault::HangAfter][fastrand::usize(..5)];
        faults.next(operation, fault);
        faults.drop_wake_ups(fastrand::bool());
        tokio::time::sleep(Duration::from_millis(fastrand::u64(10..60))).await;
        if fastrand::u8(..10) == 0 {
            // Long enough that a lock is not only lost but given to somebody else.
            faults.always(Operation::Extend, fault);
            tokio::time::sleep(Duration::from_millis(1600)).await;
            faults.clear(Operation::Extend);
        }
    }
    for operation in [Operation::Acquire, Operation::Extend, Operation::Release] {
        faults.clear(operation);
    }
}

struct Contestant {
    locks: Locks,
    harness: Arc<dyn Harness>,
    history: History,
    losses: Arc<AtomicUsize>,
}

impl Contestant {
    async fn fight(self, until: Instant) {
        while Instant::now() < until {
            let key = self.harness.key(&format!("guards-{}", fastrand::usize(..KEYS)));
            let sent = self.history.now();
            let timeout = Duration::from_millis(fastrand::u64(1..400));
            let request = self.locks.lock(&key).ttl(Duration::from_millis(300)).wait_forever();
            // Those that take too long are dropped in the middle of whatever they are doing.
            let acquired = tokio::time::timeout(timeout, request.acquire()).await;
            let Ok(Ok(guard)) = acquired else { continue };
            self.history.record_at(sent, key.as_str(), &name(&guard), What::AcquireSent { may_steal: false });
            // A heartbeat has no deadline of its own: the hold ends when it is told so.
            let granted = What::Granted { fence: guard.fence().get(), deadline: u64::MAX };
            self.record(&guard, granted);
            self.hold(guard).await;
        }
    }

    async fn hold(&self, guard: Guard) {
        // Most are done soon; some work for so long that they would meet a rival if they were not
        // told of a loss.
        let work = Duration::from_millis(if fastrand::u8(..6) == 0 { 2500 } else { fastrand::u64(0..40) });
        tokio::select! {
            biased;
            _ = guard.lost() => {
                self.losses.fetch_add(1, Ordering::Relaxed);
                return self.record(&guard, What::Lost);
            }
            () = tokio::time::sleep(work) => {}
        }
        let lock = name(&guard);
        let key = guard.key().clone();
        match fastrand::u8(..20) {
            0 => {
                self.record(&guard, What::Lost);
                let _ = guard.leak();
            }
            1..4 => self.record(&guard, What::ReleaseSent),
            _ => {
                self.record(&guard, What::ReleaseSent);
                if guard.release().await.is_ok() {
                    self.history.record(key.as_str(), &lock, What::Released);
                }
            }
        }
    }

    fn record(&self, guard: &Guard, what: What) {
        self.history.record(guard.key().as_str(), &name(guard), what);
    }
}

fn name(guard: &Guard) -> String {
    guard.lock_id().hash_id().to_string()
}
