use leasehold::backend::{Acquire, AcquireRequest, Extend, Line, Record, Release};
use leasehold::{Contention, Fence, Grant, LockId, Timestamp, Ttl};

use super::interval::{Interval, Span};
use super::world::{Place, World};

/// The locks and the line of one key, as the rules have them.
///
/// Each method is given an answer of the store and when it was given. It tells whether the rules
/// allow the answer, and takes over what the rules leave to the store: the fence, the exact times,
/// and on which side of an edge that lies within the interval the answer was given. If an answer
/// does not tell which it was, both are possible until a later one does.
#[derive(Clone, Debug)]
pub struct KeyModel {
    /// All that is possible.
    worlds: Vec<World>,
    fences: Fences,
}

/// What is known of the fences of a key.
#[derive(Clone, Copy, Debug)]
struct Fences {
    last: Option<Fence>,
    /// Whether the clock is their floor.
    floored: bool,
}

pub(super) type Verdict = Result<(), String>;

impl KeyModel {
    /// A key that was never locked, in a store whose fences are floored by the clock or not.
    pub fn new(clock_floored_fences: bool) -> Self {
        Self { worlds: vec![World::default()], fences: Fences { last: None, floored: clock_floored_fences } }
    }

    /// The grants that there may be, live or dead, the oldest first.
    pub fn grants(&self) -> &[Record] {
        self.worlds.first().map_or(&[], |world| &world.grants)
    }

    /// About when the places in line end, the first in line first.
    pub fn lease_ends(&self) -> Vec<Timestamp> {
        self.worlds.first().into_iter().flat_map(|world| &world.line).map(Place::ends).collect()
    }

    /// Goes through all that is possible at some moment of `at`, and keeps what comes of it.
    /// `decide` tells what that is, or why the answer is wrong.
    pub(super) fn judge(
        &mut self,
        at: Interval,
        edges: &[u64],
        decide: impl Fn(World, Span) -> Result<Vec<World>, String>,
    ) -> Verdict {
        let mut possible: Vec<World> = Vec::new();
        let mut wrong = None;
        for (world, part) in self.worlds.iter().flat_map(|world| world.moments(at.span(), edges)) {
            match decide(world.clone(), part) {
                Ok(worlds) => {
                    for world in worlds {
                        if !possible.contains(&world) {
                            possible.push(world);
                        }
                    }
                }
                Err(why) => wrong = wrong.or_else(|| Some(format!("{why}; the model has {world:?}"))),
            }
        }
        if possible.is_empty() {
            return Err(wrong.unwrap_or_else(|| "the model has nothing".to_owned()));
        }
        self.worlds = possible;
        Ok(())
    }

    /// Checks the answer to an acquire.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn acquire(&mut self, request: &AcquireRequest, at: Interval, answer: &Acquire) -> Verdict {
        let fences = self.fences;
        self.judge(at, &self.stuck_from(request), |mut world, part| {
            if let Some(held) = world.grant_of(&request.lock_id) {
                return match answer {
                    Acquire::Granted(grant) if *grant == held.grant() => Ok(vec![world.call(at.span())]),
                    _ => Err(format!("a repeated acquire got {answer:?}, not {:?} again", held.grant())),
                };
            }
            let refusal = world.refusal(request, at.span());
            let victims = if refusal.is_some() { world.victims(request, part) } else { Vec::new() };
            match (answer, refusal) {
                (Acquire::Held(contention), Some(refusal)) if victims.is_empty() => {
                    check_time(contention, at)?;
                    world.told(&refusal, contention)?;
                    let place = match request.line {
                        Line::Join { lease } => u32::try_from(world.join(request, lease.as_millis(), at.span())).ok(),
                        _ => None,
                    };
                    if contention.place != place {
                        return Err(format!("the place is {:?}, not {place:?}", contention.place));
                    }
                    Ok(vec![world.call(at.span())])
                }
                (Acquire::Held(_), Some(_)) => Err("the lock was refused although it may be stolen".to_owned()),
                (Acquire::Held(_), None) => Err("the lock was refused although there is room".to_owned()),
                (Acquire::Granted(_), Some(_)) if victims.is_empty() => {
                    Err("the lock was given away although somebody is in the way".to_owned())
                }
                (Acquire::Granted(grant), _) => {
                    world.end(&victims);
                    fences.check(grant, at)?;
                    let_in(&mut world, request, at, grant)?;
                    Ok(vec![world.call(at.span())])
                }
                (other, _) => Err(format!("an answer that the model does not know: {other:?}")),
            }
        })?;
        if let Acquire::Granted(grant) = answer {
            self.fences.last = self.fences.last.max(Some(grant.fence));
        }
        Ok(())
    }

    /// When the grants count as stuck, for a request that may take those.
    fn stuck_from(&self, request: &AcquireRequest) -> Vec<u64> {
        let Some(limit) = request.steal.held_longer_than() else { return Vec::new() };
        let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let grants = self.worlds.iter().flat_map(|world| &world.grants);
        grants.map(|grant| grant.acquired_at.as_millis().saturating_add(limit).saturating_add(1)).collect()
    }

    /// Checks what came for this key of a request for several keys: its grant. Tells whether that
    /// is a new one.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn one_of_all(&mut self, request: &AcquireRequest, at: Interval, grant: &Grant) -> Result<bool, String> {
        let fences = self.fences;
        let is_new = fences.last < Some(grant.fence);
        self.judge(at, &[], |mut world, _| {
            if !is_new {
                return match world.grant_of(&request.lock_id) {
                    // Nothing has changed, so it may or may not see whether somebody is to be called.
                    Some(held) if held.grant() == *grant => Ok(vec![world.clone(), world.call(at.span())]),
                    _ => Err(format!("{grant:?} is not the grant of this id")),
                };
            }
            if world.refusal(request, at.span()).is_some() {
                return Err("the lock was given away with others although somebody is in the way".to_owned());
            }
            fences.check(grant, at)?;
            let_in(&mut world, request, at, grant)?;
            Ok(vec![world.call(at.span())])
        })?;
        self.fences.last = self.fences.last.max(Some(grant.fence));
        Ok(is_new)
    }

    /// Checks what came for this key of a request for several keys that was refused: that this key
    /// was in the way, or that it was not.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn none_of_all(&mut self, request: &AcquireRequest, at: Interval, in_the_way: Option<&Contention>) -> Verdict {
        self.judge(at, &[], |mut world, _| match (world.refusal(request, at.span()), in_the_way) {
            (None, None) => Ok(vec![world]),
            (Some(refusal), Some(contention)) => {
                check_time(contention, at)?;
                world.told(&refusal, contention)?;
                if contention.place.is_some() {
                    return Err("there is a place in line that nobody asked for".to_owned());
                }
                Ok(vec![world.call(at.span())])
            }
            (None, Some(_)) => Err("the locks were refused because of one that is free".to_owned()),
            (Some(_), None) => Err("another lock was in the way before".to_owned()),
        })
    }

    /// Checks the answer to a release.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn release(&mut self, id: &LockId, at: Interval, answer: Release) -> Verdict {
        self.judge(at, &[], |mut world, _| {
            let held = world.grant_of(id).is_some();
            if held != (answer == Release::Released) {
                return Err(format!("the answer to a release is {answer:?}"));
            }
            world.end(&[*id]);
            if world.leave(id) || held {
                return Ok(vec![world.call(at.span())]);
            }
            // A store need not know which key it was about, and whether somebody waits there.
            Ok(vec![world.clone(), world.call(at.span())])
        })
    }

    /// Checks the answer to an extend.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn extend(&mut self, id: &LockId, ttl: Ttl, at: Interval, answer: Extend) -> Verdict {
        self.judge(at, &[], |mut world, _| {
            match (world.grants.iter_mut().find(|grant| grant.lock_id == *id), answer) {
                (Some(grant), Extend::Extended { expires_at }) if at.allows_expiry(expires_at, ttl) => {
                    grant.expires_at = expires_at;
                }
                (None, Extend::Absent(_)) => {}
                _ => return Err(format!("the answer to an extend by {ttl:?} at {at:?} is {answer:?}")),
            }
            Ok(vec![world])
        })
    }

    /// Checks the answer to a forced release, of all grants or of one.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn force_release(&mut self, only: Option<Fence>, at: Interval, answer: &[Record]) -> Verdict {
        let mut ended = answer.to_vec();
        ended.sort_by_key(|record| record.fence);
        self.judge(at, &[], |mut world, _| {
            let is_meant = |grant: &Record| only.is_none_or(|only| grant.fence == only);
            let expected: Vec<_> = world.grants.extract_if(.., |grant| is_meant(grant)).collect();
            if ended != expected {
                return Err(format!("a forced release ended {ended:?}, not {expected:?}"));
            }
            Ok(vec![world.call(at.span())])
        })
    }
}

impl Fences {
    fn check(self, grant: &Grant, at: Interval) -> Verdict {
        if self.last >= Some(grant.fence) {
            return Err(format!("{:?} follows {:?}", grant.fence, self.last));
        }
        if self.floored && grant.fence.get() < at.earliest.as_micros() / 100 {
            return Err(format!("{:?} is below the clock, {:?}", grant.fence, at.earliest));
        }
        Ok(())
    }
}

fn check_time(contention: &Contention, at: Interval) -> Verdict {
    if at.contains(contention.now) {
        return Ok(());
    }
    Err(format!("the contention's time {:?} is not within {at:?}", contention.now))
}

fn let_in(world: &mut World, request: &AcquireRequest, at: Interval, grant: &Grant) -> Verdict {
    let slot = world.slot(request);
    if grant.lock_id != request.lock_id {
        return Err("the grant carries another lock id".to_owned());
    }
    if grant.slot != slot {
        return Err(format!("the slot is {:?}, not {slot:?}", grant.slot));
    }
    if !at.contains(grant.acquired_at) {
        return Err(format!("acquired_at {:?} is not within {at:?}", grant.acquired_at));
    }
    if !at.allows_expiry(grant.expires_at, request.ttl) {
        return Err(format!("expires_at {:?} is not {:?} after {at:?}", grant.expires_at, request.ttl));
    }
    world.end(&[request.lock_id]);
    world.leave(&request.lock_id);
    let record = Record::new(request.key.clone(), grant).with_mode(request.mode);
    world.grants.push(record.with_holder(Some(request.holder.clone())).with_metadata(request.metadata.clone()));
    Ok(())
}
