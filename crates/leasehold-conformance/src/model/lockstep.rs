use std::sync::Arc;
use std::time::Duration;

use leasehold::backend::{AcquireAll, AcquireRequest, Backend, Line, LookupBy};
use leasehold::{Error, Fence, Holder, Key, ListRequest, LockId, Metadata, Steal, TIME_TOLERANCE, Timestamp, Ttl};

use super::command::{Action, Advance, Command, IDS, InLine, KEYS, Stealing, Wanted};
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
        let ids = (0..IDS).map(|_| LockId::random()).collect::<Result<_, _>>().map_err(failed)?;
        let key = harness.key(&format!("model-{sequence}-{key}"));
        subjects.push(Subject { key, ids, model: KeyModel::new(floored) });
    }
    let mut time_left = config.time_per_sequence;
    for (step, command) in commands.iter().enumerate() {
        let store = &handles[usize::from(command.through_peer)];
        let verdict = match &command.action {
            Action::Advance(advance) => {
                let time = distance(harness.now(), *advance, &subjects[command.key].model);
                if time <= time_left {
                    time_left -= time;
                    harness.pass(time).await;
                }
                Ok(())
            }
            Action::AcquireAll { id, wanted, heeds } => {
                acquire_all(harness, store, &mut subjects, *id, *wanted, *heeds).await
            }
            action => apply(harness, store, &mut subjects[command.key], action).await,
        };
        verdict.map_err(|wrong| format!("at command {}: {wrong}", step + 1))?;
    }
    clean_up(&handles[0], &subjects).await.map_err(failed)
}

/// Leaves nothing behind for the next sequence on a shared store.
async fn clean_up(store: &Arc<dyn Backend>, subjects: &[Subject]) -> Result<(), Error> {
    for subject in subjects {
        store.force_release(&subject.key, None).await?;
        for id in &subject.ids {
            store.release(id).await?;
        }
    }
    Ok(())
}

fn distance(now: Timestamp, advance: Advance, model: &KeyModel) -> Duration {
    // One millisecond early, so that the offsets land on both sides of the edge and on the edge
    // itself.
    let edge = |end: Timestamp, past: Duration, millis: u64| {
        (end + past + Duration::from_millis(millis)).since(now).saturating_sub(Duration::from_millis(1))
    };
    let expires_at = |grant: usize| model.grants().get(grant).map_or(now, |record| record.expires_at);
    match advance {
        Advance::By(time) => time,
        Advance::ToExpiry(grant, millis) => edge(expires_at(grant), Duration::ZERO, millis),
        Advance::ToFree(grant, millis) => edge(expires_at(grant), TIME_TOLERANCE, millis),
        Advance::ToLeaseEnd(place, millis) => {
            edge(model.lease_ends().get(place).copied().unwrap_or(now), Duration::ZERO, millis)
        }
    }
}

/// The time of an answer, from before the question was asked to when this is asked for it.
fn asked(harness: &dyn Harness) -> impl Fn() -> Interval {
    let slack = harness.clock_slack();
    let slack_micros = u64::try_from(slack.as_micros()).unwrap_or(u64::MAX);
    let earliest = Timestamp::from_micros(harness.now().as_micros().saturating_sub(slack_micros));
    move || Interval { earliest, latest: harness.now() + slack }
}

async fn apply(
    harness: &dyn Harness,
    store: &Arc<dyn Backend>,
    subject: &mut Subject,
    action: &Action,
) -> Result<(), String> {
    let Subject { key, ids, model } = subject;
    let interval = asked(harness);
    match *action {
        Action::Acquire { id, wanted, steal, line } => {
            let request = request(key, ids[id], wanted, line).map_err(failed)?.with_steal(permission(steal, model)?);
            let answer = store.acquire(&request).await.map_err(failed)?;
            model.acquire(&request, interval(), &answer)
        }
        Action::Release { id } => {
            let answer = store.release(&ids[id]).await.map_err(failed)?;
            model.release(&ids[id], interval(), answer)
        }
        Action::Extend { id, ttl } => {
            let ttl = Ttl::from_millis(ttl).map_err(failed)?;
            let answer = store.extend(&ids[id], ttl).await.map_err(failed)?;
            model.extend(&ids[id], ttl, interval(), answer)
        }
        Action::IsLocked => {
            let answer = store.is_locked(key).await.map_err(failed)?;
            model.is_locked(interval(), answer)
        }
        Action::LookupByKey => {
            let answer = store.lookup(LookupBy::Key(key)).await.map_err(failed)?;
            model.lookup(None, interval(), answer.as_ref())
        }
        Action::LookupById { id } => {
            let answer = store.lookup(LookupBy::Id(&ids[id])).await.map_err(failed)?;
            model.lookup(Some(&ids[id]), interval(), answer.as_ref())
        }
        Action::Inspect => {
            let answer = store.inspect(key).await.map_err(failed)?;
            model.inspect(interval(), &answer)
        }
        Action::List => {
            let page = store.list(&ListRequest::new(key.as_str())).await.map_err(failed)?;
            let records: Vec<_> = page.records.into_iter().filter(|record| record.key == *key).collect();
            model.list(interval(), &records, page.waiting.get(key).copied())
        }
        Action::ForceRelease { only } => {
            let only = only.and_then(|grant| fence(grant, model));
            let answer = store.force_release(key, only).await.map_err(failed)?;
            model.force_release(only, interval(), &answer)
        }
        Action::Advance(_) | Action::AcquireAll { .. } => Ok(()),
    }
}

async fn acquire_all(
    harness: &dyn Harness,
    store: &Arc<dyn Backend>,
    subjects: &mut [Subject],
    id: usize,
    wanted: [Wanted; KEYS],
    heeds: bool,
) -> Result<(), String> {
    let line = if heeds { InLine::Heeds } else { InLine::Ignores };
    let requests = subjects.iter().zip(wanted).map(|(one, wanted)| request(&one.key, one.ids[id], wanted, line));
    let requests: Vec<_> = requests.collect::<Result<_, _>>().map_err(failed)?;
    let interval = asked(harness);
    let answer = store.acquire_all(&requests).await.map_err(failed)?;
    let at = interval();
    match answer {
        AcquireAll::Granted(grants) => {
            if grants.len() != KEYS {
                return Err(format!("the answer has {} grants", grants.len()));
            }
            let same_fence = grants.iter().all(|grant| grant.fence == grants[0].fence);
            let mut any_new = false;
            for ((subject, request), grant) in subjects.iter_mut().zip(&requests).zip(&grants) {
                any_new |= subject.model.one_of_all(request, at, grant)?;
            }
            // Locks that were taken one by one and are asked for together have fences of their own.
            if any_new && !same_fence { Err(format!("the fences differ: {grants:?}")) } else { Ok(()) }
        }
        AcquireAll::Held { which, contention } => {
            for (number, (subject, request)) in subjects.iter_mut().zip(&requests).enumerate().take(which + 1) {
                subject.model.none_of_all(request, at, (number == which).then_some(&contention))?;
            }
            Ok(())
        }
        other => Err(format!("an answer that the model does not know: {other:?}")),
    }
}

/// The metadata tells the lock and the holder, so that a record put together from two requests is
/// noticed.
fn request(key: &Key, lock_id: LockId, wanted: Wanted, line: InLine) -> Result<AcquireRequest, Error> {
    let Wanted { ttl, holder, mode } = wanted;
    let line = match line {
        InLine::Ignores => Line::Ignore,
        InLine::Heeds => Line::Heed,
        InLine::Joins(lease) => Line::Join { lease: Ttl::from_millis(lease)? },
    };
    Ok(AcquireRequest::new(key.clone(), lock_id, Ttl::from_millis(ttl)?)
        .with_holder(Holder::new(&format!("holder-{holder}"))?)
        .with_metadata(Metadata::new(serde_json::json!({"lock": lock_id.hash_id(), "holder": holder, "ttl": ttl}))?)
        .with_mode(mode)
        .with_line(line))
}

/// The fence of the grant with this number.
fn fence(grant: usize, model: &KeyModel) -> Option<Fence> {
    model.grants().get(grant).map(|record| record.fence)
}

fn permission(steal: Stealing, model: &KeyModel) -> Result<Steal, String> {
    let by_fence = |fence: Option<Fence>| fence.map_or(Steal::NEVER, |fence| Steal::NEVER.with_fence(fence));
    Ok(match steal {
        Stealing::Never => Steal::NEVER,
        Stealing::SameHolder => Steal::NEVER.with_same_holder(),
        Stealing::HeldLongerThan(millis) => Steal::NEVER.with_held_longer_than(Duration::from_millis(millis)),
        Stealing::Fence(grant) => by_fence(fence(grant, model)),
        Stealing::FenceBefore(grant) => {
            let before = fence(grant, model).map(|held| Fence::new(held.get().saturating_sub(1)));
            by_fence(before.transpose().map_err(failed)?)
        }
    })
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn failed(error: Error) -> String {
    format!("the store failed: {error:?}")
}
