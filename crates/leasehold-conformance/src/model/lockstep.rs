use std::sync::Arc;
use std::time::Duration;

use leasehold::backend::{AcquireRequest, Backend, LookupBy};
use leasehold::{Error, Fence, Holder, Key, ListRequest, LockId, Metadata, Steal, TIME_TOLERANCE, Timestamp, Ttl};

use super::command::{Action, Advance, Command, KEYS, SLOTS, Stealing};
use super::{Interval, KeyModel, ModelConfig};
use crate::Harness;

/// One key: its model, and the lock ids in play.
struct Subject {
    key: Key,
    ids: Vec<LockId>,
    model: KeyModel,
}

/// Runs `commands` against the store on fresh keys. Stops at the first answer that the model does
/// not allow.
pub(super) async fn run(
    harness: &dyn Harness,
    config: &ModelConfig,
    sequence: u32,
    commands: &[Command],
) -> Result<(), String> {
    let handles = [harness.backend(), harness.peer()];
    let floored = handles[0].capabilities().clock_floored_fences;
    let mut subjects = Vec::new();
    for key in 0..KEYS {
        let ids = (0..SLOTS).map(|_| LockId::random()).collect::<Result<_, _>>().map_err(failed)?;
        let key = harness.key(&format!("model-{sequence}-{key}"));
        subjects.push(Subject { key, ids, model: KeyModel::new(floored) });
    }
    let mut time_left = config.time_per_sequence;
    for (step, command) in commands.iter().enumerate() {
        let subject = &mut subjects[command.key];
        let verdict = match command.action {
            Action::Advance(advance) => {
                let time = distance(harness.now(), advance, subject);
                if time <= time_left {
                    time_left -= time;
                    harness.pass(time).await;
                }
                Ok(())
            }
            _ => apply(harness, &handles[usize::from(command.through_peer)], subject, &command.action).await,
        };
        verdict.map_err(|wrong| format!("at command {}: {wrong}", step + 1))?;
    }
    // Leaves nothing behind for the next sequence on a shared store.
    for subject in &subjects {
        handles[0].force_release(&subject.key).await.map_err(failed)?;
    }
    Ok(())
}

fn distance(now: Timestamp, advance: Advance, subject: &Subject) -> Duration {
    let expires_at = subject.model.record().map_or(now, |record| record.expires_at);
    // One millisecond early, so that the offsets land on both sides of the edge and on the edge
    // itself.
    let edge = |past: Duration, millis: u64| {
        (expires_at + past + Duration::from_millis(millis)).since(now).saturating_sub(Duration::from_millis(1))
    };
    match advance {
        Advance::By(time) => time,
        Advance::ToExpiry(millis) => edge(Duration::ZERO, millis),
        Advance::ToFree(millis) => edge(TIME_TOLERANCE, millis),
    }
}

async fn apply(
    harness: &dyn Harness,
    store: &Arc<dyn Backend>,
    subject: &mut Subject,
    action: &Action,
) -> Result<(), String> {
    let Subject { key, ids, model } = subject;
    let slack = harness.clock_slack();
    let slack_micros = u64::try_from(slack.as_micros()).unwrap_or(u64::MAX);
    let earliest = Timestamp::from_micros(harness.now().as_micros().saturating_sub(slack_micros));
    // Read after the store answered.
    let interval = || Interval { earliest, latest: harness.now() + slack };
    match *action {
        Action::Acquire { slot, ttl, holder, steal } => {
            let request = request(key, ids[slot], ttl, holder, permission(steal, model)?).map_err(failed)?;
            let answer = store.acquire(&request).await.map_err(failed)?;
            model.acquire(&request, interval(), &answer)
        }
        Action::Release { slot } => {
            let answer = store.release(&ids[slot]).await.map_err(failed)?;
            model.release(&ids[slot], interval(), answer)
        }
        Action::Extend { slot, ttl } => {
            let ttl = Ttl::from_millis(ttl).map_err(failed)?;
            let answer = store.extend(&ids[slot], ttl).await.map_err(failed)?;
            model.extend(&ids[slot], ttl, interval(), answer)
        }
        Action::IsLocked => {
            let answer = store.is_locked(key).await.map_err(failed)?;
            model.is_locked(interval(), answer)
        }
        Action::LookupByKey => {
            let answer = store.lookup(LookupBy::Key(key)).await.map_err(failed)?;
            model.lookup(None, interval(), answer.as_ref())
        }
        Action::LookupById { slot } => {
            let answer = store.lookup(LookupBy::Id(&ids[slot])).await.map_err(failed)?;
            model.lookup(Some(&ids[slot]), interval(), answer.as_ref())
        }
        Action::List => {
            let page = store.list(&ListRequest::new(key.as_str())).await.map_err(failed)?;
            model.lookup(None, interval(), page.records.iter().find(|record| record.key == *key))
        }
        Action::ForceRelease => {
            let answer = store.force_release(key).await.map_err(failed)?;
            model.force_release(interval(), &answer)
        }
        Action::Advance(_) => Ok(()),
    }
}

/// The metadata tells the slot and the holder, so that a record put together from two requests is
/// noticed.
fn request(key: &Key, lock_id: LockId, ttl: u64, holder: usize, steal: Steal) -> Result<AcquireRequest, Error> {
    Ok(AcquireRequest::new(key.clone(), lock_id, Ttl::from_millis(ttl)?)
        .with_holder(Holder::new(&format!("holder-{holder}"))?)
        .with_metadata(Metadata::new(serde_json::json!({"lock": lock_id.hash_id(), "holder": holder, "ttl": ttl}))?)
        .with_steal(steal))
}

fn permission(steal: Stealing, model: &KeyModel) -> Result<Steal, String> {
    let held = model.record().map(|record| record.fence);
    let fence = |fence: Option<Fence>| fence.map_or(Steal::NEVER, |fence| Steal::NEVER.with_fence(fence));
    Ok(match steal {
        Stealing::Never => Steal::NEVER,
        Stealing::SameHolder => Steal::NEVER.with_same_holder(),
        Stealing::HeldLongerThan(millis) => Steal::NEVER.with_held_longer_than(Duration::from_millis(millis)),
        Stealing::Fence => fence(held),
        Stealing::FenceBefore => {
            let before = held.map(|held| Fence::new(held.get().saturating_sub(1)));
            fence(before.transpose().map_err(failed)?)
        }
    })
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn failed(error: Error) -> String {
    format!("the store failed: {error:?}")
}
